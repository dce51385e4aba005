"""The state that a read works on: one collection at one service time and one version, immutable.

The loop thread publishes a snapshot after each batch of packs with messages of the collection, and after each
change. A read takes the last one, as of the current service time, and keeps it until it ends. A segment that
a version dropped is freed with the last snapshot that names it, which is when the last read that began under
that snapshot ends: Python's reference counts do the bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from elanus.api.query_channel import MissingSegment
from elanus.core.errors import PartitionNotLoaded, SegmentUnreadable, TimestampTooOld, Unavailable
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.index import IndexSpec
from elanus.querynode.block import Block
from elanus.querynode.loaded_fields import Unloaded


@dataclass(frozen=True, slots=True)
class SnapshotSegment:
    """A segment as reads see it.

    ``visible_from``: earlier reads do not see the segment (`elanus.querynode.loaded_collection`).
    ``complete_from``: earlier reads cannot be answered. Either compaction has removed the rows that were
    deleted up to then, or the segment holds some rows that earlier reads must not see, mixed with others.
    """

    segment_id: SegmentID
    partition_id: PartitionID
    sealed: bool
    blocks: tuple[Block, ...]
    visible_from: Timestamp = NO_TIMESTAMP
    complete_from: Timestamp = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A collection's state at one moment.

    ``service_ts``: everything up to it is included (0: the collection cannot be read yet). ``partitions``:
    those that are served; None: all. ``specs``: the indexes of the collection's fields. ``missing``: segments
    of these partitions that no node serves. ``unloaded``: the fields that are not in ``schema`` because they
    are not loaded.
    """

    collection_id: CollectionID
    schema: CollectionSchema
    specs: Mapping[FieldID, IndexSpec]
    version: int
    service_ts: Timestamp
    partitions: frozenset[PartitionID] | None
    segments: tuple[SnapshotSegment, ...]
    missing: Mapping[SegmentID, MissingSegment] = field(default_factory=dict)
    unloaded: Unloaded = field(default_factory=Unloaded)

    def blocks(
        self,
        read_ts: Timestamp,
        partition_ids: tuple[PartitionID, ...],
        ignore_growing: bool,
        expired_until: Timestamp = NO_TIMESTAMP,
    ) -> list[Block]:
        """Return the blocks that a read at ``read_ts`` covers. No ``partition_ids`` means all partitions.

        Blocks whose rows have all expired, because they are not later than ``expired_until``, are left out.

        Raises `PartitionNotLoaded`, `Unavailable` for a timestamp that is not served yet, `SegmentUnreadable`
        if rows of these partitions are in files that cannot be read, and `TimestampTooOld` for a timestamp
        whose rows compaction has mixed with later rows or removed.
        """
        if read_ts > self.service_ts:
            raise Unavailable(
                f"collection {self.collection_id} is served up to timestamp {self.service_ts}, not yet up to "
                f"{read_ts}; retry"
            )
        if self.partitions is not None:
            for partition_id in partition_ids:
                if partition_id not in self.partitions:
                    raise PartitionNotLoaded(f"partition not loaded[partition={partition_id}]; load it first")
        for gap in self.missing.values():
            if not partition_ids or gap.partition_id in partition_ids:
                raise SegmentUnreadable(f"collection {self.collection_id} is not complete: {gap.reason}")
        segments = tuple(self._segments(partition_ids))
        kept_from = max((segment.complete_from for segment in segments), default=NO_TIMESTAMP)
        if read_ts < kept_from:
            raise TimestampTooOld(
                f"the read is as of timestamp {read_ts}; compaction has changed for good what was there up "
                f"to {kept_from}: read a later moment"
            )
        return [
            block
            for segment in segments
            if (segment.sealed or not ignore_growing) and segment.visible_from <= read_ts
            for block in segment.blocks
            if not block.has_expired(expired_until)
        ]

    def _segments(self, partition_ids: tuple[PartitionID, ...]) -> Iterator[SnapshotSegment]:
        if not partition_ids:
            return iter(self.segments)
        wanted = frozenset(partition_ids)
        return (segment for segment in self.segments if segment.partition_id in wanted)


class PublishedSnapshot:
    """A snapshot, and the same as of the last service time that was asked for: most reads share one.

    For any thread: two that ask for different times both get what they asked for.
    """

    __slots__ = ("_last", "version")

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version
        self._last = snapshot

    def with_segments(self, segments: tuple[SnapshotSegment, ...]) -> Snapshot:
        """Return the same with other segments."""
        return replace(self._last, segments=segments)

    def at(self, service_ts: Timestamp) -> Snapshot:
        last = self._last
        if last.service_ts != service_ts:
            last = self._last = replace(last, service_ts=service_ts)
        return last
