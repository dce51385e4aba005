"""A data node over a log in memory, with jobs that read it as Spark jobs would, for this package's tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from fakes import Calls, binlog, schema, settle

from elanus.api.datacoord import (
    ChannelAssignment,
    CheckpointMove,
    DataNodeRegistration,
    DataNodeTick,
    RangeCommit,
    SegmentOutput,
)
from elanus.api.datanode import FlushReason
from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.messages import (
    DdlMessage,
    DeleteMessage,
    EpochMark,
    InsertMessage,
    Message,
    MsgKind,
    TimeTick,
)
from elanus.core.quarantine import Quarantined
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, compose
from elanus.datanode.flushes import SparkFlushes
from elanus.datanode.node import DataNode
from elanus.datanode.policy import DataNodePolicy
from elanus.log.codec import encode
from elanus.log.memory import MemoryLog
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range

V0, V1 = "by-dev-rootcoord-dml_0_400v0", "by-dev-rootcoord-dml_0_500v0"
W0 = "by-dev-rootcoord-dml_1_400v1"
POLICY = DataNodePolicy(
    report_ms=50,
    idle_report_ms=1000,
    idle_look_ms=10_000,
    idle_checkpoint_ms=60_000,
    holding_checkpoint_ms=10_000,
    sync_age_ms=300_000,
    range_size_max_bytes=1 << 30,
    flush_timeout_s=100.0,
)


class Coordinator:
    """Datacoord's answers to a data node; commits are compared as it compares them."""

    def __init__(self, *vchannels: str) -> None:
        self.calls = Calls()
        self.epoch = 0
        self.attempts = 0
        self.assignments = {v: assignment(v) for v in vchannels}
        self.reports: list[DataNodeTick] = []
        self.commits: list[RangeCommit] = []
        self.moves: list[CheckpointMove] = []
        self.awaited: tuple[str, ...] = ()
        self.dropping: set[str] = set()

    async def register_datanode(self, node_id: NodeID) -> DataNodeRegistration:
        self.calls.note("register_datanode", node_id)
        self.epoch += 1
        self.assignments = {v: replace(a, epoch=self.epoch) for v, a in self.assignments.items()}
        return DataNodeRegistration(self.epoch, tuple(self.assignments.values()))

    async def report_ticks(self, epoch: int, ticks: tuple[DataNodeTick, ...]) -> tuple[str, ...]:
        self.calls.note("report_ticks", ticks)
        self._check(epoch)
        self.reports += ticks
        return tuple(v for v in self.awaited if v not in {t.vchannel for t in ticks})

    async def commit_range(self, commit: RangeCommit) -> None:
        self.calls.note("commit_range", commit)
        known = self.assignments.get(commit.vchannel)
        if known is None or known.epoch != commit.epoch:
            raise CommitRefused("owned by another")
        if known.checkpoint != commit.expected:
            raise CommitRefused("the checkpoint is elsewhere")
        if commit.checkpoint.ts < commit.expected.ts:
            raise CommitRefused("the range ends before it begins")
        self.assignments[commit.vchannel] = replace(known, checkpoint=commit.checkpoint)
        self.commits.append(commit)

    async def move_checkpoints(self, moves: tuple[CheckpointMove, ...]) -> dict[str, str]:
        self.calls.note("move_checkpoints", moves)
        refused = {}
        for move in moves:
            known = self.assignments.get(move.vchannel)
            if known is None or known.epoch != move.epoch or known.checkpoint != move.expected:
                refused[move.vchannel] = "owned by another, or the checkpoint is elsewhere"
                continue
            self.assignments[move.vchannel] = replace(known, checkpoint=move.checkpoint)
            self.moves.append(move)
        return refused

    async def open_attempts(self, epoch: int, count: int) -> int:
        self.calls.note("open_attempts", count)
        self._check(epoch)
        self.attempts += count
        return self.attempts - count + 1

    async def close_attempts(self, attempts: tuple[int, ...]) -> None:
        self.calls.note("close_attempts", attempts)

    async def channel_dropped(self, epoch: int, vchannel: str) -> None:
        self.calls.note("channel_dropped", vchannel)
        known = self.assignments.get(vchannel)
        if known is not None and known.epoch != epoch:
            raise CommitRefused("owned by another")
        self.assignments.pop(vchannel, None)

    async def channel_unreadable(self, epoch: int, vchannel: str) -> bool:
        self.calls.note("channel_unreadable", vchannel)
        if vchannel not in self.dropping:
            return False
        await self.channel_dropped(epoch, vchannel)
        return True

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise CommitRefused("replaced")

    def last(self, vchannel: str) -> DataNodeTick:
        return [r for r in self.reports if r.vchannel == vchannel][-1]


