"""Ranges of a vchannel: what a flush covers, and which messages of the log that is.

A range is a span of time, (start.ts, until], not a span of positions. Its end is a tick: by then every
message up to ``until`` stands in the log. Messages of later times may stand before that tick, and
belong to the next range; messages that came after a tick at or above their own timestamp are late, and
belong to none. Every reader of the log finds the same messages late, because every reader applies the same
rule from the same starting state (`elanus.core.packs`), which the checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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


def writes_in_range(entries: Iterable[LogEntry], plan: FlushPlan) -> Iterator[WriteMessage | Quarantined]:
    """The vchannel's writes with start.ts < ts ≤ until, in the order of their timestamps.

    In place of a write that does not fit the plan's schema comes what is known of it.

    ``entries`` are those of the pchannel from the plan's start on. Raises `Internal` when they end
    without the tick ``until``: what has been read would then be only part of the range. Raises `CorruptLog`
    naming the pchannel and the position of a damaged write.
    """
    assembler: PackAssembler[LogEntry] = PackAssembler(plan.start, [plan.vchannel])
    for entry in entries:
        pack = assembler.feed(entry.header, entry.position, entry.next, entry)
        if pack is None:
            continue
        if pack.end_ts > plan.until:
            break
        for written in pack.entries:
            if written.header.kind in _WRITES and written.header.rows:
                message = _decoded(written, plan.pchannel)
                yield checked(message, written.position, plan.collection_id, plan.schema)
        if pack.end_ts == plan.until:
            return
    raise Internal(
        f"{plan.vchannel}: the log from {plan.start.position} to {plan.stop} has no tick {plan.until}; "
        "a range must end at one"
    )


def _decoded(entry: LogEntry, pchannel: str) -> WriteMessage:
    try:
        return cast(WriteMessage, decode(entry))
    except CorruptLog as error:
        raise CorruptLog(f"{pchannel}: {error}") from error
