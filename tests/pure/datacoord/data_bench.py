"""A data coordinator over memory, its data node and proxies, for this package's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fakes import (
    CID,
    DEFAULT,
    Calls,
    FakeIndexCoord,
    FakeLease,
    FakeNodes,
    FakeProxy,
    FakeQueryCoord,
    FakeRoot,
    binlog,
    collection,
    inline,
)
from virtual_time import VirtualClock
from whole_coord import Coord

from elanus.api.datacoord import (
    AllocationRequest,
    ChannelAssignment,
    DataNodeTick,
    RangeCommit,
    SegmentOutput,
)
from elanus.api.datanode import CompactionOrder, CompactionWork, DataNodePorts, FlushReason
from elanus.api.gc import SweepOrder, SweepOutcome
from elanus.api.imports import ImportOrder, ImportOutcome
from elanus.core.catalog import Checkpoint, Collection
from elanus.core.compaction import CompactionThresholds
from elanus.core.errors import ElanusError, Internal
from elanus.core.gc import GcPolicy
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.imports import ImportPolicy, ImportTask
from elanus.core.jobs import JobEntry
from elanus.core.offload import Offload
from elanus.core.quarantine import Quarantined
from elanus.core.sealing import SealPolicy
from elanus.core.segments import BinlogFile, SegmentInfo
from elanus.core.timestamps import Timestamp, compose, physical_ms
from elanus.datacoord.collecting import GcPorts, GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataCoord, DataDependencies, DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.datacoord.memory_pressure import MemoryPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.segment_allocator import AllocationPolicy
from elanus.log.memory import MemoryLog
from elanus.meta.memory import MemoryMeta
from elanus.pipeline.sweep import sweep
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectStore

MAX_ROWS = 1000
ROW_BYTES = 16 + 8 + 8 + 8  # of `fakes.schema`
SYNC_BYTES = 10_000
EXPIRATION_MS = 2000
COMPACTION = CompactionPolicy(
    automatic=False,
    plan=PlanPolicy(CompactionThresholds(0.2, 10_000, 3), retention_s=0, plans_max=10),
    interval_s=60,
    timeout_s=50,
    orders_max=2,
)
COMMIT_DEADLINE_S = 600
IMPORT_TIMEOUT_MS = 1_800_000
LOG_HOLD_S = 100
GC_INTERVAL_S, GC_SETTLE_S = 100, 5
MEMORY_LOOK_S = 1.0


class FakeNode:
    """A data node that notes its orders."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls = Calls()
        self.reasons: list[FlushReason] = []
        self.epochs: list[int] = []
        self.held: list[int] = []
        """The attempts of compactions that it has; the test takes out what it loses."""
        self.room = 8
        self.answers = asyncio.Event()
        self.answers.set()
        self.following: dict[str, int] = {}
        """The vchannels that were assigned to it, each with its epoch."""

    async def watch_channels(self, epoch: int, channels: tuple[ChannelAssignment, ...]) -> None:
        self.calls.note("watch_channels", tuple(c.vchannel for c in channels))
        self.follow(channels)

    async def unwatch_channels(self, epoch: int, channels: Mapping[str, int]) -> None:
        self.calls.note("unwatch_channels", tuple(channels))
        for vchannel, owned_under in channels.items():
            assert self.following.pop(vchannel, owned_under) == owned_under

    def follow(self, channels: tuple[ChannelAssignment, ...]) -> None:
        self.following |= {c.vchannel: c.epoch for c in channels}

    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> None:
        self.reasons.append(reason)
        self.epochs.append(epoch)
        self.calls.note("flush_segments" if segment_ids else "sync", (vchannel, segment_ids))

    async def report_soon(self, epoch: int, vchannel: str, at_least: Timestamp) -> None:
        self.epochs.append(epoch)
        self.calls.note("report_soon", (vchannel, at_least))

    async def compact(self, epoch: int, order: CompactionOrder) -> int:
        self.epochs.append(epoch)
        self.calls.note("compact", order)
        self.held.append(order.attempt)
        return self.room

    async def compactions(self, epoch: int) -> CompactionWork:
        self.calls.note("compactions", None)
        work = CompactionWork(tuple(self.held), self.room)
        await self.answers.wait()
        return work

    async def cancel_compactions(self, epoch: int, plan_ids: tuple[int, ...]) -> None:
        self.epochs.append(epoch)
        self.calls.note("cancel_compactions", plan_ids)


class FakeImporter:
    """The importing side of a data node: answers when the test says what."""

    def __init__(self) -> None:
        self.orders: list[ImportOrder] = []
        self.answers: asyncio.Queue[ImportOutcome | ElanusError] = asyncio.Queue()
        self.cancelled = 0

    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        self.orders.append(order)
        try:
            answer = await self.answers.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, ElanusError):
            raise answer
        return answer


