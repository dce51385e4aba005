"""Ranges of a vchannel: what a flush covers, and which messages of the log that is.

A range is a span of time, (start.ts, until], not a span of positions. Its end is a tick: by then every
message up to ``until`` stands in the log. Messages of later times may stand before that tick, and
belong to the next range; messages that came after a tick at or above their own timestamp are late, and
belong to none. Every reader of the log finds the same messages late, because every reader applies the same
rule from the same starting state (`elanus.core.packs`), which the checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from elanus.api.datacoord import SegmentOutput
from elanus.core.catalog import Checkpoint
from elanus.core.errors import Internal
from elanus.core.ids import CollectionID
from elanus.core.messages import MsgKind, WriteMessage
from elanus.core.packs import PackAssembler
from elanus.core.quarantine import Quarantined, checked
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import Timestamp
from elanus.log.codec import decode
from elanus.log.port import CorruptLog, LogEntry, Position

SHARED_MAX = 4
"""Ranges that share a reading of the log. Each has open files of its own (`elanus.pipeline.range_files`)."""
_WRITES = frozenset({MsgKind.INSERT, MsgKind.UPSERT, MsgKind.DELETE})


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """One range to flush. Pickles; carries all that a task needs to know.

    ``start``: the vchannel's checkpoint. ``until``: the tick that ends the range; ``stop``: a position
    after that tick. ``attempt`` is unique to this try of this range. ``log_url``: see `elanus.log.backends`;
    ``scratch_dir``: a directory on the machine that runs the task.
    """

    attempt: str
    collection_id: CollectionID
    schema: CollectionSchema
    vchannel: str
    pchannel: str
    start: Checkpoint
    until: Timestamp
    stop: Position
    log_url: str
    store_url: str
    scratch_dir: str


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """The output of a range: files per segment, the deletes' file if there were any, and entries left out."""

    vchannel: str
    segments: tuple[SegmentOutput, ...]
    delta: BinlogFile | None
    quarantined: tuple[Quarantined, ...] = ()

    @property
    def files(self) -> tuple[BinlogFile, ...]:
        """All Parquet files of the range."""
        insert_logs = tuple(file for output in self.segments for file in output.insert_logs)
        return insert_logs if self.delta is None else (*insert_logs, self.delta)


class RangeReading:
    """Picks the writes of a range out of a pchannel's entries. ``has_ended``: its last tick was there."""

    def __init__(self, plan: FlushPlan) -> None:
        self.plan = plan
        self.has_ended = False
        self._assembler: PackAssembler[LogEntry] = PackAssembler(plan.start, [plan.vchannel])

    def feed(self, entry: LogEntry) -> Iterator[WriteMessage | Quarantined]:
        """Yield the writes with start.ts < ts ≤ until that are complete with this entry, in their order.

        In place of a write that does not fit the plan's schema comes what is known of it. Entries before the
        plan's start, and those after the range's end, are of no concern. Raises `CorruptLog` naming the
        pchannel and the position of a damaged write, and `Internal` if the range does not end at a tick.
        """
        plan = self.plan
        if self.has_ended or not plan.start.position <= entry.position < plan.stop:
            return
        pack = self._assembler.feed(entry.header, entry.position, entry.next, entry)
        if pack is None:
            return
        if pack.end_ts > plan.until:
            raise self._has_no_tick()
        for written in pack.entries:
            if written.header.kind in _WRITES and written.header.rows:
                message = _decoded(written, plan.pchannel)
                yield checked(message, written.position, plan.collection_id, plan.schema)
        self.has_ended = pack.end_ts == plan.until

    def check_end(self) -> None:
        """Raises `Internal` if the range's last tick was not among the entries: a part was read."""
        if not self.has_ended:
            raise self._has_no_tick()

    def _has_no_tick(self) -> Internal:
        plan = self.plan
        return Internal(
            f"{plan.vchannel}: the log from {plan.start.position} to {plan.stop} has no tick {plan.until}; "
            "a range must end at one"
        )


def writes_in_range(entries: Iterable[LogEntry], plan: FlushPlan) -> Iterator[WriteMessage | Quarantined]:
    """Yield the vchannel's writes with start.ts < ts ≤ until, in the order of their timestamps.

    ``entries`` are those of the pchannel from the plan's start on. Raises as `RangeReading` does.
    """
    reading = RangeReading(plan)
    for entry in entries:
        yield from reading.feed(entry)
        if reading.has_ended:
            return
    reading.check_end()


def shared(plans: Sequence[FlushPlan], slots: int) -> list[tuple[FlushPlan, ...]]:
    """Divide plans among tasks: those of one pchannel whose spans of the log overlap may share a reading.

    As many of them share a task, up to `SHARED_MAX`, as it takes to have no more tasks than slots: each range
    holds memory of its own, and slots without work would not be faster.
    """
    at_once = min(SHARED_MAX, -(-len(plans) // max(1, slots)))
    tasks: list[list[FlushPlan]] = []
    stop = Position(0)
    for plan in sorted(plans, key=lambda p: (p.log_url, p.pchannel, p.start.position)):
        last = tasks[-1] if tasks else []
        same_log = bool(last) and (last[0].log_url, last[0].pchannel) == (plan.log_url, plan.pchannel)
        if same_log and len(last) < at_once and plan.start.position < stop:
            last.append(plan)
            stop = max(stop, plan.stop)
        else:
            tasks.append([plan])
            stop = plan.stop
    return [tuple(task) for task in tasks]


def _decoded(entry: LogEntry, pchannel: str) -> WriteMessage:
    """Decode a write whose rows keep no more than themselves in memory.

    They point into the payload, and wait there until a row group is full. Where other vchannels write much
    more, that would keep everything in memory that was read of the log meanwhile.
    """
    payload = entry.payload
    if payload is not None and 2 * len(payload) < memoryview(payload.obj).nbytes:
        entry = replace(entry, payload=memoryview(bytes(payload)))
    try:
        return cast(WriteMessage, decode(entry))
    except CorruptLog as error:
        raise CorruptLog(f"{pchannel}: {error}") from error
