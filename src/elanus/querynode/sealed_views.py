"""The sealed segments of a collection as reads see them, made again only when the set of them changes.

A snapshot is published at every tick. With ten thousand segments, their views must not be made each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from elanus.core.ids import PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.snapshot import SnapshotSegment


class SealedViews:
    """For the loop thread. `changed` must be called when the result of `of` may have changed."""

    def __init__(self) -> None:
        self._visible_from: dict[SegmentID, Timestamp] = {}
        self._views: tuple[SnapshotSegment, ...] | None = None

    def set_visible_from(self, segment_id: SegmentID, ts: Timestamp) -> None:
        """Reads see the segment from this timestamp on."""
        self._visible_from[segment_id] = ts

    def changed(self) -> None:
        self._views = None

    def of(
        self, segments: Iterable[SealedSegment], serves: Callable[[PartitionID], bool]
    ) -> tuple[SnapshotSegment, ...]:
        """Return the views of those segments whose partition is served."""
        if self._views is None:
            segments = tuple(segments)
            known = {segment.segment_id for segment in segments}
            self._visible_from = {s: ts for s, ts in self._visible_from.items() if s in known}
            self._views = tuple(self._view(s) for s in segments if serves(s.partition_id))
        return self._views

    def _view(self, segment: SealedSegment) -> SnapshotSegment:
        """Return the segment as reads see it.

        A compaction's output refuses reads before ``visible_from``: they should see some of its rows and not
        others.
        """
        visible_from = self._visible_from.get(segment.segment_id, NO_TIMESTAMP)
        complete_from = segment.complete_from
        if segment.parents:
            visible_from, complete_from = NO_TIMESTAMP, max(complete_from, visible_from)
        return SnapshotSegment(
            segment.segment_id, segment.partition_id, True, segment.blocks, visible_from, complete_from
        )
