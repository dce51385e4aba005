"""The other processes of the cluster, found by their sessions, and clients of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from elanus.api.datanode import DataNodePorts
from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes, NodesAs
from elanus.meta.directory import Directory
from elanus.meta.port import MetaStore
from elanus.meta.session import Session, SessionInfo
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.remote import Peer, RemoteRole
from elanus.server.builders import data_node_ports
from elanus.server.status import RoleStatus

Api = TypeVar("Api")

COORDINATORS = ("rootcoord", "datacoord", "indexcoord", "querycoord")
NODES = ("proxy", "querynode", "datanode")
ROLES = (*COORDINATORS, *NODES)


class ClusterPeers:
    """The nodes of every role. Up to date between `start` and `stop`. ``dial`` connects to an address."""

    def __init__(self, meta: MetaStore, dial: Callable[[str], RpcChannel]) -> None:
        self._dial = dial
        self._ending: set[asyncio.Task[None]] = set()
        self._directories = {role: Directory(meta, role, self._connect, self._disconnect) for role in ROLES}
        self._coordinators = {role: RemoteRole(role, self._directories[role]) for role in COORDINATORS}

    async def start(self) -> None:
        """Raises `Unavailable`."""
        await asyncio.gather(*(directory.start() for directory in self._directories.values()))

    async def stop(self) -> None:
        for directory in self._directories.values():
            await directory.stop()
        for directory in self._directories.values():
            for peer in directory.values():
                self._disconnect(peer)
        await asyncio.gather(*self._ending)

    def coordinator(self, role: str, api: type[Api]) -> Api:
        return self._coordinators[role].client(api)

    def why_not(self, role: str) -> str:
        """Return why calls to a coordinator wait: none is active, or it has said why it does not start; ""
        if neither is known."""
        if refusal := self._coordinators[role].refusal:
            return refusal
        return "" if self.infos(role) else f"{role} is not running"

    def nodes(
        self, role: str, api: type[Api], *, timeout_s: float | None, issued_by: NodeID | None = None
    ) -> Nodes[Api]:
        """Clients of a role's nodes, by node id. ``issued_by``: the session of the coordinator that issues
        orders through them."""
        peers = self._directories[role]
        return NodesAs(peers, lambda n: peers[n].client(api, timeout_s, issued_by=issued_by))

    def data_nodes(self, datacoord: NodeID) -> Nodes[DataNodePorts]:
        """Return the data nodes, as the datacoord with that session commands them."""
        peers = self._directories["datanode"]
        return NodesAs(peers, lambda n: data_node_ports(peers.infos[n].address, peers[n], datacoord))

    def end_with_record(self, session: Session) -> None:
        """Have a session of this process given up as soon as its record is seen to be gone.

        Its next renewal would show it too, up to a third of the lease's term later. Meanwhile a coordinator
        that was replaced would answer: timestamps, for example, that are below those of its successor.
        """
        directory = self._directories[session.info.role]
        seen = False

        def look() -> None:
            nonlocal seen
            if session.node_id in directory.infos:
                seen = True
            elif seen:
                session.give_up("its record is gone")
            if session.has_ended:
                forget()

        forget = directory.on_change(look)
        look()

    def infos(self, role: str) -> Mapping[NodeID, SessionInfo]:
        return self._directories[role].infos

    def labels(self, role: str) -> Mapping[NodeID, Mapping[str, str]]:
        """Return the labels of the nodes that have any."""
        return {n: info.labels for n, info in self.infos(role).items() if info.labels}

    def missing_coordinators(self) -> list[str]:
        """Return the coordinators of which no process is the active one."""
        return [role for role in COORDINATORS if not self.infos(role)]

    def elsewhere(self, own: str) -> list[RoleStatus]:
        """Return the roles of other processes, according to their sessions, and the coordinators that are
        missing. ``own``: this process's address.

        A missing coordinator is named even if nobody asks it anything: otherwise nothing would show that no
        index is built without indexcoord.
        """
        there = [
            RoleStatus(f"{role} {node_id}", "Healthy", info.address)
            for role in ROLES
            for node_id, info in sorted(self.infos(role).items())
            if info.address != own
        ]
        return [
            *there,
            *(RoleStatus(r, "Abnormal", "not active anywhere") for r in self.missing_coordinators()),
        ]

    def _connect(self, info: SessionInfo) -> Peer:
        """Connect to a process. A node is addressed by its session's id; a coordinator only by its role,
        whichever session it has by then."""
        node_id = info.node_id if info.role in NODES else None
        return Peer(f"{info.role} {info.node_id}", self._dial(info.address), node_id)

    def _disconnect(self, peer: Peer) -> None:
        task = asyncio.ensure_future(peer.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
