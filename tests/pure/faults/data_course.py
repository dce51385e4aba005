"""A data coordinator with its data nodes, over memory and a directory: what courses of several jobs share.

Nodes run the tasks' own code here and now. The fault is put into one kind of job; the others do their work
undisturbed.
"""

from __future__ import annotations

import asyncio
import os
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
    FakeLease,
    FakeNodes,
    FakeProxy,
    FakeQueryCoord,
    FakeRoot,
    inline,
)
from injected import Fault, FaultyStore, HeldStore, Victim, as_spark_does, no_fault
from rows import batch
from virtual_time import VirtualClock
from whole_coord import Coord

from elanus.api.datacoord import AllocationRequest, SegmentOutput
from elanus.api.datanode import CompactionOrder, DataNodePorts, FlushReason
from elanus.api.gc import GcReport, SweeperApi, SweepOrder, SweepOutcome
from elanus.api.imports import ImportNodeApi
from elanus.core.attempts import NO_ATTEMPT, number_in
from elanus.core.catalog import Collection
from elanus.core.channels import pchannel_of
from elanus.core.compaction import CompactionThresholds
from elanus.core.gc import GcPolicy
from elanus.core.ids import NodeID, PartitionID, SegmentID
from elanus.core.imports import ImportPolicy, ImportTask
from elanus.core.jobs import JobKind
from elanus.core.messages import DeleteMessage, InsertMessage, TimeTick
from elanus.core.sealing import SealPolicy
from elanus.core.segments import SegmentState
from elanus.datacoord.collecting import GcPorts, GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataCoord, DataDependencies, DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.memory_pressure import MemoryPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.segment_allocator import AllocationPolicy
from elanus.datanode.flushes import SparkFlushes
from elanus.datanode.node import DataNode
from elanus.datanode.policy import DataNodePolicy
from elanus.log.codec import encode
from elanus.log.memory import MemoryLog
from elanus.log.port import Position
from elanus.meta.memory import MemoryMeta
from elanus.pipeline.clustering import outputs_of
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range
from elanus.pipeline.sweep import sweep
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import read_delta_log
from elanus.storage.objects import open_store

_POLICY = DataNodePolicy(50, 1000, 1000, 60_000, 60_000, 300_000, 1 << 30, 3600.0)
_NEVER_S = 36_000.0
_COMMITS = {"commit_range": JobKind.FLUSH, "commit_compaction": JobKind.COMPACTION}
NO_COMPACTION = CompactionPolicy(
    automatic=False,
    plan=PlanPolicy(CompactionThresholds(0.2, 1 << 20, 2), retention_s=0, plans_max=4),
    interval_s=5,
    timeout_s=60,
    orders_max=1,
)


@dataclass(frozen=True)
class Contents:
    """``keys`` and ``deleted``: what the manifests hold, as often as they hold it.

    ``orphans``: files that nothing names; ``nameless``: those of them whose names do not say whose they are.
    ``missing``: files that are named and not there.
    """

    keys: Counter[int]
    deleted: Counter[int]
    segments: tuple[SegmentID, ...]
    orphans: tuple[str, ...]
    nameless: tuple[str, ...]
    missing: tuple[str, ...]


class Jobs(SparkFlushes):
    """Flushes and compactions. ``faults``: by kind of job; ``errors`` gets what flushes fail with."""

    def __init__(
        self, log: MemoryLog, root: Path, faults: Callable[[JobKind], Fault], errors: list[str]
    ) -> None:
        super().__init__(None, "log", root.as_uri(), root / ".scratch")  # type: ignore[arg-type]
        self._log = log
        self._root = root
        self._faults = faults
        self._scratch = root.parent / "scratch"
        self._scratch.mkdir(exist_ok=True)
        self._errors = errors

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int) -> list[RangeOutcome]:
        try:
            return [await as_spark_does(self._flush_task(plan)) for plan in plans]
        except Exception as error:
            self._errors.append(str(error))
            raise

    def _flush_task(self, plan: FlushPlan) -> Callable[[int], Awaitable[RangeOutcome]]:
        fault = self._faults(JobKind.FLUSH)

        async def task(number: int) -> RangeOutcome:
            await fault.at("before read")
            entries = self._log.read_range(plan.pchannel, Position(plan.start.position), plan.stop)
            writes = list(writes_in_range(entries, plan))
            await fault.at("before write")
            store = FaultyStore(self._root, fault)
            outcome = write_range(plan, writes, store, self._scratch, f"{plan.attempt}-{number}")
            await fault.at("after write")
            return outcome

        return task

    room = 2

    async def compact(self, order: CompactionOrder) -> tuple[SegmentOutput, ...]:
        fault = self._faults(JobKind.COMPACTION)

        async def task(number: int) -> tuple[SegmentOutput, ...]:
            await fault.at("before read")
            held = HeldStore(self._root)
            outputs = outputs_of(order, held, self._scratch, f"a{order.attempt}-{number}")
            await fault.at("before write")
            held.let_go(FaultyStore(self._root, fault))
            await fault.at("after write")
            return outputs

        return await as_spark_does(task)


