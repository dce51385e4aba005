"""How each role is built: the one place that knows, for the standalone server and for cluster processes.

A role has the same parts in both; its dependencies differ (`RoleDependencies`): which log, which
metadata, and whether its peers are in the same process or reached over the network.
"""

from __future__ import annotations

import os
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
from elanus.core.compaction import CompactionThresholds
from elanus.core.embedding import PROVIDERS
from elanus.core.errors import NotReady
from elanus.core.gc import GcPolicy
from elanus.core.ids import NodeID
from elanus.core.imports import ImportPolicy
from elanus.core.jobs import JobEntry
from elanus.core.nodes import Nodes
from elanus.core.offload import Pools
from elanus.core.rate_limits import Rate
from elanus.core.requests import RequestLimits
from elanus.core.sealing import SealPolicy
from elanus.core.timestamps import Timestamp
from elanus.datacoord.collecting import GcPorts, GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataCoord, DataDependencies, DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.datacoord.memory_pressure import MemoryPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.segment_allocator import AllocationPolicy
from elanus.indexcoord.builds import IndexPolicy
from elanus.indexcoord.coord import IndexCoord
from elanus.indexcoord.state import IndexState
from elanus.log.port import Log
from elanus.log.shared_reader import LogSource
from elanus.meta.election import FencedMeta, elect
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.port import MetaStore
from elanus.meta.session import Session
from elanus.proxy.embedding import EmbeddingPolicy, ProviderAccess
from elanus.proxy.role.measures import Measures
from elanus.proxy.role.proxy import Coordinators, Proxy, ProxyPolicy
from elanus.proxy.role.read_path import ReadNodes
from elanus.proxy.role.stamps import Stamps
from elanus.proxy.verbs.pressure import GrowingData, Pressure, PressureLimits
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.loader import QueryDependencies
from elanus.querycoord.state import LoadState
from elanus.querynode.interim import InterimRules
from elanus.querynode.node import ChannelReads, QueryNode, QueryNodePolicy
from elanus.querynode.recall import RecallSampler
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.local_port import LocalPort
from elanus.rpc.remote import Peer
from elanus.server.growing_watch import GrowingWatch
from elanus.server.import_served import ServedImports
from elanus.server.settings import ProxySettings, RateLimitSettings, Settings
from elanus.server.settings_functions import FunctionSettings, ProviderSettings
from elanus.storage.port import ObjectStore

Api = TypeVar("Api")
_MB = 1024 * 1024
_SYNC_BYTES = 256 * _MB
_TRIM_INTERVAL_S = 10.0
_MEMORY_LOOK_S = 1.0
_GC_SETTLE_S = 5.0
_IDLE_TICK_MAX_MS = 1000
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


