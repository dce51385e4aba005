"""How each role is built: the one place that knows, for the standalone server and for cluster processes.

A role has the same parts in both; its dependencies differ (`RoleDependencies`): which log, which
metadata, and whether its peers are in the same process or reached over the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from elanus.api.datanode import DataNodeApi, DataNodePorts
from elanus.api.gc import SweeperApi
from elanus.api.imports import ImportNodeApi
from elanus.api.indexnode import IndexNodeApi
from elanus.api.pipeline import PipelineApi
from elanus.api.proxy import ProxyApi
from elanus.api.serving import MirrorNode
from elanus.core.clock import SystemClock
from elanus.core.errors import NotReady
from elanus.core.ids import NodeID
from elanus.core.jobs import JobEntry
from elanus.core.nodes import Nodes
from elanus.core.offload import Pools
from elanus.core.timestamps import Timestamp
from elanus.datacoord.collecting import GcPorts
from elanus.datacoord.coord import DataCoord, DataDependencies
from elanus.datacoord.ledger import JobLedger
from elanus.indexcoord.builds import IndexPolicy
from elanus.indexcoord.coord import IndexCoord
from elanus.indexcoord.state import IndexState
from elanus.log.port import Appender, FencingLog, Log
from elanus.log.shared_reader import LogSource
from elanus.meta.election import FencedMeta, elect
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.port import MetaStore
from elanus.meta.session import Session
from elanus.proxy.role.measures import Measures
from elanus.proxy.role.proxy import Coordinators, Proxy
from elanus.proxy.role.read_path import ReadNodes
from elanus.proxy.role.stamps import Stamps
from elanus.proxy.verbs.pressure import GrowingData, Pressure
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.loader import QueryDependencies
from elanus.querycoord.state import LoadState
from elanus.querynode.node import ChannelReads, QueryNode
from elanus.querynode.recall import RecallSampler
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.local_port import LocalPort
from elanus.rpc.remote import Peer
from elanus.server.growing_watch import GrowingWatch
from elanus.server.import_served import ServedImports
from elanus.server.policies import (
    data_policy,
    idle_tick_ms,
    ledger_policy,
    pressure_limits,
    proxy_policy,
    query_node_policy,
)
from elanus.server.settings import Settings
from elanus.storage.port import ObjectStore

Api = TypeVar("Api")
_SCRATCH = "querynode"
"""The directory of the main process's query node."""
_SLOW_TO_MOVE = frozenset({"querynode", "datanode"})
"""Roles whose nodes hold a share of the data that others would have to reload or rebuild. In a cluster a
`LeaseKeeper` renews their leases. The other roles renew theirs on their event loops: nobody waits for a lost
proxy or coordinator longer than its lease."""
_ORDER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class RoleDependencies:
    """The stores and peers that the roles of a process share.

    ``data_nodes`` and ``query_nodes`` return the nodes that a coordinator with the given session commands:
    the data nodes that have a session (`data_node_ports`), and the query nodes. ``dial`` connects to the
    address of an index node, or of a process that runs jobs. ``job_ended`` is called at the end of every
    Spark job, for the metrics. ``leases`` renews the leases of the roles in `_SLOW_TO_MOVE`. ``caches``: the
    proxies whose caches must be invalidated, where these are more than the ``proxies`` that write; with them
    ``mirrors`` returns the nodes of serving processes that querycoord with that session commands.
    """

    settings: Settings
    clock: SystemClock
    meta: MetaStore
    log: Log
    store: ObjectStore
    pools: Pools
    scratch: Path
    measures: Measures
    coordinators: Coordinators
    proxies: Nodes[ProxyApi]
    query_nodes: Callable[[NodeID], Fleet]
    data_nodes: Callable[[NodeID], Nodes[DataNodePorts]]
    job_ended: Callable[[JobEntry], None]
    dial: Callable[[str], RpcChannel | LocalPort]
    leases: LeaseKeeper | None = None
    recall: RecallSampler | None = None
    caches: Nodes[ProxyApi] | None = None
    mirrors: Callable[[NodeID], Nodes[MirrorNode]] | None = None


