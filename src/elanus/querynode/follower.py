"""Following one vchannel: from a checkpoint in its log to growing segments and deletes, pack by pack.

A follower begins with the binlogs of segments that are not finished, then follows the log from the
checkpoint. The process reads each pchannel once (`elanus.log.dispatcher`), and the follower gets the packs
that hold messages of its vchannel: rows go to their growing segments, and deletes apply to the growing rows
older than they are. The effects of a pack beyond that (deletes for sealed segments, dropped partitions) are
passed on as a `PackEffect`.

It belongs to the loop thread. Rows are not copied out of the log's memory unless keeping them would keep
alive a buffer much larger than the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import structlog

from elanus.api.querynode import WatchVchannel
from elanus.core.ids import FieldID, PartitionID, SegmentID
from elanus.core.messages import DdlMessage, DeleteMessage, InsertMessage, Message, MsgKind, UpsertMessage
from elanus.core.quarantine import Quarantined, checked
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.index import IndexSpec
from elanus.log.codec import decode
from elanus.log.dispatcher import Dispatcher
from elanus.log.msgstream import EntryPack
from elanus.log.port import LogClosed, LogEntry
from elanus.log.shared_reader import Subscription
from elanus.log.tick_line import Watcher
from elanus.querynode.coverage import Coverage
from elanus.querynode.deletes import DeleteBatch, deletes_of_messages
from elanus.querynode.growing import GrowingSegment, NewRows

_log = structlog.get_logger("querynode")


@dataclass(frozen=True, slots=True)
class PackEffect:
    """The effects of a pack beyond the growing segments. ``released``: growing segments that it removed."""

    tick: Timestamp
    deletes: tuple[DeleteBatch, ...]
    dropped_partitions: frozenset[PartitionID]
    released: tuple[GrowingSegment, ...]
    drops_collection: bool


class Follower:
    """Follows one vchannel: an `elanus.log.shared_reader.PackListener`.

    ``absorb``: called with the effects of each batch of packs, in the same step that takes them in; and at
    ticks as long as it returns True.
    """

    def __init__(
        self,
        request: WatchVchannel,
        schema: CollectionSchema,
        specs: Mapping[FieldID, IndexSpec],
        coverage: Coverage,
        absorb: Callable[[Follower, Sequence[PackEffect]], bool],
    ) -> None:
        self.vchannel = request.vchannel
        self.coverage = coverage
        self.growing: dict[SegmentID, GrowingSegment] = {}
        self.excluded = set(request.excluded)
        self.failure: str | None = None
        self._collection_id = request.collection_id
        self._checkpoint = request.checkpoint
        self._schema = schema
        self._specs = specs
        self._absorb = absorb
        self._taken = request.checkpoint.ts
        self._subscription: Subscription | None = None

    @property
    def started(self) -> bool:
        return self._subscription is not None

    @property
    def tick(self) -> Timestamp:
        """Everything up to this tick has been taken in and absorbed. May be read by any thread."""
        return self._checkpoint.ts if self._subscription is None else self._subscription.ts

    @property
    def taken(self) -> Timestamp:
        """As `tick`, or the end of a pack that has been taken in and whose tick is about to follow."""
        return max(self._taken, self.tick)

    @property
    def late_messages(self) -> int:
        return 0 if self._subscription is None else self._subscription.late_messages

    @property
    def growing_bytes(self) -> int:
        return sum(segment.batch_bytes for segment in self.growing.values())

    def start(self, dispatcher: Dispatcher, recovered: Sequence[GrowingSegment]) -> None:
        """Begin to follow; ``recovered``: the segments of the request's binlogs."""
        self.growing = {s.segment_id: s for s in recovered if self._wants(s.segment_id, s.partition_id)}
        self._subscription = dispatcher.follow(self.vchannel, self._checkpoint, self)
        self._subscription.watch(self._ticked)

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` after the next tick of the vchannel. May be called by any thread."""
        if self._subscription is not None:
            self._subscription.watch(watcher)

    def retire(self) -> None:
        """Take in nothing any more; may be called from within `absorb`."""
        if self._subscription is not None:
            self._subscription.close()

    def take(self, packs: Sequence[EntryPack]) -> None:
        self._absorb(self, [self._take_in(pack) for pack in packs])

    def failed(self, error: Exception) -> None:
        if isinstance(error, LogClosed):
            return  # the process is ending
        _log.error("vchannel not followed: reading failed", vchannel=self.vchannel, exc_info=error)
        self.failure = f"{type(error).__name__}: {error}"
        self._absorb(self, ())

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

    def _ticked(self) -> bool:
        try:
            return self._absorb(self, ())
        except Exception as error:  # noqa: BLE001 - it concerns this vchannel, not the others of the reader
            self.retire()
            self.failed(error)
            return False

    def _take_in(self, pack: EntryPack) -> PackEffect:
        arrivals: dict[GrowingSegment, list[NewRows]] = {}
        deleting: list[DeleteMessage | UpsertMessage] = []
        dropped: set[PartitionID] = set()
        drops_collection = False
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
                    dropped.add(message.partition_id)
        for segment, rows in arrivals.items():
            segment.append(rows)
        deletes = deletes_of_messages(deleting, self._schema.primary_field.name)
        for segment in self.growing.values():
            segment.delete(deletes)
        released = self.restrict(self.coverage.without(dropped)) if dropped else []
        self._taken = pack.end_ts
        return PackEffect(pack.end_ts, deletes, frozenset(dropped), tuple(released), drops_collection)

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
