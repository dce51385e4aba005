"""Following one vchannel: from a checkpoint in its log to growing segments and deletes, pack by pack.

A follower begins with the binlogs of segments that are not finished, then reads the log from the checkpoint.
At each tick it takes in one pack: rows go to their growing segments. Everything else (deletes, dropped
partitions) is passed on as a `PackEffect`, and nothing further is taken in until that has been applied: then
the follower's tick moves.

It belongs to the loop thread. Rows are not copied out of the log's memory unless keeping them would keep
alive a buffer much larger than the rows themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import structlog

from elanus.api.querynode import WatchVchannel
from elanus.core.channels import pchannel_of
from elanus.core.ids import FieldID, PartitionID, SegmentID
from elanus.core.messages import DdlMessage, DeleteMessage, InsertMessage, Message, MsgKind, UpsertMessage
from elanus.core.packs import Pack
from elanus.core.quarantine import Quarantined, checked
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.index import IndexSpec
from elanus.log.codec import decode
from elanus.log.msgstream import TickReader
from elanus.log.port import Log, LogClosed, LogEntry, Position
from elanus.querynode.coverage import Coverage
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.rpc.tracing import untraced

_READ_BYTES_MAX = 4 * 1024 * 1024
"""How much of the log is read at once: what a follower that catches up processes before it yields."""
_log = structlog.get_logger("querynode")


@dataclass(frozen=True, slots=True)
class PackEffect:
    """The effect of packs beyond adding rows.

    ``tick``: the end of the last pack; ``position``: what is before it in the log is not needed after this.
    ``deleting``: the messages that delete, in order.
    """

    tick: Timestamp
    position: int
    deleting: tuple[DeleteMessage | UpsertMessage, ...]
    dropped_partitions: frozenset[PartitionID]
    drops_collection: bool


class Follower:
    """Follows one vchannel.

    ``absorb``: applies the effect of each batch of packs, and sets ``tick``. ``failed``: called when reading
    has ended in an error.
    """

    def __init__(
        self,
        request: WatchVchannel,
        schema: CollectionSchema,
        specs: Mapping[FieldID, IndexSpec],
        coverage: Coverage,
        absorb: Callable[[Follower, PackEffect], Awaitable[None]],
        failed: Callable[[Follower], None],
    ) -> None:
        self.vchannel = request.vchannel
        self.coverage = coverage
        self.tick = request.checkpoint.ts
        """Everything up to this timestamp has been taken in and applied."""
        self.position = request.checkpoint.position
        """The log before it is not needed any more."""
        self.growing: dict[SegmentID, GrowingSegment] = {}
        self.excluded = set(request.excluded)
        self.failure: str | None = None
        self._collection_id = request.collection_id
        self._checkpoint = request.checkpoint
        self._schema = schema
        self._specs = specs
        self._absorb = absorb
        self._failed = failed
        self._reader: TickReader | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        return self._reader is not None

    @property
    def late_messages(self) -> int:
        return 0 if self._reader is None else self._reader.late_messages

    @property
    def growing_bytes(self) -> int:
        return sum(segment.batch_bytes for segment in self.growing.values())

    def start(self, log: Log, recovered: Sequence[GrowingSegment]) -> None:
        """Begin to follow; ``recovered``: the segments of the request's binlogs."""
        self.growing = {s.segment_id: s for s in recovered if self._wants(s.segment_id, s.partition_id)}
        reader = log.open_reader(pchannel_of(self.vchannel), Position(self._checkpoint.position))
        self._reader = TickReader(reader, self._checkpoint, [self.vchannel])
        self._task = untraced(self._follow(self._reader), f"follow {self.vchannel}")
        self._task.add_done_callback(self._ended)

    def retire(self) -> None:
        """Stop reading; may be called from within `absorb`."""
        if self._task is not None:
            self._task.cancel()
        if self._reader is not None:
            self._reader.close()

    async def stop(self) -> None:
        """As `retire`, and wait until nothing runs any more."""
        self.retire()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def release(self, segment_ids: set[SegmentID]) -> list[GrowingSegment]:
        """Permanently release segments that are served in another form; return those that were held."""
        self.excluded |= segment_ids
        return [self.growing.pop(s) for s in segment_ids & self.growing.keys()]

    def restrict(self, coverage: Coverage) -> list[GrowingSegment]:
        """Reduce what is taken in from now on; return the segments that this removes."""
        self.coverage = coverage
        gone = [s for s in self.growing.values() if not coverage.takes(s.partition_id)]
        for segment in gone:
            del self.growing[segment.segment_id]
        return gone

    def _wants(self, segment_id: SegmentID, partition_id: PartitionID) -> bool:
        return segment_id not in self.excluded and self.coverage.takes(partition_id)

    async def _follow(self, reader: TickReader) -> None:
        while True:
            try:
                packs = await reader.next_packs(_READ_BYTES_MAX)
            except LogClosed:
                return  # the process is ending
            await self._absorb(self, self._take_in(packs))
            await asyncio.sleep(0)  # yield: a reader that catches up may never have to wait

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("vchannel not followed: reading failed", vchannel=self.vchannel, exc_info=error)
            self.failure = f"{type(error).__name__}: {error}"
            self._failed(self)

    def _take_in(self, packs: Sequence[Pack[LogEntry]]) -> PackEffect:
        """Add the rows of packs to their growing segments; return what else the packs do.

        Rows may come before the deletes of earlier packs: a delete only concerns rows older than itself.
        """
        deleting: list[DeleteMessage | UpsertMessage] = []
        dropped: set[PartitionID] = set()
        drops_collection = False
        for pack in packs:
            arrivals: dict[GrowingSegment, list[NewRows]] = {}
            dropped_here: set[PartitionID] = set()
            for entry in pack.entries:
                header = entry.header
                wanted = self._wants(header.segment_id, header.partition_id)
                if header.kind is MsgKind.INSERT and not wanted:
                    continue
                message = self._decoded(entry)
                if isinstance(message, DeleteMessage | UpsertMessage):
                    deleting.append(message)
                if isinstance(message, InsertMessage | UpsertMessage) and wanted:
                    segment = self._segment(header.segment_id, header.partition_id)
                    arrivals.setdefault(segment, []).append(_new_rows(message, entry))
                if isinstance(message, DdlMessage):
                    drops_collection |= message.kind is MsgKind.DROP_COLLECTION
                    if message.kind is MsgKind.DROP_PARTITION:
                        dropped_here.add(message.partition_id)
            for segment, rows in arrivals.items():
                segment.append(rows)
            if dropped_here:
                self.coverage = self.coverage.without(dropped_here)
                dropped |= dropped_here
        last = packs[-1]
        return PackEffect(
            last.end_ts, last.seek.position, tuple(deleting), frozenset(dropped), drops_collection
        )

    def _decoded(self, entry: LogEntry) -> Message | None:
        """Return the entry's message; None for a quarantined write, which the flush task skips too."""
        message = decode(entry)
        if not isinstance(message, InsertMessage | UpsertMessage | DeleteMessage):
            return message
        found = checked(message, entry.position, self._collection_id, self._schema)
        if not isinstance(found, Quarantined):
            return found
        # Only a warning: the error is logged once, when a flush leaves the write out.
        _log.warning(
            "log entry skipped: it does not fit its collection",
            vchannel=self.vchannel,
            position=found.position,
            collection=found.collection_id,
            segment=found.segment_id,
            ts=found.ts,
            rows=found.rows,
            reason=found.reason,
        )
        return None

    def _segment(self, segment_id: SegmentID, partition_id: PartitionID) -> GrowingSegment:
        segment = self.growing.get(segment_id)
        if segment is None:
            segment = GrowingSegment(segment_id, partition_id, self._schema, self._specs)
            self.growing[segment_id] = segment
        return segment


def _new_rows(message: InsertMessage | UpsertMessage, entry: LogEntry) -> NewRows:
    """Return a message's rows, copied if they are less than half of the log buffer they were read in."""
    batch = message.rows
    piece = memoryview(entry.payload.obj).nbytes if entry.payload is not None else 0
    if 2 * entry.payload_bytes < piece:
        batch = pa.concat_batches([batch])
    return NewRows(batch, np.full(batch.num_rows, message.ts, dtype=np.int64))
