"""The data coordinator role.

It allocates rows in segments, seals segments (full, old, idle, for memory, or because a client flushes),
orders the flush of a sealed segment once its data node's tick has passed the seal, has segments compacted,
and makes every commit: nothing else moves a vchannel's checkpoint or changes a segment's manifest.

This module puts the role together. Each part answers its own calls (`DataCoord.parts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from elanus.api.backups import BackupCalls
from elanus.api.connector import SnapshotApi
from elanus.api.datacoord import (
    AllocationCalls,
    ChangeCalls,
    ChannelCalls,
    CheckpointCalls,
    CompactionCalls,
    DataNodeCalls,
    FlushCalls,
    ImportCalls,
    MemoryCalls,
    RegistrationCalls,
)
from elanus.api.datanode import DataNodePorts
from elanus.api.gc import GcCalls
from elanus.api.ledger import JobLedgerApi
from elanus.api.proxy import ProxyApi
from elanus.api.recovery import SegmentCalls
from elanus.api.rootcoord import RootCoordApi
from elanus.api.snapshots import SnapshotCalls
from elanus.api.storage_use import StorageCalls
from elanus.core.change import Changes
from elanus.core.clock import Clock
from elanus.core.imports import ImportPolicy, ImportTask
from elanus.core.lease import Lease
from elanus.core.nodes import Nodes
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.backups import Backups
from elanus.datacoord.checkpoints import Checkpoints
from elanus.datacoord.collecting import Collector, GcPorts, GcSchedule
from elanus.datacoord.commits import Commits
from elanus.datacoord.compaction_calls import Compactions
from elanus.datacoord.compactor import CompactionPolicy, Compactor
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.dropped_collections import DroppedCollections
from elanus.datacoord.flush_calls import RequestedFlushes
from elanus.datacoord.flushing import Flushing, FlushPolicy
from elanus.datacoord.import_queue import ImportQueue
from elanus.datacoord.ledger import JobLedger
from elanus.datacoord.log_holds import LogHolds
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.memory_pressure import MemoryPolicy, MemoryPressure
from elanus.datacoord.named_snapshots import NamedSnapshots
from elanus.datacoord.node_reports import NodeReports
from elanus.datacoord.pins import Pins
from elanus.datacoord.recovery_info import Recovery
from elanus.datacoord.rows_before import rows_before
from elanus.datacoord.segment_allocator import AllocationPolicy, SegmentAllocator
from elanus.datacoord.snapshots import Snapshots
from elanus.datacoord.state import DataState
from elanus.datacoord.storage_use import StorageUse
from elanus.datacoord.trimming import report_rewound, trim_log
from elanus.datacoord.vchannels import Vchannels
from elanus.log.port import Log
from elanus.meta.port import MetaStore
from elanus.meta.tasks import cancel_and_wait
from elanus.rpc.parts import Parts
from elanus.rpc.tracing import untraced
from elanus.storage.port import ObjectStore

_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class DataPolicy:
    """``trim_interval_s``: how often entries that are in binlogs are trimmed from the log.

    ``log_hold_s``: how long they are kept for a query node that makes no progress.
    """

    allocation: AllocationPolicy
    flush: FlushPolicy
    compaction: CompactionPolicy
    trim_interval_s: float
    log_hold_s: float
    gc: GcSchedule
    imports: ImportPolicy
    memory: MemoryPolicy


@dataclass(frozen=True, slots=True)
class DataDependencies:
    """The stores and peers of the role.

    ``lease``: this coordinator's own, which makes it the active one. ``offload`` runs blocking work off the
    event loop. ``data_nodes``: the nodes that have a session. ``import_served``: whether the segments of a
    committed import have everything that reads of them wait for.
    """

    lease: Lease
    meta: MetaStore
    store: ObjectStore
    log: Log
    clock: Clock
    rootcoord: RootCoordApi
    proxies: Nodes[ProxyApi]
    data_nodes: Nodes[DataNodePorts]
    gc: GcPorts
    ledger: JobLedger
    import_served: Callable[[ImportTask], Awaitable[bool]]


class DataCoord:
    """``parts``: the parts that implement `elanus.api.datacoord.DataCoordApi`,
    `elanus.api.connector.SnapshotApi` and `elanus.api.ledger.JobLedgerApi`."""

    def __init__(self, needs: DataDependencies, policy: DataPolicy) -> None:
        self._background: set[asyncio.Task[None]] = set()
        self._context = context = _context(needs, policy, self._spawn)
        flushing = Flushing(context.state, context.allocator, needs.rootcoord, needs.proxies, policy.flush)
        dead_rows = DeadRows(needs.store, needs.gc.offload_deltas)
        retention_s = policy.compaction.plan.retention_s
        self._log = needs.log
        self._trim_interval_s = policy.trim_interval_s
        self._log_holds = LogHolds(needs.clock, policy.log_hold_s)
        self._ledger = needs.ledger
        self._datanodes = DataNodes(context, flushing, needs.data_nodes)
        self._pins = Pins(context)
        self._snapshots = Snapshots(context, self._datanodes, self._pins, needs.gc.index, retention_s)
        self._imports = ImportQueue(
            context,
            self._datanodes,
            needs.ledger,
            needs.import_served,
            policy.imports,
            partial(rows_before, self._snapshots, context.manifests),
        )
        self._collector = Collector(context, self._datanodes, self._pins, needs.gc, policy.gc)
        self._compactor = Compactor(context, self._datanodes, dead_rows, policy.compaction)
        self._memory = MemoryPressure(context, flushing, needs.gc.query, policy.memory)
        self._seals_for_memory = policy.memory.growing_soft_bytes > 0
        self.parts = Parts()
        self._add_parts(needs, policy, flushing)

    def _add_parts(self, needs: DataDependencies, policy: DataPolicy, flushing: Flushing) -> None:
        """Say which part answers which calls. Some parts do nothing else."""
        context, datanodes, compactor = self._context, self._datanodes, self._compactor
        dropped = DroppedCollections(needs.meta, policy.gc.policy)
        named = NamedSnapshots(
            context,
            self._snapshots,
            self._pins,
            needs.gc.index,
            dropped,
            policy.gc.policy,
            policy.compaction.plan.retention_s,
        )
        commits = Commits(context, datanodes, needs.log)
        add = self.parts.add
        add(AllocationCalls, context.allocator)
        add(ChannelCalls, Vchannels(context, datanodes, compactor, dropped))
        add(FlushCalls, RequestedFlushes(context, flushing))
        add(SegmentCalls, Recovery(context, self._log_holds))
        add(ChangeCalls, context.changes)
        add(RegistrationCalls, datanodes)
        add(DataNodeCalls, NodeReports(context, datanodes, flushing, commits, compactor))
        add(CompactionCalls, Compactions(context, datanodes, flushing, compactor))
        add(ImportCalls, self._imports)
        add(GcCalls, self._collector)
        add(MemoryCalls, self._memory)
        add(StorageCalls, StorageUse(context.state))
        add(CheckpointCalls, Checkpoints(context, datanodes, needs.log))
        add(SnapshotApi, self._snapshots)
        add(SnapshotCalls, named)
        add(BackupCalls, Backups(context, self._pins, named, needs.store, needs.gc.offload))
        add(JobLedgerApi, self._ledger)

    async def start(self) -> None:
        await self._context.state.start()
        report_rewound(self._context.state, self._log)
        await self._context.allocator.restart()
        await self._ledger.start()
        self._datanodes.start(self._imports, self._collector, self._compactor)
        self._spawn(self._trim_loop())
        self._imports.start()
        self._spawn(self._ledger.keep())
        self._pins.start()
        self._spawn(self._collector.run())
        if self._seals_for_memory:
            self._spawn(self._memory.run())
        self._spawn(self._compactor.run())

    async def stop(self) -> None:
        self._datanodes.stop()
        await cancel_and_wait(*self._background)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = untraced(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _trim_loop(self) -> None:
        while True:
            await asyncio.sleep(self._trim_interval_s)
            try:
                held = self._log_holds.lowest()
                await trim_log(self._context.state, self._log, self._context.rootcoord, held)
            except Exception:  # noqa: BLE001 - the next round may succeed, and without rounds the log only grows
                _log.exception("log not trimmed")


def _context(
    needs: DataDependencies, policy: DataPolicy, spawn: Callable[[Coroutine[Any, Any, None]], None]
) -> DataContext:
    """Return what the parts share. ``spawn``: see `DataContext`."""
    manifests = Manifests(needs.store, needs.gc.offload)
    state, lock = DataState(needs.meta, manifests), asyncio.Lock()
    return DataContext(
        lease=needs.lease,
        state=state,
        store=needs.store,
        manifests=manifests,
        allocator=SegmentAllocator(state, needs.rootcoord, policy.allocation, needs.lease, lock),
        attempts=Attempts(needs.rootcoord, needs.clock, policy.gc.policy.commit_deadline_s),
        rootcoord=needs.rootcoord,
        clock=needs.clock,
        lock=lock,
        changes=Changes(needs.clock.wall_ms()),
        spawn=spawn,
        offload=needs.gc.offload,
    )
