"""A process of a cluster: its roles, what they depend on, and the port where others reach them.

Every role joins through its session in the metadata and finds the others through theirs (`peers.py`), even
those of its own process. A coordinator role stands by until it is the active one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from elanus.api.connector import SnapshotApi
from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.ledger import JobLedgerApi
from elanus.api.proxy import ProxyApi
from elanus.api.query_channel import QueryChannels, ReadPayloads
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import QueryNodeApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.clock import SystemClock
from elanus.core.errors import NotReady
from elanus.core.ids import NodeID
from elanus.core.jobs import JobEntry
from elanus.log.port import Log
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.port import MetaStore
from elanus.meta.session import Session
from elanus.meta.tasks import cancel_and_wait
from elanus.proxy.api.introspection import ComponentView
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.role.measures import Measures
from elanus.proxy.role.proxy import Coordinators, Proxy
from elanus.proxy.role.stamps import RemoteStamps
from elanus.proxy.verbs.pressure import Pressure
from elanus.querycoord.fleet import ChannelFleet
from elanus.querynode.node import ChannelReads, QueryNode
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.rpc.local import LocalRole, local_client
from elanus.server.builders import Builders, RoleDependencies, recall_sampler
from elanus.server.certificates import cluster_security
from elanus.server.cluster.identity import ClusterIdentity
from elanus.server.cluster.leaving import hand_over
from elanus.server.cluster.peers import COORDINATORS, NODES, ClusterPeers
from elanus.server.cluster.workspace import Workspace
from elanus.server.connections import Connections
from elanus.server.data_dir import paths_of
from elanus.server.free_disk import FreeDisk, directories_of
from elanus.server.roles import Role, RoleHost
from elanus.server.settings import Settings
from elanus.server.status import RoleStatus
from elanus.server.threads import ProcessThreads
from elanus.storage.port import ObjectStore

Api = TypeVar("Api")
_READ_THREADS = 16
"""How many reads a query node runs at the same time."""
_PROXY_CALL_S = 3.0
"""How long a coordinator waits for a proxy's answer. A proxy that has ended or hangs is dropped
when its session ends."""
_INTERFACES: dict[str, tuple[type[Any], ...]] = {
    "rootcoord": (RootCoordApi,),
    "datacoord": (DataCoordApi, JobLedgerApi, SnapshotApi),
    "indexcoord": (IndexCoordApi,),
    "querycoord": (QueryCoordApi,),
    "querynode": (QueryNodeApi,),
    "proxy": (ProxyApi,),
    "datanode": (),
}
"""The interfaces that each role implements itself; some have parts that implement more."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services of the cluster, opened by this process."""

    meta: MetaStore
    leases: LeaseKeeper
    log: Log
    store: ObjectStore
    channels: QueryChannels
    identity: ClusterIdentity


class Pipeline(Protocol):
    """The datanode role, built by code that imports Spark: other processes do not load it."""

    def interfaces(self, handle: LocalRole) -> list[tuple[type[Any], Any]]: ...
    def build(self, process: ClusterProcess, session: Session) -> Role: ...


