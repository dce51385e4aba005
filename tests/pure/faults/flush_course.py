"""A flush from its order to its commit, with a fault on the way; and what must be true at its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from fakes import (
    CID,
    DEFAULT,
    FakeIndexCoord,
    FakeNodes,
    FakeProxy,
    FakeQueryCoord,
    FakeRoot,
    collection,
    inline,
    settle,
)
from injected import Fault, FaultyStore, TaskLost, Victim
from rows import batch
from virtual_time import VirtualClock

from elanus.core.attempts import NO_ATTEMPT, number_in
from elanus.core.channels import pchannel_of
from elanus.core.compaction import CompactionThresholds
from elanus.core.gc import GcPolicy
from elanus.core.ids import NodeID, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, TimeTick
from elanus.core.sealing import SealPolicy
from elanus.core.segments import SegmentState
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
from elanus.datanode.flushes import SparkFlushes
from elanus.datanode.node import DataNode, DataNodePolicy
from elanus.log.codec import encode
from elanus.log.memory import MemoryLog
from elanus.log.port import Position
from elanus.meta.memory import MemoryMeta
from elanus.pipeline.port import JobFailed
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range
from elanus.rpc.datacoord import QuotaRequest, RangeCommit
from elanus.rpc.datanode import FlushReason
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import read_delta_log
from elanus.storage.objects import open_store

BATCHES, BATCH_ROWS, DELETED = 3, 10, 4
TRIES_MAX = 4
_POLICY = DataNodePolicy(50, 1000, 60_000, 60_000, 300_000, 1 << 30)
_NO_COMPACTION = CompactionPolicy(
    automatic=False,
    plan=PlanPolicy(CompactionThresholds(0.2, 1 << 20, 10), retention_s=0, plans_max=1),
    interval_s=60,
    timeout_s=60,
    orders_max=1,
)
_NO_GC = GcSchedule(GcPolicy(3600, 7200, 3600.0, 10_000), False, 3600.0, 1.0)
"""Orphans are counted here, not collected."""


@dataclass(frozen=True)
class Ending:
    """``keys``: what the manifests hold, as often as they hold it. ``orphans``: files that nothing names."""

    keys: Counter[int]
    deleted: Counter[int]
    flushed: bool
    orphans: tuple[str, ...]
    nameless: tuple[str, ...]
    """Orphans whose names do not say whose they are."""


class Jobs(SparkFlushes):
    """Runs the flush's own task code here and now; a lost task is run again, as Spark would."""

    def __init__(self, log: MemoryLog, root: Path, fault: Fault) -> None:
        super().__init__(None, "log", root.as_uri(), root / ".scratch")  # type: ignore[arg-type]
        self._log = log
        self._store = FaultyStore(root, fault)
        self._fault = fault
        self._scratch = root.parent / "scratch"
        self._scratch.mkdir(exist_ok=True)

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int) -> list[RangeOutcome]:
        return [await self._with_retries(plan) for plan in plans]

    async def _with_retries(self, plan: FlushPlan) -> RangeOutcome:
        for number in range(TRIES_MAX):
            try:
                return await self._task(plan, f"{plan.attempt}-{number}")
            except TaskLost:
                continue
            except OSError as error:
                raise JobFailed(str(error)) from error
        raise JobFailed("all tries are used up")

    async def _task(self, plan: FlushPlan, name: str) -> RangeOutcome:
        await self._fault.at("before read")
        entries = self._log.read_range(plan.pchannel, Position(plan.start.position), plan.stop)
        writes = list(writes_in_range(entries, plan))
        await self._fault.at("before write")
        outcome = write_range(plan, writes, self._store, self._scratch, name)
        await self._fault.at("after write")
        return outcome


class Connection:
    """Datacoord as a data node reaches it: the fault may strike on either side of a commit.

    ``is_first``: the node that the fault is meant for. While that one stands still it says nothing.
    """

    def __init__(self, coord: DataCoord, fault: Fault, *, is_first: bool) -> None:
        self._coord = coord
        self._fault = fault
        self._is_first = is_first

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            if self._is_first:
                await self._fault.stall()
            return await getattr(self._coord, name)(*arguments)

        return call

    async def commit_range(self, commit: RangeCommit) -> None:
        await self._fault.at("before commit")
        await self._coord.commit_range(commit)
        await self._fault.at("after commit")