def recall_sampler(settings: Settings) -> RecallSampler:
    """Return what measures the recall of the searches of this process's query node."""
    node = settings.querynode
    return RecallSampler(node.recall_cpu_percent / 100, node.recall_target)


def data_node_ports(address: str, peer: RpcChannel | LocalPort | Peer, datacoord: NodeID) -> DataNodePorts:
    """Return the clients by which the datacoord with that session reaches the data node at an address.

    Calls that wait for a job have no timeout.
    """
    return DataNodePorts(
        address,
        peer.client(DataNodeApi, _ORDER_TIMEOUT_S, issued_by=datacoord),
        peer.client(ImportNodeApi, None, issued_by=datacoord),
        peer.client(SweeperApi, None, issued_by=datacoord),
    )


class Builders:
    """Builds roles. Every method that returns a role returns a new instance, not started yet."""

    def __init__(self, needs: RoleDependencies) -> None:
        self._needs = needs
        self._oracle: TimestampOracle | None = None

    def stamp(self) -> Timestamp:
        """Return a new timestamp of the root coordinator built here. Thread-safe. Raises `NotReady`."""
        oracle = self._oracle
        if oracle is None:
            raise NotReady("rootcoord is not running; retry when it is back")
        return oracle.allocate()

    # how a role joins

    async def register(self, role: str, address: str) -> Session:
        """Register this process as a node of a role."""
        needs = self._needs
        return await Session.register(
            needs.meta,
            role,
            address,
            ttl_s=needs.settings.session.ttl_s,
            monotonic_s=needs.clock.elapsed_s,
            keeper=self._keeper(role),
            labels=needs.settings.cluster.node_labels,
        )

    async def elect(self, role: str, address: str) -> Session:
        """Wait until this process is the active one of a coordinator role."""
        needs = self._needs
        return await elect(
            needs.meta,
            role,
            address,
            ttl_s=needs.settings.session.ttl_s,
            monotonic_s=needs.clock.elapsed_s,
            keeper=self._keeper(role),
        )

    def _keeper(self, role: str) -> LeaseKeeper | None:
        return self._needs.leases if role in _SLOW_TO_MOVE else None

    # how a role is built

    def _orders_to(
        self, api: type[Api], session: Session, timeout_s: float | None = 30.0
    ) -> Callable[[str], Api]:
        """Return a factory of node clients by address, for a coordinator's orders (`elanus.api.fencing`)."""
        dial = self._needs.dial
        return lambda address: dial(address).client(api, timeout_s, issued_by=session.node_id)

    def rootcoord(self, session: Session) -> RootCoord:
        needs, settings = self._needs, self._needs.settings.rootcoord
        meta = FencedMeta(needs.meta, session)
        self._oracle = TimestampOracle(
            meta, needs.clock, window_ms=settings.tso_window_ms, update_ms=settings.tso_update_ms
        )
        return RootCoord(
            session,
            meta,
            needs.log,
            self._oracle,
            needs.coordinators.data,
            needs.coordinators.index,
            needs.coordinators.query,
            needs.proxies,
            caches=needs.caches,
            pchannels_max=settings.dml_channel_num,
            idle_tick_ms=idle_tick_ms(needs.settings.proxy),
            users_max=settings.users_max,
            roles_max=settings.roles_max,
            accept_log_until_ms=settings.accept_log_until_ms,
        )

    def datacoord(self, session: Session) -> DataCoord:
        needs = self._needs
        meta, peers = FencedMeta(needs.meta, session), needs.coordinators
        dependencies = DataDependencies(
            lease=session,
            meta=meta,
            store=needs.store,
            log=needs.log,
            clock=needs.clock,
            rootcoord=peers.root,
            proxies=needs.proxies,
            data_nodes=needs.data_nodes(session.node_id),
            gc=GcPorts(peers.index, peers.query, needs.pools.files, needs.pools.delta_logs),
            ledger=self._job_ledger(meta, session),
            import_served=ServedImports(peers.data, peers.index, peers.query, peers.root).is_served,
        )
        return DataCoord(dependencies, data_policy(needs.settings))

    def _job_ledger(self, meta: MetaStore, session: Session) -> JobLedger:
        needs = self._needs
        client_of = self._orders_to(PipelineApi, session)
        return JobLedger(meta, needs.clock, client_of, ledger_policy(needs.settings), needs.job_ended)

    def indexcoord(self, session: Session) -> IndexCoord:
        needs = self._needs
        return IndexCoord(
            session,
            IndexState(FencedMeta(needs.meta, session)),
            needs.clock,
            needs.coordinators.root,
            needs.coordinators.data,
            needs.proxies if needs.caches is None else needs.caches,
            self._orders_to(IndexNodeApi, session, timeout_s=None),
            IndexPolicy(rows_min=needs.settings.indexcoord.index_rows_min),
        )

    def querycoord(self, session: Session) -> QueryCoord:
        needs, peers = self._needs, self._needs.coordinators
        return QueryCoord(
            LoadState(FencedMeta(needs.meta, session)),
            QueryDependencies(
                peers.root,
                peers.data,
                peers.index,
                needs.query_nodes(session.node_id),
                needs.proxies,
                None if needs.mirrors is None else needs.mirrors(session.node_id),
            ),
        )

    def querynode(
        self,
        node_id: NodeID,
        channel_reads: ChannelReads | None = None,
    ) -> QueryNode:
        """``channel_reads``: for a node in another process than its proxies."""
        needs = self._needs
        return make_query_node(
            needs.settings,
            node_id,
            needs.log,
            needs.store,
            needs.pools,
            needs.scratch / _SCRATCH,
            recall=needs.recall,
            channel_reads=channel_reads,
        )

    def proxy(self, session: Session, nodes: ReadNodes, stamps: Stamps) -> Proxy:
        """``nodes`` answers reads."""
        needs = self._needs
        log: Appender = needs.log
        if isinstance(needs.log, FencingLog):
            log = needs.log.appender(session.node_id, session.confirm_in_store)
        return Proxy(
            session,
            needs.coordinators,
            nodes,
            log,
            stamps,
            needs.pools.encoding,
            proxy_policy(needs.settings),
            needs.measures,
            live_proxies=lambda: len(needs.proxies),
        )

    def growing_watch(self) -> GrowingWatch:
        needs = self._needs
        soft_bytes = pressure_limits(needs.settings).growing_soft_bytes
        return GrowingWatch(needs.coordinators.query, needs.coordinators.data, soft_bytes)

    def pressure(self, growing: Callable[[], GrowingData], disk_free_bytes: Callable[[], int]) -> Pressure:
        needs = self._needs
        return Pressure(pressure_limits(needs.settings), growing, disk_free_bytes, time.sleep, needs.measures)


def make_query_node(
    settings: Settings,
    node_id: NodeID,
    log: LogSource,
    store: ObjectStore,
    pools: Pools,
    scratch: Path,
    *,
    recall: RecallSampler | None = None,
    channel_reads: ChannelReads | None = None,
) -> QueryNode:
    """Several processes that load the same segments map the same files, and so have them in memory once.

    They share columns in the directory of the main process, which empties it when it starts.
    """
    is_one_of_several = settings.proxy.processes_wanted > 1 and channel_reads is None
    policy = query_node_policy(settings, scratch.with_name(_SCRATCH) if is_one_of_several else None)
    return QueryNode(
        node_id, log, store, pools, scratch=scratch, policy=policy, channel_reads=channel_reads, recall=recall
    )