class Connection:
    """Datacoord as a data node reaches it: the fault may strike on either side of a commit.

    ``stalling``: the fault, of the node that it is meant for. While that one stands still it says nothing.
    """

    def __init__(self, coord: Coord, faults: Callable[[JobKind], Fault], stalling: Fault | None) -> None:
        self._coord = coord
        self._faults = faults
        self._stalling = stalling

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            if self._stalling is not None:
                await self._stalling.stall()
            fault = self._faults(_COMMITS[name]) if name in _COMMITS else no_fault()
            await fault.at("before commit")
            answer = await getattr(self._coord, name)(*arguments)
            await fault.at("after commit")
            return answer

        return call


class Sweeps:
    """Sweeps here and now, undisturbed."""

    def __init__(self, root: Path) -> None:
        self._store = open_store(root.as_uri())

    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        return sweep(order, self._store)


class DataCourse:
    """``struck``: the kind of job that the fault is put into."""

    struck: JobKind

    def __init__(
        self,
        directory: Path,
        fault: Fault,
        collection: Collection,
        compaction: CompactionPolicy = NO_COMPACTION,
    ) -> None:
        self.fault = fault
        self.root_dir = directory / "files"
        self.root_dir.mkdir()
        self.store = open_store(self.root_dir.as_uri())
        self.collection = collection
        self.root = FakeRoot(collection, now_ms=100_000)
        self.log = MemoryLog()
        self.sessions = FakeNodes()
        self.errors: list[str] = []
        """The errors of flush jobs."""
        self._running: list[asyncio.Task[None]] = []
        self._next_key = 0
        self.manifests = Manifests(self.store, inline)
        self.coord = self._new_coord(compaction)

    # what courses of other jobs change

    def sweeper(self) -> SweeperApi:
        return Sweeps(self.root_dir)

    def importer(self) -> ImportNodeApi | None:
        """None where nothing is imported."""
        return None

    # the roles

    def _new_coord(self, compaction: CompactionPolicy) -> Coord:
        meta, clock = MemoryMeta(), VirtualClock()
        sealing = FlushPolicy(SealPolicy(0.75, age_s=_NEVER_S, idle_s=_NEVER_S), 1 << 30)
        collecting = GcSchedule(GcPolicy(0.0, 0.0, 3600.0, _NEVER_S), False, _NEVER_S, 0.0)

        async def is_served(_task: ImportTask) -> bool:
            return True

        needs = DataDependencies(
            lease=FakeLease(),
            meta=meta,
            store=self.store,
            log=self.log,
            clock=clock,
            rootcoord=self.root,  # type: ignore[arg-type]
            proxies=FakeNodes({NodeID(1): FakeProxy()}),
            data_nodes=self.sessions,
            gc=GcPorts(FakeIndexCoord(), FakeQueryCoord(), inline, inline),
            ledger=JobLedger(meta, clock, lambda address: None, LedgerPolicy(9, 9.0)),  # type: ignore[arg-type,return-value]
            import_served=is_served,
        )
        imports = ImportPolicy(9, 3_600_000, 3_600_000)
        policy = DataPolicy(
            AllocationPolicy(1 << 20, 2000),
            sealing,
            compaction,
            _NEVER_S,
            0.0,
            collecting,
            imports,
            MemoryPolicy(0, _NEVER_S),
        )
        return Coord(DataCoord(needs, policy))

    def faults(self, kind: JobKind) -> Fault:
        return self.fault if kind is self.struck else no_fault()

    def start_node(self) -> asyncio.Task[None]:
        """One after the other, at the address that the pipeline process always has."""
        number = len(self.sessions)
        jobs = Jobs(self.log, self.root_dir, self.faults, self.errors)
        coord = Connection(self.coord, self.faults, self.fault if number == 0 else None)
        node = DataNode(NodeID(10 + number), self.log, coord, jobs, jobs, _POLICY)  # type: ignore[arg-type]
        ports = DataNodePorts("unix:/pipeline", node, self.importer(), self.sweeper())  # type: ignore[arg-type]
        self.sessions.join(node.node_id, ports)
        self._running.append(asyncio.create_task(node.run()))
        return self._running[-1]

    async def start(self) -> asyncio.Task[None]:
        """The coordinator and its first node."""
        await self.coord.start()
        await self.coord.watch_channels(self.collection)
        first = self.start_node()
        await asyncio.sleep(0.1)
        return first

    async def replaced(self, first: asyncio.Task[None]) -> None:
        """Wait until the fault has struck; another node takes the place of one that it took."""
        await asyncio.wait_for(self.fault.struck.wait(), 120)
        if self.fault.victim is Victim.DRIVER:
            first.cancel()
        if self.fault.victim in (Victim.DRIVER, Victim.ZOMBIE):
            self.start_node()

    async def over(self, first: asyncio.Task[None]) -> None:
        """A zombie goes on to its end."""
        self.fault.go_on.set()
        await asyncio.sleep(1)
        first.cancel()  # two owners would take the vchannels from each other forever
        await asyncio.sleep(5)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.coord.stop()

    # writing

    async def write(
        self, rows: int, batches: int = 1, vchannel: str = "", partition: PartitionID = DEFAULT
    ) -> SegmentID:
        """Rows with the next keys. Returns the segment that they go to."""
        name = vchannel or self.collection.vchannels[0]
        request = AllocationRequest(CID, partition, name, rows * batches)
        (allocation,) = await self.coord.allocate((request,))
        for _ in range(batches):
            first, self._next_key = self._next_key, self._next_key + rows
            message = InsertMessage(
                self.root.stamp(),
                name,
                CID,
                partition,
                allocation.segment_id,
                first,
                batch(self.collection, first, rows),
            )
            await self.log.append(pchannel_of(name), [encode(message)])
        return allocation.segment_id

    async def delete(self, keys: range) -> None:
        name = self.collection.vchannels[0]
        delete = DeleteMessage(self.root.stamp(), name, CID, DEFAULT, pa.array(keys))
        await self.log.append(pchannel_of(name), [encode(delete)])

    async def tick(self) -> None:
        for vchannel in self.collection.vchannels:
            tick = TimeTick(self.root.stamp(), 1)
            await self.log.append(pchannel_of(vchannel), [encode(tick)])

    async def flushed(self, *segments: SegmentID) -> None:
        """Wait until these are."""

        async def are_flushed() -> bool:
            infos = await self.coord.segments_by_id(segments)
            await self.tick()
            return all(info.state is not SegmentState.GROWING for info in infos) and all(
                info.state in (SegmentState.FLUSHED, SegmentState.DROPPED) for info in infos
            )

        await self.until(are_flushed)

    async def until(self, reached: Callable[[], Awaitable[bool]]) -> None:
        """Wait for it, two minutes at most: what is not reached shows in the ending."""
        for _ in range(600):
            if await reached():
                return
            await asyncio.sleep(0.2)

    # the ending

    async def collected(self) -> GcReport:
        """A round of garbage collection, by which everything is old."""
        for info in self.store.list(""):
            os.utime(self.store.local_path(info.path, self.root_dir), (1, 1))
        rounds = (await self.coord.gc_status()).rounds
        await self.coord.collect_garbage(True)

        async def is_over() -> bool:
            return (await self.coord.gc_status()).rounds > rounds

        await self.until(is_over)
        report = (await self.coord.gc_status()).last
        assert report is not None
        return report

    async def contents(self) -> Contents:
        """The objects that the metadata in force names, compared with those in the store."""
        recovery = await self.coord.recovery_info(CID)
        keys: Counter[int] = Counter()
        deleted: Counter[int] = Counter()
        there = self._binlogs()
        named: set[str] = set()
        for manifest in recovery.flushed:
            files = {file.path for file in manifest.insert_logs}
            named |= files | set(manifest.stats_logs)
            if files <= there:
                keys.update(read_columns(self.store, manifest.insert_logs, ["pk"])["pk"].to_pylist())
        for delta in (d for v in recovery.vchannels for d in v.delta_logs):
            deleted.update(read_delta_log(self.store, delta.file)["PrimaryKey"].to_pylist())
            named.add(delta.file.path)
        orphans = tuple(sorted(there - named - await self._kept()))
        return Contents(
            keys,
            deleted,
            tuple(m.segment_id for m in recovery.flushed),
            orphans,
            tuple(o for o in orphans if number_in(Path(o).name) == NO_ATTEMPT),
            tuple(sorted(named - there)),
        )

    async def _kept(self) -> set[str]:
        """Files of dropped segments that have still to be collected."""
        infos = [s for s in await self.coord.segments(CID) if s.state is SegmentState.DROPPED and s.manifest]
        manifests = await self.manifests.of_segments(infos)
        return {f for m in manifests for f in (*(log.path for log in m.insert_logs), *m.stats_logs)}

    def _binlogs(self) -> set[str]:
        kinds = ("insert_log", "stats_log", "delta_log")
        return {info.path for kind in kinds for info in self.store.list(kind)}
