"""The growing segments of one follower, with what deletes and the node's memory account ask about them.

Both are maintained as segments change: the ranges of keys, by which a delete finds the blocks that it may
concern, and the bytes. So a pack costs what it adds, however many segments grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from elanus.core.ids import SegmentID
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.growing import GrowingBlock, GrowingSegment
from elanus.querynode.key_ranges import KeyRanges, Visits


class GrowingSegments(Mapping[SegmentID, GrowingSegment]):
    """For the loop thread. The segments' blocks are changed here only, by `put`."""

    def __init__(self, segments: Iterable[GrowingSegment] = ()) -> None:
        self._segments: dict[SegmentID, GrowingSegment] = {}
        self._ranges = KeyRanges()
        self.batch_bytes = 0
        """Bytes of the rows of all segments."""
        for segment in segments:
            self._segments[segment.segment_id] = segment
            self._replace(segment, (), segment.blocks)

    def __getitem__(self, segment_id: SegmentID) -> GrowingSegment:
        return self._segments[segment_id]

    def __iter__(self) -> Iterator[SegmentID]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, segment: GrowingSegment, blocks: tuple[GrowingBlock, ...]) -> None:
        """Give a segment these blocks, and keep it if it is not here yet."""
        before = segment.blocks if segment.segment_id in self._segments else ()
        self._segments[segment.segment_id] = segment
        segment.blocks = blocks
        self._replace(segment, before, blocks)

    def remove(self, segment_ids: Iterable[SegmentID]) -> list[GrowingSegment]:
        """Remove segments; return those that were here."""
        gone = [self._segments.pop(s) for s in segment_ids if s in self._segments]
        blocks = [block for segment in gone for block in segment.blocks]
        self._ranges.remove(blocks)
        self.batch_bytes -= sum(block.batch_bytes for block in blocks)
        return gone

    def clear(self) -> list[GrowingSegment]:
        """Remove all segments, and return them."""
        return self.remove(tuple(self._segments))

    def concerned(self, deletes: Sequence[DeleteBatch]) -> list[Visits]:
        """Return the visits by which deletes reach the rows."""
        return [self._ranges.visits(batch) for batch in deletes]

    def _replace(
        self, segment: GrowingSegment, before: tuple[GrowingBlock, ...], after: tuple[GrowingBlock, ...]
    ) -> None:
        """Take in a change of a segment's blocks. Those at the front are usually the same."""
        same = 0
        for old, new in zip(before, after, strict=False):
            if old is not new:
                break
            same += 1
        self._ranges.remove(before[same:])
        self.batch_bytes -= sum(block.batch_bytes for block in before[same:])
        for block in after[same:]:
            self._ranges.add(block, segment.partition_id)
            self.batch_bytes += block.batch_bytes