class Course:
    def __init__(self, directory: Path, fault: Fault) -> None:
        self._fault = fault
        self._root_dir = directory / "files"
        self._root_dir.mkdir()
        self._collection = collection()
        self._root = FakeRoot(self._collection, now_ms=100_000)
        self._log = MemoryLog()
        self._nodes: dict[str, DataNode] = {}
        self._running: list[asyncio.Task[None]] = []
        self._coord = self._new_coord()

    def _new_coord(self) -> DataCoord:
        meta, clock = MemoryMeta(), VirtualClock()
        sealing = FlushPolicy(SealPolicy(0.75, age_s=36_000, idle_s=36_000), 1 << 30)

        async def is_served(_task: object) -> bool:
            return True

        return DataCoord(
            DataState(meta),
            Manifests(open_store(self._root_dir.as_uri()), inline),
            DeadRows(open_store(self._root_dir.as_uri()), inline),
            self._log,
            clock,
            self._root,  # type: ignore[arg-type]
            FakeNodes({NodeID(1): FakeProxy()}),
            lambda address: self._nodes[address],
            GcPorts(FakeIndexCoord(), FakeQueryCoord(), lambda address: None, inline),  # type: ignore[arg-type,return-value]
            DataPolicy(
                QuotaPolicy(1 << 20, 2000), sealing, _NO_COMPACTION, trim_interval_s=3600.0, gc=_NO_GC
            ),
            ImportSetup(lambda address: None, is_served, ImportPolicy(0, 0)),  # type: ignore[arg-type,return-value]
            JobLedger(meta, clock, lambda address: None, LedgerPolicy(9, 9.0)),  # type: ignore[arg-type,return-value]
        )

    async def run(self) -> Ending:
        """From the first row to the rest after the fault."""
        await self._coord.start()
        await self._coord.watch_channels(self._collection)
        first = self._start_node()
        await settle()
        segment = await self._write()
        await self._coord.flush(CID)
        await self._tick()
        await asyncio.wait_for(self._fault.struck.wait(), 120)
        if self._fault.victim is Victim.DRIVER:
            first.cancel()
        if self._fault.victim in (Victim.DRIVER, Victim.ZOMBIE):
            self._start_node()
        await self._until_flushed(segment)
        self._fault.go_on.set()
        await settle()
        first.cancel()  # two owners would take the vchannels from each other for ever
        await asyncio.sleep(5)
        ending = await self._ending(segment)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._coord.stop()
        return ending

    def _start_node(self) -> asyncio.Task[None]:
        number = len(self._nodes)
        address = f"unix:/node-{number}"
        jobs = Jobs(self._log, self._root_dir, self._fault)
        coord = Connection(self._coord, self._fault, is_first=number == 0)
        node = DataNode(NodeID(10 + number), address, self._log, coord, jobs, jobs, _POLICY)  # type: ignore[arg-type]
        self._nodes[address] = node
        self._running.append(asyncio.create_task(node.run()))
        return self._running[-1]

    async def _write(self) -> SegmentID:
        vchannel = self._collection.vchannels[0]
        request = QuotaRequest(CID, DEFAULT, vchannel, BATCHES * BATCH_ROWS)
        (quota,) = await self._coord.assign_quota((request,))
        for n in range(BATCHES):
            first = n * BATCH_ROWS
            message = InsertMessage(
                self._root.stamp(),
                vchannel,
                CID,
                DEFAULT,
                quota.segment_id,
                first,
                batch(self._collection, first, BATCH_ROWS),
            )
            await self._log.append(pchannel_of(vchannel), [encode(message)])
        keys = pa.array(range(DELETED))
        delete = DeleteMessage(self._root.stamp(), vchannel, CID, DEFAULT, keys)
        await self._log.append(pchannel_of(vchannel), [encode(delete)])
        return quota.segment_id

    async def _tick(self) -> None:
        tick = TimeTick(self._root.stamp(), 1)
        await self._log.append(pchannel_of(self._collection.vchannels[0]), [encode(tick)])

    async def _until_flushed(self, segment: SegmentID) -> None:
        for _ in range(600):
            (info,) = await self._coord.segments_by_id((segment,))
            if info.state is SegmentState.FLUSHED:
                return
            await self._tick()
            await asyncio.sleep(0.2)

    async def _ending(self, segment: SegmentID) -> Ending:
        store = open_store(self._root_dir.as_uri())
        recovery = await self._coord.recovery_info(CID)
        keys: Counter[int] = Counter()
        deleted: Counter[int] = Counter()
        named: set[str] = set()
        for manifest in recovery.flushed:
            keys.update(read_columns(store, manifest.insert_logs, ["pk"])["pk"].to_pylist())
            named |= {file.path for file in manifest.insert_logs} | set(manifest.stats_logs)
        for delta in recovery.vchannels[0].delta_logs:
            deleted.update(read_delta_log(store, delta.file)["PrimaryKey"].to_pylist())
            named.add(delta.file.path)
        binlogs = {o.path for kind in ("insert_log", "stats_log", "delta_log") for o in store.list(kind)}
        orphans = tuple(sorted(binlogs - named))
        nameless = tuple(o for o in orphans if number_in(Path(o).name) == NO_ATTEMPT)
        flushed = [m.segment_id for m in recovery.flushed] == [segment]
        return Ending(keys, deleted, flushed, orphans, nameless)
