"""The heirs of segments that compaction has dropped: the flushed segments that have their rows now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elanus.core.ids import NO_SEGMENT, SegmentID


@dataclass(frozen=True, slots=True)
class Heirs:
    """The heirs of dropped segments, after any number of compactions.

    A compaction by a clustering key cuts its inputs into several outputs, and each of these may have been
    compacted with others since. The heirs of one segment are always served together, so `one_of` is enough
    to know whether they are.

    ``first``: each dropped segment with one of its heirs, `NO_SEGMENT` if none of its rows is left.
    ``split``: those that have several heirs, each with all of them.
    """

    first: Mapping[SegmentID, SegmentID] = field(default_factory=dict)
    split: Mapping[SegmentID, tuple[SegmentID, ...]] = field(default_factory=dict)

    def __contains__(self, segment_id: SegmentID) -> bool:
        """Whether the segment is dropped."""
        return segment_id in self.first

    def dropped(self) -> Iterable[SegmentID]:
        return self.first.keys()

    def one_of(self, segment_id: SegmentID) -> SegmentID:
        """Return one heir; `NO_SEGMENT` if there is none or the segment is not dropped."""
        return self.first.get(segment_id, NO_SEGMENT)

    def of(self, segment_id: SegmentID) -> tuple[SegmentID, ...]:
        """Return all heirs; none if none of the rows is left or the segment is not dropped."""
        several = self.split.get(segment_id)
        if several is not None:
            return several
        one = self.one_of(segment_id)
        return () if one == NO_SEGMENT else (one,)
