"""How each role is made: the one place that knows, for the standalone and for the processes of a cluster.

What a role is made of is the same in both; what differs is what lies under it (`Ground`): which log, which
metadata, and whether its peers are reached in the process or over the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from elanus.core.compaction import CompactionThresholds
from elanus.core.errors import NotReady
from elanus.core.gc import GcPolicy
from elanus.core.ids import NodeID
from elanus.core.jobs import JobEntry
from elanus.core.nodes import Nodes
from elanus.core.sealing import SealPolicy
from elanus.core.timestamps import Timestamp
from elanus.core.world import SystemClock
from elanus.datacoord.collecting import GcPorts, GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataCoord, DataPolicy
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.imports import ImportPolicy, ImportSetup
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.quota import QuotaPolicy
from elanus.datacoord.state import DataState
from elanus.indexcoord.coord import IndexCoord, IndexPolicy
from elanus.indexcoord.state import IndexState
from elanus.log.port import Log
from elanus.meta.election import FencedMeta, elect
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.port import MetaStore
from elanus.meta.session import Session
from elanus.proxy.measures import Measures
from elanus.proxy.pressure import Pressure, PressureLimits
from elanus.proxy.proxy import Coordinators, Proxy, ProxyPolicy
from elanus.proxy.reads import Nodes as ReadNodes
from elanus.proxy.stamps import Stamps
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.loader import Peers
from elanus.querycoord.state import LoadState
from elanus.querynode.node import QueryNode
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.datanode import DataNodeApi, DataNodePorts
from elanus.rpc.gc import SweeperApi
from elanus.rpc.imports import ImportNodeApi
from elanus.rpc.indexnode import IndexNodeApi
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.querychannel import QueryChannels, ReadPayloads
from elanus.rpc.remote import Peer
from elanus.server.import_served import ServedImports
from elanus.server.settings import Settings
from elanus.storage.port import ObjectStore

Api = TypeVar("Api")
_MB = 1024 * 1024
_SYNC_BYTES = 256 * _MB
_TRIM_INTERVAL_S = 10.0
_GC_SETTLE_S = 5.0
_SLOW_TO_MOVE = frozenset({"querynode", "datanode"})
"""Roles whose nodes carry a share that others would have to load or make again. The leases of the others are
renewed by their loops: nobody waits for a proxy or a coordinator longer than its lease."""
_ORDER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Ground:
    """What the roles of a process stand on.

    ``data_nodes`` and ``query_nodes`` make what a coordinator with that session commands: the data nodes that
    have a session (`data_node_ports`), and the query nodes. ``dial`` connects to the address of an index
    node, or of a process that runs jobs. ``job_ended`` hears of the end of every Spark job, for the metrics.
    ``leases`` renews those of nodes whose share is slow to move.
    """

    settings: Settings
    clock: SystemClock
    meta: MetaStore
    log: Log
    store: ObjectStore
    offload: Callable[..., Coroutine[Any, Any, Any]]
    scratch: Path
    measures: Measures
    coordinators: Coordinators
    proxies: Nodes[ProxyApi]
    query_nodes: Callable[[NodeID], Fleet]
    data_nodes: Callable[[NodeID], Nodes[DataNodePorts]]
    job_ended: Callable[[JobEntry], None]
    dial: Callable[[str], RpcChannel]
    leases: LeaseKeeper | None = None


def data_node_ports(address: str, peer: RpcChannel | Peer, datacoord: NodeID) -> DataNodePorts:
    """How the datacoord with that session reaches the data node at an address. Jobs that are waited for may
    take their time."""
    return DataNodePorts(
        address,
        peer.client(DataNodeApi, _ORDER_TIMEOUT_S, issued_by=datacoord),
        peer.client(ImportNodeApi, None, issued_by=datacoord),
        peer.client(SweeperApi, None, issued_by=datacoord),
    )


class Builders:
    """Every method makes a fresh instance of a role, which is to be started."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._oracle: TimestampOracle | None = None

    def stamp(self) -> Timestamp:
        """A fresh timestamp of the root coordinator made here, from any thread. Raises `NotReady`."""
        oracle = self._oracle
        if oracle is None:
            raise NotReady("rootcoord is not running; retry when it is back")
        return oracle.allocate()

    # how a role joins

    async def register(self, role: str, address: str) -> Session:
        """Be one of the nodes of a role."""
        ground = self._ground
        return await Session.register(
            ground.meta,
            role,
            address,
            ttl_s=ground.settings.session.ttl_s,
            monotonic_s=ground.clock.elapsed_s,
            keeper=self._keeper(role),
        )

    async def elect(self, role: str, address: str) -> Session:
        """Stand by until this process is the active one of a coordinator's role."""
        ground = self._ground
        return await elect(
            ground.meta,
            role,
            address,
            ttl_s=ground.settings.session.ttl_s,
            monotonic_s=ground.clock.elapsed_s,
            keeper=self._keeper(role),
        )

    def _keeper(self, role: str) -> LeaseKeeper | None:
        return self._ground.leases if role in _SLOW_TO_MOVE else None

    # how a role is made

    def _orders_to(
        self, api: type[Api], session: Session, timeout_s: float | None = 30.0
    ) -> Callable[[str], Api]:
        """Makes clients of nodes, by address, for a coordinator's orders (`elanus.rpc.fencing`)."""
        dial = self._ground.dial
        return lambda address: dial(address).client(api, timeout_s, issued_by=session.node_id)

    def rootcoord(self, session: Session) -> RootCoord:
        ground, settings = self._ground, self._ground.settings.rootcoord
        meta = FencedMeta(ground.meta, session)
        self._oracle = TimestampOracle(
            meta, ground.clock, window_ms=settings.tso_window_ms, update_ms=settings.tso_update_ms
        )
        return RootCoord(
            session,
            meta,
            ground.log,
            self._oracle,
            ground.coordinators.data,
            ground.coordinators.index,
            ground.coordinators.query,
            ground.proxies,
            pchannels_max=settings.dml_channel_num,
        )

    def datacoord(self, session: Session) -> DataCoord:
        ground, settings = self._ground, self._ground.settings.datacoord
        policy = DataPolicy(
            quota=QuotaPolicy(settings.segment_size_max_mb * _MB, settings.assignment_expiration_ms),
            flush=FlushPolicy(
                SealPolicy(settings.seal_proportion, settings.seal_age_s, settings.seal_idle_s), _SYNC_BYTES
            ),
            compaction=self._compaction_policy(),
            trim_interval_s=_TRIM_INTERVAL_S,
            gc=self._gc_schedule(),
        )
        meta = FencedMeta(ground.meta, session)
        return DataCoord(
            session,
            DataState(meta),
            Manifests(ground.store, ground.offload),
            DeadRows(ground.store, ground.offload),
            ground.log,
            ground.clock,
            ground.coordinators.root,
            ground.proxies,
            ground.data_nodes(session.node_id),
            GcPorts(ground.coordinators.index, ground.coordinators.query, ground.offload),
            policy,
            self._imports(),
            self._job_ledger(meta, session),
        )

    def _compaction_policy(self) -> CompactionPolicy:
        settings, retention_s = self._ground.settings.compaction, self._ground.settings.datacoord.retention_s
        thresholds = CompactionThresholds(
            settings.deleted_ratio, settings.deleted_mb * _MB, settings.merge_segments_min
        )
        return CompactionPolicy(
            automatic=settings.enabled,
            plan=PlanPolicy(thresholds, retention_s, settings.plans_max),
            interval_s=settings.interval_s,
            timeout_s=settings.timeout_s,
            orders_max=settings.orders_max,
        )

    def _gc_schedule(self) -> GcSchedule:
        settings = self._ground.settings.gc
        policy = GcPolicy(
            settings.drop_tolerance_s,
            settings.missing_tolerance_s,
            settings.commit_deadline_s,
            settings.record_retention_s,
        )
        return GcSchedule(policy, settings.enabled, settings.interval_s, _GC_SETTLE_S)

    def _imports(self) -> ImportSetup:
        settings, peers = self._ground.settings.imports, self._ground.coordinators
        return ImportSetup(
            ServedImports(peers.data, peers.index, peers.query).is_served,
            ImportPolicy(settings.tasks_max, round(settings.retention_s * 1000)),
        )

    def _job_ledger(self, meta: MetaStore, session: Session) -> JobLedger:
        ground, settings = self._ground, self._ground.settings.datacoord
        return JobLedger(
            meta,
            ground.clock,
            self._orders_to(PipelineApi, session),
            LedgerPolicy(settings.jobs_max, settings.jobs_age_max_s),
            ground.job_ended,
        )

    def indexcoord(self, session: Session) -> IndexCoord:
        ground = self._ground
        return IndexCoord(
            session,
            IndexState(FencedMeta(ground.meta, session)),
            ground.clock,
            ground.store,
            ground.offload,
            ground.coordinators.root,
            ground.coordinators.data,
            ground.proxies,
            self._orders_to(IndexNodeApi, session, timeout_s=None),
            IndexPolicy(rows_min=ground.settings.indexcoord.index_rows_min, builds_max=1),
        )

    def querycoord(self, session: Session) -> QueryCoord:
        ground, peers = self._ground, self._ground.coordinators
        return QueryCoord(
            LoadState(FencedMeta(ground.meta, session)),
            Peers(peers.root, peers.data, peers.index, ground.query_nodes(session.node_id), ground.proxies),
        )

    def querynode(
        self,
        node_id: NodeID,
        channels: QueryChannels | None = None,
        proxies: Callable[[NodeID], ReadPayloads] | None = None,
        offload_reads: Callable[..., Coroutine[Any, Any, Any]] | None = None,
    ) -> QueryNode:
        """``channels``, ``proxies``, ``offload_reads``: for a node that is not in its proxies' process."""
        ground = self._ground
        return QueryNode(
            node_id,
            ground.log,
            ground.store,
            ground.offload,
            scratch=ground.scratch / "querynode",
            search_threads=ground.settings.querynode.search_threads or os.cpu_count() or 1,
            capacity_bytes=ground.settings.querynode.memory_mb * _MB,
            channels=channels,
            proxies=proxies,
            offload_reads=offload_reads,
        )

    def proxy(self, session: Session, nodes: ReadNodes, stamps: Stamps) -> Proxy:
        """``nodes`` answers reads."""
        ground, settings = self._ground, self._ground.settings.proxy
        policy = ProxyPolicy(
            tick_interval_ms=settings.time_tick_interval_ms,
            tasks_max=settings.max_task_num,
            graceful_time_ms=settings.graceful_time_ms,
            retention_s=ground.settings.datacoord.retention_s,
            read_timeout_s=settings.read_timeout_s,
            call_timeout_s=settings.read_timeout_s,
            quota_rows=ground.settings.datacoord.allocation_rows_min,
        )
        return Proxy(
            session,
            ground.coordinators,
            nodes,
            ground.log,
            stamps,
            ground.offload,
            policy,
            ground.measures,
        )

    def pressure(self, growing_bytes: Callable[[], int], disk_free_bytes: Callable[[], int]) -> Pressure:
        backpressure = self._ground.settings.backpressure
        limits = PressureLimits(
            growing_soft_bytes=backpressure.growing_soft_mb * _MB,
            growing_hard_bytes=backpressure.growing_hard_mb * _MB,
            disk_reserve_bytes=backpressure.disk_reserve_mb * _MB,
        )
        return Pressure(limits, growing_bytes, disk_free_bytes, time.sleep, self._ground.measures)