class FakePipeline:
    """A pipeline process that notes which jobs it is to cancel."""

    def __init__(self) -> None:
        self.calls = Calls()

    async def ping(self) -> None:
        self.calls.note("ping")

    async def cancel_job(self, job_id: str) -> None:
        self.calls.note("cancel_job", job_id)


class Sweeper:
    """Sweeps here and now; or dies after some deletions, or waits, when the test says so."""

    def __init__(self, store: ObjectStore) -> None:
        self.list = store.list
        self.store = store
        self.orders: list[SweepOrder] = []
        self.deletions_left = 10**9
        self.errors: list[Exception] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        self.orders.append(order)
        await self.go_on.wait()
        if self.errors:
            raise self.errors.pop()
        return sweep(order, self)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not self.deletions_left:
                raise Internal("the job died")
            self.deletions_left -= 1
            self.store.delete(path)


class FullMemory(FakeQueryCoord):
    """``growing``: what its query nodes report."""

    def __init__(self) -> None:
        super().__init__()
        self.growing: tuple[GrowingMemory, ...] = ()

    async def growing_bytes(self) -> int:
        self.calls.note("growing_bytes")
        return max((memory.total_bytes for memory in self.growing), default=0)

    async def growing_memory(self) -> tuple[GrowingMemory, ...]:
        self.calls.note("growing_memory")
        return self.growing