def _idle_tick_ms(settings: ProxySettings) -> int:
    """Half of the staleness that a Bounded read tolerates, so that it hardly ever has to request a tick."""
    return max(settings.time_tick_interval_ms, min(settings.graceful_time_ms // 2, _IDLE_TICK_MAX_MS))


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
            idle_tick_ms=_idle_tick_ms(needs.settings.proxy),
            users_max=settings.users_max,
            roles_max=settings.roles_max,
        )

    def datacoord(self, session: Session) -> DataCoord:
        needs, settings = self._needs, self._needs.settings.datacoord
        policy = DataPolicy(
            allocation=AllocationPolicy(
                settings.segment_size_max_mb * _MB, settings.assignment_expiration_ms
            ),
            flush=FlushPolicy(
                SealPolicy(settings.seal_proportion, settings.seal_age_s, settings.seal_idle_s), _SYNC_BYTES
            ),
            compaction=self._compaction_policy(),
            trim_interval_s=_TRIM_INTERVAL_S,
            log_hold_s=settings.log_hold_s,
            gc=self._gc_schedule(),
            imports=self._import_policy(),
            memory=MemoryPolicy(needs.settings.backpressure.growing_soft_mb * _MB, _MEMORY_LOOK_S),
        )
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
        return DataCoord(dependencies, policy)

    def _compaction_policy(self) -> CompactionPolicy:
        settings, retention_s = self._needs.settings.compaction, self._needs.settings.datacoord.retention_s
        thresholds = CompactionThresholds(
            settings.deleted_ratio,
            settings.deleted_mb * _MB,
            settings.merge_segments_min,
            settings.merge_delta_logs_min,
        )
        return CompactionPolicy(
            automatic=settings.enabled,
            plan=PlanPolicy(thresholds, retention_s, settings.plans_max),
            interval_s=settings.interval_s,
            timeout_s=settings.timeout_s,
            orders_max=settings.orders_max,
            clustering_timeout_s=settings.clustering_timeout_s,
        )

    def _gc_schedule(self) -> GcSchedule:
        settings = self._needs.settings.gc
        policy = GcPolicy(
            settings.drop_tolerance_s,
            settings.missing_tolerance_s,
            settings.commit_deadline_s,
            settings.record_retention_s,
        )
        return GcSchedule(policy, settings.enabled, settings.interval_s, _GC_SETTLE_S)

    def _import_policy(self) -> ImportPolicy:
        settings = self._needs.settings.imports
        return ImportPolicy(
            settings.tasks_max,
            round(settings.retention_s * 1000),
            round(settings.write_retention_s * 1000),
            settings.at_once,
            round(settings.timeout_s * 1000),
        )

    def _job_ledger(self, meta: MetaStore, session: Session) -> JobLedger:
        needs, settings = self._needs, self._needs.settings.datacoord
        return JobLedger(
            meta,
            needs.clock,
            self._orders_to(PipelineApi, session),
            LedgerPolicy(settings.jobs_max, settings.jobs_age_max_s),
            needs.job_ended,
        )

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
        return Proxy(
            session,
            needs.coordinators,
            nodes,
            needs.log,
            stamps,
            needs.pools.encoding,
            proxy_policy(needs.settings),
            needs.measures,
            live_proxies=lambda: len(needs.proxies),
        )

    def growing_watch(self) -> GrowingWatch:
        needs = self._needs
        soft_bytes = needs.settings.backpressure.growing_soft_mb * _MB
        return GrowingWatch(needs.coordinators.query, needs.coordinators.data, soft_bytes)

    def pressure(self, growing: Callable[[], GrowingData], disk_free_bytes: Callable[[], int]) -> Pressure:
        settings = self._needs.settings
        backpressure = settings.backpressure
        limits = PressureLimits(
            growing_soft_bytes=backpressure.growing_soft_mb * _MB,
            growing_hard_bytes=backpressure.growing_hard_mb * _MB,
            disk_reserve_bytes=backpressure.disk_reserve_mb * _MB,
            delayed_writers_max=backpressure.delayed_writers_max or max(1, settings.proxy.workers // 4),
        )
        return Pressure(limits, growing, disk_free_bytes, time.sleep, self._needs.measures)


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
    policy = QueryNodePolicy(
        search_threads=settings.querynode.search_threads or os.cpu_count() or 1,
        capacity_bytes=settings.querynode.memory_mb * _MB,
        interim=InterimRules(settings.querynode.interim_index_mb * _MB),
        shared=scratch.with_name(_SCRATCH) if is_one_of_several else None,
    )
    return QueryNode(
        node_id, log, store, pools, scratch=scratch, policy=policy, channel_reads=channel_reads, recall=recall
    )


def proxy_policy(settings: Settings) -> ProxyPolicy:
    """Return the policy of a proxy with these settings."""
    proxy = settings.proxy
    return ProxyPolicy(
        tick_interval_ms=proxy.time_tick_interval_ms,
        tasks_max=proxy.max_task_num,
        graceful_time_ms=proxy.graceful_time_ms,
        retention_s=settings.datacoord.retention_s,
        read_timeout_s=proxy.read_timeout_s,
        call_timeout_s=proxy.read_timeout_s,
        allocation_rows_min=settings.datacoord.allocation_rows_min,
        limits=RequestLimits(
            proxy.search_hits_max,
            proxy.answer_max_mb * _MB,
            proxy.delete_step_keys_max,
            proxy.segment_filter_ratio,
        ),
        root_password=proxy.initial_root_password,
        rates=_rates(settings.rate_limits),
        disk_max_bytes=settings.rate_limits.disk_max_mb * _MB or None,
        embedding=_embedding(settings.function),
    )


def _rates(settings: RateLimitSettings) -> dict[Rate, float]:
    """The rates that are limited, in bytes, query vectors or queries a second."""
    limits = {
        Rate.INSERT: settings.insert_max_mb_per_s * _MB,
        Rate.UPSERT: settings.upsert_max_mb_per_s * _MB,
        Rate.DELETE: settings.delete_max_mb_per_s * _MB,
        Rate.SEARCH: settings.search_max_vectors_per_s,
        Rate.QUERY: settings.query_max_per_s,
    }
    return {rate: limit for rate, limit in limits.items() if limit}


def _embedding(settings: FunctionSettings) -> EmbeddingPolicy:
    return EmbeddingPolicy(
        {name: _access(getattr(settings, name)) for name in PROVIDERS},
        settings.timeout_s,
        settings.calls_max,
        settings.texts_max,
        settings.client_endpoints,
    )


def _access(settings: ProviderSettings) -> ProviderAccess:
    return ProviderAccess(settings.url, settings.api_key.get_secret_value(), settings.api_key_file)
