"""Decoding the messages of packs, and adding their rows to growing segments.

Which entries are wanted, and for which segment, is decided on the loop by their headers. The rest is work on
the rows: decoding, checking, joining small batches, sorting keys. An insert of 60 MB with small vectors has a
million rows, and takes a tenth of a second. So do some thousand small inserts, which a node that catches up
gets at once. Large packs are therefore prepared in a thread. Nothing that reads use changes meanwhile: the
result is a new tuple of blocks for each segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import structlog

from elanus.core.ids import CollectionID, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, Message, UpsertMessage
from elanus.core.offload import Offload
from elanus.core.quarantine import Quarantined, checked
from elanus.core.schema import CollectionSchema
from elanus.log.codec import decode
from elanus.log.port import LogEntry
from elanus.querynode.growing import GrowingBlock, GrowingSegment, NewRows

INLINE_ROWS_MAX = 16 * 1024
INLINE_ENTRIES_MAX = 256
INLINE_BYTES_MAX = 4 * 1024 * 1024
_log = structlog.get_logger("querynode")


@dataclass(frozen=True, slots=True)
class Arrived:
    """``grown``: the new blocks of segments. ``deleting``: the messages that delete, in order."""

    grown: Mapping[SegmentID, tuple[GrowingBlock, ...]]
    deleting: tuple[DeleteMessage | UpsertMessage, ...]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Entries of packs, in order; those with rows that are not wanted only if they delete.

    ``segments``: those that get rows, as they are now; nobody changes them before `prepared` has returned.
    ``schema``: that of the log, which a segment may hold a part of.
    """

    entries: Sequence[LogEntry]
    segments: Mapping[SegmentID, GrowingSegment]
    collection_id: CollectionID
    schema: CollectionSchema

    @property
    def rows(self) -> int:
        return sum(entry.header.rows for entry in self.entries)

    @property
    def payload_bytes(self) -> int:
        return sum(entry.payload_bytes for entry in self.entries)

    def prepared(self) -> Arrived:
        """Decode the entries and make the segments' new blocks. For any thread. Raises `CorruptLog`."""
        deleting: list[DeleteMessage | UpsertMessage] = []
        rows: dict[SegmentID, list[NewRows]] = {}
        for entry in self.entries:
            message = self._decoded(entry)
            if isinstance(message, DeleteMessage | UpsertMessage):
                deleting.append(message)
            if isinstance(message, InsertMessage | UpsertMessage) and message.segment_id in self.segments:
                held = self.segments[message.segment_id].column_names
                rows.setdefault(message.segment_id, []).append(_new_rows(message, entry, held))
        grown = {s: self.segments[s].with_rows(arrived) for s, arrived in rows.items()}
        return Arrived(grown, tuple(deleting))

    def _decoded(self, entry: LogEntry) -> Message | None:
        """Return the entry's message; None for a quarantined write, which the flush task skips too."""
        message = decode(entry)
        if not isinstance(message, InsertMessage | UpsertMessage | DeleteMessage):
            return message
        found = checked(message, entry.position, self.collection_id, self.schema)
        if not isinstance(found, Quarantined):
            return found
        # Only a warning: the error is logged once, when a flush leaves the write out.
        _log.warning(
            "log entry skipped: it does not fit its collection",
            vchannel=found.vchannel,
            position=found.position,
            collection=found.collection_id,
            segment=found.segment_id,
            ts=found.ts,
            rows=found.rows,
            reason=found.reason,
        )
        return None


class Intake:
    """Prepares arrivals. ``offload`` runs what is too much for the loop: more entries, rows or bytes."""

    def __init__(
        self,
        offload: Offload,
        inline_rows_max: int = INLINE_ROWS_MAX,
        inline_entries_max: int = INLINE_ENTRIES_MAX,
    ) -> None:
        self._offload = offload
        self._inline_rows_max = inline_rows_max
        self._inline_entries_max = inline_entries_max

    async def prepare(self, arrivals: Arrivals) -> Arrived:
        """As `Arrivals.prepared`. Does not yield if there is little to do."""
        if (
            len(arrivals.entries) > self._inline_entries_max
            or arrivals.rows > self._inline_rows_max
            or arrivals.payload_bytes > INLINE_BYTES_MAX
        ):
            return await self._offload(arrivals.prepared)
        return arrivals.prepared()


def _new_rows(message: InsertMessage | UpsertMessage, entry: LogEntry, held: Sequence[str]) -> NewRows:
    """Return the columns of a message's rows that are held.

    They are copied if the rows are less than half of the log buffer they were read in, or if some columns are
    not held: a view would keep the whole buffer.
    """
    batch = message.rows
    narrowed = len(held) < batch.num_columns
    if narrowed:
        batch = batch.select(held)
    piece = memoryview(entry.payload.obj).nbytes if entry.payload is not None else 0
    if 2 * entry.payload_bytes < piece or narrowed:
        batch = pa.concat_batches([batch])
    return NewRows(batch, np.full(batch.num_rows, message.ts, dtype=np.int64))