class Bench:
    """``meta``, ``log`` and the object store outlive the role; `start` makes a new instance of it."""

    def __init__(self, directory: Path, *collections: Collection) -> None:
        self.collections = collections or (collection(),)
        self.clock = VirtualClock()
        self.meta = MemoryMeta()
        self.log = MemoryLog()
        self.store = open_store(directory.as_uri())
        self.root = FakeRoot(*self.collections, now_ms=100_000)
        self.proxies = FakeNodes({NodeID(1): FakeProxy()})
        self.compaction = COMPACTION
        self.data_nodes = FakeNodes()
        self.lease = FakeLease()
        self.nodes: list[FakeNode] = []
        self.importers: list[FakeImporter] = []
        self.served = True
        self.index = FakeIndexCoord()
        self.query = FullMemory()
        self.sweeper = Sweeper(self.store)
        self.imports = ImportPolicy(
            tasks_max=3,
            retention_ms=60_000,
            write_retention_ms=600_000,
            at_once=1,
            timeout_ms=IMPORT_TIMEOUT_MS,
        )
        self.gc_policy = GcPolicy(3600, 7200, COMMIT_DEADLINE_S, 10_000)
        self.gc_enabled = False
        self.offload: Offload = inline
        self.growing_soft_bytes = 1 << 40
        self.epoch = 0
        self.ended: list[JobEntry] = []
        self.pipelines: dict[str, FakePipeline] = {}

    async def start(self) -> Coord:
        needs = DataDependencies(
            lease=self.lease,
            meta=self.meta,
            store=self.store,
            log=self.log,
            clock=self.clock,
            rootcoord=self.root,  # type: ignore[arg-type]
            proxies=self.proxies,
            data_nodes=self.data_nodes,
            gc=GcPorts(self.index, self.query, self.offload, self.offload),  # type: ignore[arg-type]
            ledger=self.ledger(),
            import_served=self._is_served,
        )
        policy = DataPolicy(
            allocation=AllocationPolicy(MAX_ROWS * ROW_BYTES, EXPIRATION_MS),
            flush=FlushPolicy(SealPolicy(0.75, age_s=3600, idle_s=600), SYNC_BYTES),
            compaction=self.compaction,
            trim_interval_s=10,
            log_hold_s=LOG_HOLD_S,
            gc=GcSchedule(self.gc_policy, self.gc_enabled, GC_INTERVAL_S, GC_SETTLE_S),
            imports=self.imports,
            memory=MemoryPolicy(self.growing_soft_bytes, MEMORY_LOOK_S),
        )
        self.coord = Coord(DataCoord(needs, policy))
        await self.coord.start()
        return self.coord

    async def _is_served(self, task: ImportTask) -> bool:
        return self.served

    def ledger(self, jobs_max: int = 100) -> JobLedger:
        """A ledger over the same metadata. Processes it calls note that in ``pipelines``."""
        policy = LedgerPolicy(jobs_max, age_max_s=600.0, silence_s=10.0)
        return JobLedger(self.meta, self.clock, self.pipeline, policy, self.ended.append)

    def pipeline(self, address: str) -> FakePipeline:
        return self.pipelines.setdefault(address, FakePipeline())

    async def restart(self) -> Coord:
        await self.coord.stop()
        return await self.start()

    async def watched(self) -> Coord:
        """Started, with its collections' vchannels known and a data node registered."""
        await self.start()
        for known in self.collections:
            await self.coord.watch_channels(known)
        await self.register()
        return self.coord

    def join(self, number: int = 9, address: str = "") -> None:
        """A data node's session begins: one that notes its orders, at an address of its own."""
        self.nodes.append(FakeNode(address or f"unix:/node-{len(self.nodes)}"))
        self.importers.append(FakeImporter())
        ports = DataNodePorts(self.node.address, self.node, self.importers[-1], self.sweeper)
        self.data_nodes.join(NodeID(number), ports)

    async def register(self, number: int = 9) -> tuple[ChannelAssignment, ...]:
        """A data node comes; what follows speaks in its name."""
        self.join(number)
        registration = await self.coord.register_datanode(NodeID(number))
        self.epoch = registration.epoch
        self.node.follow(registration.channels)
        return registration.channels

    @property
    def node(self) -> FakeNode:
        return self.nodes[-1]

    @property
    def vchannel(self) -> str:
        return self.collections[0].vchannels[0]

    async def write(
        self,
        rows: int = 10,
        partition_id: PartitionID = DEFAULT,
        vchannel: str = "",
        collection_id: CollectionID = CID,
    ) -> SegmentID:
        """Allocate rows for a small write; return the segment that they go to."""
        request = AllocationRequest(collection_id, partition_id, vchannel or self.vchannel, rows)
        (allocation,) = await self.coord.allocate((request,))
        return allocation.segment_id

    async def report(
        self,
        rows: Mapping[SegmentID, int] | None = None,
        *,
        ts: Timestamp | None = None,
        size_bytes: int = 0,
        vchannel: str = "",
        checkpoint_ts: Timestamp | None = None,
    ) -> None:
        """The data node has followed the vchannel up to now."""
        name = vchannel or self.vchannel
        known = (await self.recovery(name)).ts if checkpoint_ts is None else checkpoint_ts
        tick = DataNodeTick(name, ts or self.root.stamp(), known, rows or {}, size_bytes)
        await self.coord.report_ticks(self.epoch, (tick,))

    async def recovery(self, vchannel: str = "") -> Checkpoint:
        """The vchannel's checkpoint."""
        name = vchannel or self.vchannel
        found = self.coord.context.state.vchannel(name)
        assert found is not None
        return found.checkpoint

    async def commit(
        self,
        outputs: Mapping[SegmentID, int] | None = None,
        flushed: Iterable[SegmentID] = (),
        *,
        vchannel: str = "",
        expected: Checkpoint | None = None,
        checkpoint: Checkpoint | None = None,
        delta: BinlogFile | None = None,
        epoch: int | None = None,
        attempt: int | None = None,
        quarantined: Mapping[SegmentID, int] | None = None,
    ) -> Checkpoint:
        """The data node's job has written ``outputs`` (rows by segment) up to now, and left some rows out."""
        name = vchannel or self.vchannel
        if attempt is None:
            attempt = await self.coord.open_attempts(self.epoch, 1)
        now = self.root.stamp()
        made = RangeCommit(
            epoch=self.epoch if epoch is None else epoch,
            vchannel=name,
            expected=expected or await self.recovery(name),
            checkpoint=checkpoint or Checkpoint(now, physical_ms(now), now, 1),
            segments=tuple(
                SegmentOutput(s, (binlog(f"insert_log/{s}-{now}", rows),), (f"stats_log/{s}-{now}",))
                for s, rows in (outputs or {}).items()
            ),
            delta=delta,
            flushed=tuple(flushed),
            attempt=attempt,
            quarantined=tuple(
                Quarantined(name, CID, s, 40, now, rows, "its columns are not the collection's")
                for s, rows in (quarantined or {}).items()
            ),
        )
        await self.coord.commit_range(made)
        return made.checkpoint

    async def commit_files(
        self, outputs: Sequence[SegmentOutput], flushed: Iterable[SegmentID], delta: BinlogFile | None = None
    ) -> None:
        """As `commit`, with files that are there."""
        now = self.root.stamp()
        attempt = await self.coord.open_attempts(self.epoch, 1)
        checkpoint = Checkpoint(now, physical_ms(now), now, 1)
        await self.coord.commit_range(
            RangeCommit(
                epoch=self.epoch,
                attempt=attempt,
                vchannel=self.vchannel,
                expected=await self.recovery(),
                checkpoint=checkpoint,
                segments=tuple(outputs),
                delta=delta,
                flushed=tuple(flushed),
            )
        )

    async def segment(self, segment_id: SegmentID) -> SegmentInfo:
        (found,) = await self.coord.segments_by_id((segment_id,))
        return found

    def later(self, milliseconds: int) -> None:
        """Time passes, for the oracle too."""
        self.root.now_ms += milliseconds

    async def snapshot(self) -> tuple[object, ...]:
        """Everything that is persisted."""
        return tuple(await self.meta.list(""))


def moved(checkpoint: Checkpoint, ms: int) -> Checkpoint:
    return replace(checkpoint, ts=compose(physical_ms(checkpoint.ts) + ms))