class Jobs(SparkFlushes):
    """Runs each plan at once, over the log in memory; or waits, or fails, when the test says so."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(None, Path("log"), "file:///store", Path("scratch"))  # type: ignore[arg-type]
        self.log = log
        self.runs: list[tuple[str, tuple[str, ...]]] = []
        self.ranges: list[tuple[Timestamp, Timestamp]] = []
        self.tries: list[int] = []
        self.error: Exception | None = None
        self.damaged: dict[str, Exception] = {}
        """By vchannel: what a job raises that has a range of it."""
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int) -> list[RangeOutcome]:
        self.ranges += [(p.start.ts, p.until) for p in plans]
        self.runs.append((reason.cause, tuple(p.vchannel for p in plans)))
        self.tries.append(tries)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        for plan in plans:
            if plan.vchannel in self.damaged:
                raise self.damaged[plan.vchannel]
        return [self._outcome(plan) for plan in plans]

    def _outcome(self, plan: FlushPlan) -> RangeOutcome:
        rows: Counter[SegmentID] = Counter()
        deleted = 0
        quarantined: list[Quarantined] = []
        entries = self.log.read_range(plan.pchannel, plan.start.position, plan.stop)  # type: ignore[arg-type]
        for message in writes_in_range(entries, plan):
            if isinstance(message, DeleteMessage):
                deleted += len(message.primary_keys)
            elif isinstance(message, Quarantined):
                quarantined.append(message)
            else:
                rows[message.segment_id] += message.rows.num_rows
        outputs = tuple(SegmentOutput(s, (binlog(f"{s}", n),), ()) for s, n in sorted(rows.items()))
        delta = binlog("delta", deleted) if deleted else None
        return RangeOutcome(plan.vchannel, outputs, delta, tuple(quarantined))


def collection_of(vchannel: str) -> CollectionID:
    return CollectionID(int(vchannel.rsplit("_", 1)[1].split("v")[0]))


def rows_with_keys(count: int) -> pa.RecordBatch:
    """Rows of `fakes.schema`."""
    of = schema()
    vectors = pa.array([[1.0, 2.0]] * count, of.field("v0").arrow_type)
    columns = [pa.array(range(count), pa.int64()), pa.array([0.5] * count, pa.float64()), vectors]
    return pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)


def assignment(vchannel: str, checkpoint: Checkpoint | None = None, epoch: int = 1) -> ChannelAssignment:
    collection_id = collection_of(vchannel)
    begin = Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0)
    return ChannelAssignment(vchannel, collection_id, schema(), checkpoint or begin, epoch)


IDLE_S = POLICY.idle_report_ms / 1000
LOOK_S = POLICY.idle_look_ms / 1000


class Bench:
    def __init__(self, *vchannels: str, policy: DataNodePolicy = POLICY) -> None:
        self.log = MemoryLog()
        self.coord = Coordinator(*vchannels)
        self.jobs = Jobs(self.log)
        self.node = DataNode(NodeID(9), self.log, self.coord, self.jobs, self.jobs, policy)  # type: ignore[arg-type]
        self.ms = 1000
        self.running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.running = asyncio.create_task(self.node.run())
        await settle()

    async def flush(self, vchannel: str, *segment_ids: int, epoch: int | None = None) -> None:
        """Datacoord's order, of its present epoch by default."""
        ids = tuple(map(SegmentID, segment_ids))
        order_epoch = self.coord.epoch if epoch is None else epoch
        await self.node.flush_segments(order_epoch, vchannel, ids, FlushReason("flush" if ids else "backlog"))

    async def watch(self, *assignments: ChannelAssignment) -> None:
        await self.node.watch_channels(self.coord.epoch, assignments)

    async def stop(self) -> None:
        assert self.running is not None
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    def stamp(self) -> Timestamp:
        self.ms += 1
        return compose(self.ms)

    async def write(self, *messages: Message, pchannel: str = "") -> None:
        for message in messages:
            name = pchannel or pchannel_of(getattr(message, "vchannel", V0))
            await self.log.append(name, [encode(message)])

    async def insert(
        self,
        segment_id: int,
        rows: int = 10,
        vchannel: str = V0,
        ts: Timestamp | None = None,
        *,
        foreign: bool = False,
    ) -> Timestamp:
        """``foreign``: rows of another schema."""
        ts = ts or self.stamp()
        batch = rows_with_keys(rows).select(["pk"]) if foreign else rows_with_keys(rows)
        cid = collection_of(vchannel)
        await self.write(InsertMessage(ts, vchannel, cid, PartitionID(1), SegmentID(segment_id), 0, batch))
        return ts

    async def delete(self, keys: int = 3, vchannel: str = V0) -> None:
        await self.write(
            DeleteMessage(
                self.stamp(), vchannel, collection_of(vchannel), PartitionID(0), pa.array(range(keys))
            )
        )

    async def drop(self, vchannel: str = V0) -> None:
        await self.write(
            DdlMessage(
                MsgKind.DROP_COLLECTION, self.stamp(), vchannel, collection_of(vchannel), PartitionID(0)
            )
        )

    async def tick(
        self, pchannel: str = pchannel_of(V0), ts: Timestamp | None = None, epoch: int = 1
    ) -> Timestamp:
        """A tick, and time enough for the node to report it."""
        ts = ts or self.stamp()
        await self.write(TimeTick(ts, epoch), pchannel=pchannel)
        await asyncio.sleep(0.2)
        return ts

    async def epoch(self, number: int) -> None:
        await self.write(EpochMark(self.stamp(), number), pchannel=pchannel_of(V0))

    def committed_rows(self) -> dict[SegmentID, int]:
        rows: Counter[SegmentID] = Counter()
        for commit in self.coord.commits:
            for output in commit.segments:
                rows[output.segment_id] += sum(f.rows for f in output.insert_logs)
        return dict(rows)
