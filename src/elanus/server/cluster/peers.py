"""The other processes of the cluster, as their sessions tell: who they are, and clients of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes
from elanus.meta.directory import Directory
from elanus.meta.port import MetaStore
from elanus.meta.session import SessionInfo
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.remote import Peer, RemoteRole

Api = TypeVar("Api")

COORDINATORS = ("rootcoord", "datacoord", "indexcoord", "querycoord")
NODES = ("proxy", "querynode", "datanode")
ROLES = (*COORDINATORS, *NODES)


class Peers:
    """Up to date between `start` and `stop`. ``dial`` opens a connection to an address."""

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

    def nodes(
        self, role: str, api: type[Api], *, timeout_s: float | None, issued_by: NodeID | None = None
    ) -> Nodes[Api]:
        """Clients of a role's nodes, by node id. ``issued_by``: the session of the coordinator whose orders
        go through them."""
        return _Clients(self._directories[role], api, timeout_s, issued_by)

    def infos(self, role: str) -> Mapping[NodeID, SessionInfo]:
        return self._directories[role].infos

    def _connect(self, info: SessionInfo) -> Peer:
        return Peer(f"{info.role} {info.node_id}", self._dial(info.address))

    def _disconnect(self, peer: Peer) -> None:
        task = asyncio.ensure_future(peer.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class _Clients(Nodes[Api], Generic[Api]):
    """What a directory of peers looks like to who calls one of their interfaces."""

    def __init__(
        self, peers: Nodes[Peer], api: type[Api], timeout_s: float | None, issued_by: NodeID | None
    ) -> None:
        self._peers = peers
        self._api = api
        self._timeout_s = timeout_s
        self._issued_by = issued_by

    def __getitem__(self, node_id: NodeID) -> Api:
        return self._peers[node_id].client(self._api, self._timeout_s, issued_by=self._issued_by)

    def __iter__(self) -> Iterator[NodeID]:
        return iter(self._peers)

    def __len__(self) -> int:
        return len(self._peers)

    async def refresh(self) -> None:
        await self._peers.refresh()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._peers.on_change(listener)
