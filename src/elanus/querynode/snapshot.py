"""What a read works on: one collection at one service time and one version, immutable.

The loop thread publishes a new snapshot after every pack and every change; a read takes the one in force
and keeps it to its end. What a version dropped is freed when the last snapshot that names it goes, which
is when the last read that began under it ends: Python's reference counts are the bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elanus.core.errors import PartitionNotLoaded, TimestampTooOld, Unavailable
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.index import IndexSpec
from elanus.querynode.block import Block


@dataclass(frozen=True, slots=True)
class SegmentView:
    """``visible_from``: reads below it do not see the segment (`elanus.querynode.collection`).

    ``complete_from``: rows that were deleted up to then are gone from it, by compaction; or it holds rows
    that earlier reads must not see, beside others.
    """

    segment_id: SegmentID
    partition_id: PartitionID
    sealed: bool
    blocks: tuple[Block, ...]
    visible_from: Timestamp = NO_TIMESTAMP
    complete_from: Timestamp = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``service_ts``: everything up to it is here (0: the collection cannot be read yet).

    ``partitions``: those that are served; None: all there are. ``specs``: the indexes of the fields that
    can be searched.
    """

    collection_id: CollectionID
    schema: CollectionSchema
    specs: Mapping[FieldID, IndexSpec]
    version: int
    service_ts: Timestamp
    partitions: frozenset[PartitionID] | None
    segments: tuple[SegmentView, ...]

    def blocks(
        self, read_ts: Timestamp, partition_ids: tuple[PartitionID, ...], ignore_growing: bool
    ) -> list[Block]:
        """The blocks a read at ``read_ts`` covers; no partition named: those of all.

        Raises `PartitionNotLoaded`, `Unavailable` for a timestamp that is not served yet, and
        `TimestampTooOld` for one whose rows compaction has mixed with later ones, or removed.
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
        ]

    def _segments(self, partition_ids: tuple[PartitionID, ...]) -> Iterator[SegmentView]:
        if not partition_ids:
            return iter(self.segments)
        return (segment for segment in self.segments if segment.partition_id in partition_ids)
