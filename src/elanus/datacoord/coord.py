"""The data coordinator role.

It hands out quota, seals segments (full, old, idle, or because a client flushes), orders the flush of a
sealed segment once its data node's tick has passed the seal, has segments compacted, and makes every
commit: the only hand that moves a vchannel's checkpoint or a segment's manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from elanus.core.catalog import Collection
from elanus.core.change import Changes
from elanus.core.channels import pchannel_of
from elanus.core.errors import CollectionNotFound, ElanusError
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask, with_progress
from elanus.core.jobs import JobEntry
from elanus.core.lease import Lease
from elanus.core.nodes import Nodes
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.world import Clock
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.collecting import Collector, CollectorDesks, GcPorts, GcSchedule
from elanus.datacoord.commits import Commits
from elanus.datacoord.compaction_calls import CompactionCalls
from elanus.datacoord.compactor import CompactionPolicy, Compactor
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.flushing import Flushing, FlushPolicy
from elanus.datacoord.imports import ImportDesks, Imports, ImportSetup
from elanus.datacoord.ledger import JobLedger
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.planner import Planner
from elanus.datacoord.quota import QuotaDesk, QuotaPolicy
from elanus.datacoord.snapshots import Snapshots
from elanus.datacoord.state import DataState, Vchannel
from elanus.datacoord.trimming import trim_log
from elanus.log.port import Log
from elanus.rpc.connector import SnapshotLease
from elanus.rpc.datacoord import (
    DataNodeRegistration,
    DataNodeTick,
    FlushOutcome,
    Quota,
    QuotaRequest,
    RangeCommit,
    RecoveryInfo,
    VchannelRecovery,
)
from elanus.rpc.datanode import DataNodePorts
from elanus.rpc.fencing import while_active
from elanus.rpc.gc import GcStatus
from elanus.rpc.imports import ImportRequest
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.rootcoord import RootCoordApi
from elanus.rpc.tracing import untraced

_HURRY_S = 5.0
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class DataPolicy:
    """``trim_interval_s``: how often what is in binlogs is let go from the log."""

    quota: QuotaPolicy
    flush: FlushPolicy
    compaction: CompactionPolicy
    trim_interval_s: float
    gc: GcSchedule


class DataCoord(CompactionCalls):
    """Implements `elanus.rpc.datacoord.DataCoordApi`, `elanus.rpc.connector.SnapshotApi` and
    `elanus.rpc.ledger.JobLedgerApi`.

    ``lease``: its own, as the active one. ``data_nodes``: those that have a session.
    """

    def __init__(
        self,
        lease: Lease,
        state: DataState,
        manifests: Manifests,
        dead_rows: DeadRows,
        log: Log,
        clock: Clock,
        rootcoord: RootCoordApi,
        proxies: Nodes[ProxyApi],
        data_nodes: Nodes[DataNodePorts],
        gc: GcPorts,
        policy: DataPolicy,
        imports: ImportSetup,
        ledger: JobLedger,
    ) -> None:
        self._lease = lease
        self._state = state
        self._ledger = ledger
        self._manifests = manifests
        self._log = log
        self._rootcoord = rootcoord
        self._policy = policy
        self._desk = QuotaDesk(state, rootcoord, policy.quota)
        self._flushing = Flushing(state, self._desk, rootcoord, proxies, policy.flush)
        self._attempts = Attempts(rootcoord, clock, policy.gc.policy.commit_deadline_s)
        self._commits = Commits(state, manifests, log, self._desk, self._attempts)
        self._changes = Changes(clock.wall_ms())
        self._lock = asyncio.Lock()
        self._datanodes = DataNodes(
            state, self._flushing, self._attempts, rootcoord, data_nodes, self._lock, self._spawn
        )
        desks = ImportDesks(state, manifests, self._desk, self._attempts, self._datanodes)
        self._imports = Imports(
            desks, rootcoord, clock, self._lock, self._changes.happened, self._spawn, imports
        )
        self._snapshots = Snapshots(state, manifests, rootcoord, clock, self._lock, self, self._spawn)
        self._collector = Collector(
            CollectorDesks(
                state,
                manifests,
                self._attempts,
                self._lock,
                self._snapshots.pinned_files,
                self._datanodes,
            ),
            rootcoord,
            gc,
            clock,
            policy.gc,
        )
        plan = policy.compaction.plan
        self._compactor = Compactor(
            state,
            manifests,
            Planner(state, manifests, dead_rows, self._attempts, rootcoord, clock, self._lock, plan),
            self._attempts,
            rootcoord,
            clock,
            self._lock,
            self._datanodes,
            policy.compaction,
        )
        self._background: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._state.start()
        await self._desk.restart()
        await self._ledger.start()
        self._datanodes.start(self._imports, self._collector, self._compactor)
        self._spawn(self._trim_loop())
        self._imports.start()
        self._spawn(self._ledger.keep())
        self._snapshots.start()
        self._spawn(self._collector.run())
        self._spawn(self._compactor.run())

    async def stop(self) -> None:
        self._datanodes.stop()
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = untraced(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # quota

    async def assign_quota(self, requests: tuple[QuotaRequest, ...]) -> tuple[Quota, ...]:
        """Room in a segment that is open is given without a transaction, which would tell that a successor is
        at work: one that has sealed it by now."""
        quotas: list[Quota] = []
        async with while_active(self._lease), self._lock:
            for request in requests:
                quotas += await self._desk.assign(request)
        return tuple(quotas)

    # collections come and go

    async def watch_channels(self, collection: Collection) -> None:
        async with self._lock:
            new = [
                Vchannel(name, collection.collection_id, collection.schema, start)
                for name, start in collection.starts.items()
                if self._state.vchannel(name) is None
            ]
            if not new or not await self._is_live(collection.collection_id):
                return
            await self._state.put(vchannels=self._datanodes.placed(new))
        self._changes.happened(collection.collection_id)
        self._datanodes.tell()

    async def _is_live(self, collection_id: CollectionID) -> bool:
        """Whether rootcoord still has the collection: the call may arrive late, or twice.

        Asked under the lock. A drop that rootcoord decides after its answer finds the vchannels here.
        """
        try:
            await self._rootcoord.collection_by_id(collection_id)
        except CollectionNotFound:
            return False
        return True

    async def holds_channels(self, collection_id: CollectionID) -> bool:
        async with while_active(self._lease):
            return bool(self._state.vchannels_of(collection_id))

    async def channel_owners(self) -> dict[str, NodeID]:
        return {v.vchannel: v.owner for v in self._state.vchannels() if not v.dropped}

    async def drop_collection(self, collection_id: CollectionID) -> None:
        async with self._lock:
            await self._compactor.cancel(collection_id, None)
            dropping = [
                replace(v, dropping=True) for v in self._state.vchannels_of(collection_id) if not v.dropping
            ]
            if dropping:
                await self._state.put(vchannels=dropping)
        self._changes.happened(collection_id)

    async def drop_partition(self, collection_id: CollectionID, partition_id: PartitionID) -> None:
        async with self._lock:
            await self._compactor.cancel(collection_id, partition_id)
            segments = [s for s in self._state.segments_of(collection_id) if s.partition_id == partition_id]
            await self._drop_segments(segments)
        self._changes.happened(collection_id)

    async def channel_dropped(self, epoch: int, vchannel: str) -> None:
        async with self._lock:
            known = self._state.vchannel(vchannel)
            if known is None or known.dropped:
                return  # said before
            self._datanodes.check_owner(vchannel, epoch)
            await self._drop_segments(self._state.segments_on(vchannel), known)
            self._desk.forget_vchannel(vchannel)
        self._changes.happened(known.collection_id)

    async def _drop_segments(self, segments: list[SegmentInfo], vchannel: Vchannel | None = None) -> None:
        """Mark segments dropped, and the vchannel with them."""
        now = await self._rootcoord.alloc_timestamp(1)
        dropped = [
            replace(s, state=SegmentState.DROPPED, dropped=now)
            for s in segments
            if s.state is not SegmentState.DROPPED
        ]
        ended = [] if vchannel is None else [replace(vchannel, dropping=True, dropped=now)]
        await self._state.put(dropped, ended)
        for segment in dropped:
            self._desk.forget(segment.segment_id)

    # flush (seed 1)

    async def flush(self, collection_id: CollectionID) -> FlushOutcome:
        """One that was replaced would find nothing to seal of what its successor has opened, and say so."""
        async with while_active(self._lease), self._lock:
            if not any(not v.dropping for v in self._state.vchannels_of(collection_id)):
                raise CollectionNotFound(f"collection not found[collection={collection_id}]")
            flush_ts = await self._rootcoord.alloc_timestamp(1)
            await self._flushing.seal_all(collection_id, flush_ts)
            segments = self._state.segments_of(collection_id)
        pchannels = tuple({pchannel_of(v.vchannel) for v in self._state.vchannels_of(collection_id)})
        self._spawn(self._hurry(pchannels, flush_ts))
        return FlushOutcome(
            sealed=tuple(
                s.segment_id for s in segments if s.state in (SegmentState.SEALED, SegmentState.FLUSHING)
            ),
            flushed=tuple(s.segment_id for s in segments if s.state is SegmentState.FLUSHED),
            flush_ts=flush_ts,
        )

    async def _hurry(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """Do not wait for the next tick interval: a client is waiting for the flush."""
        try:
            async with asyncio.timeout(_HURRY_S):
                await self._rootcoord.tick_now(pchannels, at_least)
        except (ElanusError, TimeoutError) as error:
            _log.info("no early tick", error=str(error))

    async def flush_finished(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...], flush_ts: Timestamp
    ) -> bool:
        done = (SegmentState.FLUSHED, SegmentState.DROPPED)
        async with while_active(self._lease):
            for segment_id in segment_ids:
                info = self._state.find_segment(segment_id)
                if info is not None and info.state not in done:
                    return False
            if flush_ts == NO_TIMESTAMP:
                return True
            return not any(
                s.created <= flush_ts and collection_id in (0, s.collection_id)
                for s in self._state.unflushed()
            )

    # segments

    async def segments(self, collection_id: CollectionID) -> tuple[SegmentInfo, ...]:
        found = self._state.segments_of(collection_id) if collection_id else self._state.segments()
        return tuple(self._with_seen_rows(s) for s in found)

    async def segments_by_id(self, segment_ids: tuple[SegmentID, ...]) -> tuple[SegmentInfo, ...]:
        found = (self._state.find_segment(segment_id) for segment_id in segment_ids)
        return tuple(self._with_seen_rows(s) for s in found if s is not None)

    def _with_seen_rows(self, info: SegmentInfo) -> SegmentInfo:
        return replace(info, rows=info.rows + self._desk.seen_rows(info))

    async def recovery_info(
        self, collection_id: CollectionID, held: tuple[SegmentID, ...] = ()
    ) -> RecoveryInfo:
        async with self._lock:
            vchannels = [v for v in self._state.vchannels_of(collection_id) if not v.dropping]
            if not vchannels:
                raise CollectionNotFound(f"collection not found[collection={collection_id}]")
            segments = self._state.segments_of(collection_id)
            flushed = [s for s in segments if s.state is SegmentState.FLUSHED]
            return RecoveryInfo(
                collection_id,
                tuple([await self._recovery(v, segments) for v in vchannels]),
                await self._manifests.of_segments(flushed),
                self._successors((*held, *(s.segment_id for s in segments))),
            )

    def _successors(self, asked: Iterable[SegmentID]) -> dict[SegmentID, SegmentID]:
        found = {}
        for segment_id in asked:
            info = self._state.find_segment(segment_id)
            if info is None or info.state is SegmentState.DROPPED:
                successor = self._state.successor(segment_id)
                found[segment_id] = SegmentID(0) if successor is None else successor.segment_id
        return found

    async def _recovery(self, vchannel: Vchannel, segments: list[SegmentInfo]) -> VchannelRecovery:
        own = [s for s in segments if s.vchannel == vchannel.vchannel]
        unflushed = [s for s in own if s.state not in (SegmentState.FLUSHED, SegmentState.DROPPED)]
        return VchannelRecovery(
            vchannel.vchannel,
            vchannel.checkpoint,
            await self._manifests.of_vchannel(vchannel),
            growing=await self._manifests.of_segments([s for s in unflushed if s.manifest]),
            excluded=tuple(s.segment_id for s in own if s.dropped > vchannel.checkpoint.ts),
        )

    async def wait_change(self, since: int, timeout_s: float) -> int:
        return await self._changes.wait(since, timeout_s)

    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        return self._changes.since(since)

    # the data nodes

    async def register_datanode(self, node_id: NodeID) -> DataNodeRegistration:
        return await self._datanodes.register(node_id)

    async def report_ticks(self, epoch: int, ticks: tuple[DataNodeTick, ...]) -> None:
        async with self._lock:
            node = self._datanodes.of_epoch(epoch)
            reported = self._datanodes.take(node, ticks)
            for tick in reported.values():
                self._desk.show_rows(tick.vchannel, tick.segment_rows)
            await self._flushing.seal_by_policy(reported)
            if empty := self._flushing.empty(reported):
                await self._drop_segments(empty)
                for collection_id in {s.collection_id for s in empty}:
                    self._changes.happened(collection_id)
            orders = await self._flushing.orders(reported)
        await self._datanodes.order(node, orders)

    async def open_attempts(self, epoch: int, count: int) -> int:
        async with self._lock:
            return await self._attempts.open(count, self._datanodes.of_epoch(epoch).epoch)

    async def close_attempts(self, attempts: tuple[int, ...]) -> None:
        for number in attempts:
            self._attempts.close(number)

    async def commit_range(self, commit: RangeCommit) -> None:
        try:
            async with self._lock:
                self._datanodes.check_owner(commit.vchannel, commit.epoch)
                await self._commits.commit(commit)
        finally:
            self._attempts.close(commit.attempt)
            if commit.segments or commit.flushed or commit.delta is not None:
                # Not for a checkpoint alone, as idle vchannels have: nothing to index or serve came of it.
                vchannel = self._state.vchannel(commit.vchannel)
                # also when this call was cancelled: it has committed all the same
                self._changes.happened(None if vchannel is None else vchannel.collection_id)
            if commit.flushed or commit.delta is not None:
                self._compactor.flushed()

    # imports

    async def start_import(self, request: ImportRequest) -> TaskID:
        return await self._imports.submit(request)

    async def import_task(self, task_id: TaskID) -> ImportTask:
        return with_progress(self._imports.task(task_id), await self._ledger.jobs())

    async def import_tasks(self, collection_id: CollectionID) -> tuple[ImportTask, ...]:
        jobs = await self._ledger.jobs()
        return tuple(with_progress(task, jobs) for task in self._imports.tasks(collection_id))

    async def cancel_import(self, task_id: TaskID) -> None:
        await self._imports.cancel(task_id)

    # the job ledger

    async def report_jobs(self, owner: str, address: str, entries: tuple[JobEntry, ...]) -> None:
        await self._ledger.report_jobs(owner, address, entries)

    async def jobs(self) -> tuple[JobEntry, ...]:
        return await self._ledger.jobs()

    async def job(self, job_id: str) -> JobEntry:
        return await self._ledger.job(job_id)

    async def cancel_job(self, job_id: str) -> None:
        await self._ledger.cancel_job(job_id)

    # snapshots

    async def take_snapshot(
        self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...], lease_ms: int
    ) -> SnapshotLease:
        return await self._snapshots.take(collection_id, partition_ids, lease_ms)

    async def release_snapshot(self, snapshot_id: int) -> None:
        await self._snapshots.release(snapshot_id)

    async def hurry(self, vchannels: list[Vchannel], at_least: Timestamp) -> None:
        self._spawn(self._hurry(tuple({pchannel_of(v.vchannel) for v in vchannels}), at_least))

    async def order(self, vchannel: str, at_least: Timestamp) -> bool:
        owner = self._datanodes.owner(vchannel)
        if owner is None or not self._datanodes.has_seen(vchannel, at_least):
            return False
        await self._datanodes.order(owner, {vchannel: ()})
        return True

    # garbage

    async def collect_garbage(self, delete: bool) -> None:
        self._collector.request(delete=delete)

    async def gc_status(self) -> GcStatus:
        return self._collector.status()

    # the log's beginning

    async def _trim_loop(self) -> None:
        while True:
            await asyncio.sleep(self._policy.trim_interval_s)
            try:
                await trim_log(self._state, self._log, self._rootcoord)
            except Exception:  # noqa: BLE001 - the next round may succeed, and without rounds the log only grows
                _log.exception("trimming the log failed")