class ClusterProcess:
    """The roles of one process. ``roles``: their names. ``job_ended``: as in
    `elanus.server.builders.RoleDependencies`. ``pipeline``: for the datanode role.

    Implements `elanus.server.report.Subject`. Created and used on one event loop; the services outlive it.
    Raises `CannotStart` for unusable certificates, and `Unavailable` for a port that is taken.
    """

    def __init__(
        self,
        settings: Settings,
        roles: tuple[str, ...],
        workspace: Workspace,
        services: Services,
        measures: Measures,
        job_ended: Callable[[JobEntry], None],
        pipeline: Pipeline | None = None,
    ) -> None:
        self._settings = settings
        self._services = services
        self.log = services.log
        self.store = services.store
        self.clock = SystemClock()
        self._threads = ProcessThreads()
        self.recall = recall_sampler(settings)
        self._read_threads = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="elanus-read")
        self._security = cluster_security(settings.cluster)
        connect = partial(RpcChannel, security=self._security)
        self._connections = Connections(connect)
        self.peers = ClusterPeers(services.meta, connect)
        self.root = self.peers.coordinator("rootcoord", RootCoordApi)
        self.data = self.peers.coordinator("datacoord", DataCoordApi)
        self.ledger = self.peers.coordinator("datacoord", JobLedgerApi)
        self.snapshots = self.peers.coordinator("datacoord", SnapshotApi)
        self.index = self.peers.coordinator("indexcoord", IndexCoordApi)
        self.query = self.peers.coordinator("querycoord", QueryCoordApi)
        self._query_nodes = self.peers.nodes("querynode", QueryNodeApi, timeout_s=None)
        self._payloads = self.peers.nodes("proxy", ReadPayloads, timeout_s=30.0)
        self._builders = Builders(self._dependencies(workspace, measures, job_ended))
        self._handles = {role: LocalRole(role, fails_at_once=True) for role in roles}
        self._fan_out: FanOut | None = None
        self._growing_watch = self._builders.growing_watch()
        self._background: list[asyncio.Task[None]] = []
        self.roles = RoleHost()
        self._pipeline = pipeline
        self._server = RpcServer(
            f"{settings.cluster.host}:{settings.cluster.port}",
            self._interfaces(roles),
            security=self._security,
        )
        cluster = settings.cluster
        reached_at = cluster.host if cluster.advertise == "auto" else cluster.advertise
        self.address = f"{reached_at}:{self._server.port}"
        self._add_roles()

    def _dependencies(
        self, workspace: Workspace, measures: Measures, job_ended: Callable[[JobEntry], None]
    ) -> RoleDependencies:
        services = self._services
        return RoleDependencies(
            settings=self._settings,
            clock=self.clock,
            meta=services.meta,
            log=services.log,
            store=services.store,
            pools=self._threads.pools,
            scratch=workspace.scratch,
            measures=measures,
            job_ended=job_ended,
            coordinators=Coordinators(self.root, self.data, self.index, self.query),
            proxies=self.peers.nodes("proxy", ProxyApi, timeout_s=_PROXY_CALL_S),
            query_nodes=self._fleet,
            data_nodes=self.peers.data_nodes,
            dial=self._connections.to,
            leases=services.leases,
            recall=self.recall,
        )

    @property
    def import_url(self) -> str:
        return paths_of(self._settings.data_dir).import_url(self._settings.imports.root)

    async def start(self) -> None:
        """Return when others can reach this process; its roles join in the background."""
        await self.peers.start()
        await self._server.start()
        self._background = [asyncio.create_task(self.roles.start_when_possible(), name="roles")]
        if "proxy" in self._handles:
            self._background.append(asyncio.create_task(self._growing_watch.run(), name="growing data"))

    async def stop(self) -> None:
        await cancel_and_wait(*self._background)
        await self._hand_over()
        await self.roles.stop()
        await self._server.stop()
        await self.peers.stop()
        await self._connections.close()
        self._threads.shutdown()
        await asyncio.to_thread(self.recall.close)
        self._read_threads.shutdown()

    async def _hand_over(self) -> None:
        """Have other query nodes take over what this process serves, if there are any."""
        if "querynode" not in self._handles or not self.roles.is_running("querynode"):
            return
        node_id, timeout_s = self.roles.node_id("querynode"), self._settings.querynode.hand_over_s
        if self.peers.infos("querycoord") and self.peers.infos("querynode").keys() - {node_id}:
            await hand_over(self.query.leave, node_id, timeout_s)

    # what roles need from the process

    def _fleet(self, querycoord: NodeID) -> ChannelFleet:
        nodes = self.peers.nodes("querynode", QueryNodeApi, timeout_s=None, issued_by=querycoord)
        return ChannelFleet(
            lambda: nodes, self._services.channels, querycoord, labels=lambda: self.peers.labels("querynode")
        )

    def current_proxy(self) -> Proxy:
        proxy = self._handles["proxy"].instance
        if proxy is None:
            why = self.roles.why_not("proxy")
            raise NotReady(f"the proxy has not joined the cluster yet{why and f': {why}'}; retry")
        return cast(Proxy, proxy)

    def _current_fan_out(self) -> FanOut:
        if self._fan_out is None:
            raise NotReady("the proxy has not joined the cluster yet; retry")
        return self._fan_out

    # what it reports

    def growing_bytes(self) -> int:
        """Return the growing data of the query node that has the most, about a second old."""
        return self._growing_watch.latest.total_bytes

    def pressure(self) -> Pressure:
        """Backpressure by growing data, and by the disk of objects that are in a directory. The services
        refuse writes themselves when their disks are full."""
        disk = FreeDisk(directories_of([self._settings.storage.url]))
        return self._builders.pressure(lambda: self._growing_watch.latest, disk.free_bytes)

    def elsewhere(self) -> list[RoleStatus]:
        """Return the roles of other processes, and the coordinators that are missing."""
        return self.peers.elsewhere(self.address)

    def components(self) -> list[ComponentView]:
        """Return every node of the cluster, and the coordinators that are missing."""
        there = [
            ComponentView(node_id, role, healthy=True)
            for role in (*COORDINATORS, *NODES)
            for node_id in sorted(self.peers.infos(role))
        ]
        missing = self.peers.missing_coordinators()
        return [*there, *(ComponentView(NodeID(0), role, healthy=False) for role in missing)]

    # roles of this process

    def _interfaces(self, roles: tuple[str, ...]) -> list[tuple[type[Any], Any]]:
        """Return the interfaces that this process serves to the others."""
        found: list[tuple[type[Any], Any]] = [
            (api, local_client(self._handles[role], api)) for role in roles for api in _INTERFACES[role]
        ]
        if "proxy" in roles:
            found.append((ReadPayloads, _Payloads(self._current_fan_out, self._handles["proxy"])))
        if self._pipeline is not None:
            found += self._pipeline.interfaces(self._handles["datanode"])
        return found

    def _add_roles(self) -> None:
        make = self._builders
        builders: dict[str, Callable[[Session], Role]] = {
            "rootcoord": make.rootcoord,
            "datacoord": make.datacoord,
            "indexcoord": make.indexcoord,
            "querycoord": make.querycoord,
            "querynode": self._build_querynode,
            "proxy": self._build_proxy,
            "datanode": self._build_datanode,
        }
        for role, handle in self._handles.items():
            stands_by = role in COORDINATORS
            join = partial(make.elect if stands_by else make.register, role, self.address)
            self.roles.add(
                handle,
                partial(self._join, join),
                builders[role],
                stands_by=stands_by,
                waits_for=partial(self.peers.why_not, "rootcoord") if role == "proxy" else str,
            )

    async def _join(self, join: Callable[[], Awaitable[Session]]) -> Session:
        """Join a cluster whose metadata is that of the objects: etcd may have come back with other data.

        It is compared again after the wait for an election.
        """
        identity = self._services.identity
        await identity.check()
        session = await join()
        try:
            await identity.check()
        except BaseException:
            await session.close()
            raise
        self.peers.end_with_record(session)
        return session

    def _build_querynode(self, session: Session) -> QueryNode:
        reads = ChannelReads(self._services.channels, self._payloads.__getitem__, self._offload_read)
        return self._builders.querynode(session.node_id, reads)

    async def _offload_read(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._read_threads, function, *args)

    def _build_proxy(self, session: Session) -> Proxy:
        self._fan_out = FanOut(
            session.node_id,
            f"results-{session.node_id}-{uuid.uuid4().hex[:8]}",
            self._services.channels,
            self.query,
            self._settings.proxy.read_timeout_s,
            self._query_nodes,
        )
        stamps = RemoteStamps(self.root.alloc_timestamp, self._settings.proxy.read_timeout_s)
        return self._builders.proxy(session, self._fan_out, stamps)

    def _build_datanode(self, session: Session) -> Role:
        assert self._pipeline is not None, "the role datanode was given no pipeline"
        return self._pipeline.build(self, session)


class _Payloads:
    """Implements `ReadPayloads` for the proxy instance that is currently running as role ``proxy``."""

    def __init__(self, current: Callable[[], FanOut], proxy: LocalRole) -> None:
        self._current = current
        self._proxy = proxy

    def meant_for(self, node_id: NodeID) -> _Payloads:
        """Implements `elanus.rpc.carrier.Addressed`: a new instance numbers its reads from 1 again."""
        self._proxy.check(node_id)
        return self

    async def fetch_read(self, request_id: int) -> bytes:
        return await self._current().fetch_read(request_id)

    async def give_answer(self, request_id: int, node_id: NodeID, answer: bytes) -> None:
        await self._current().give_answer(request_id, node_id, answer)
