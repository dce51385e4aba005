"""The sealed segments of a collection as reads see them.

A snapshot is published after each batch of packs, and a version changes a few of twenty thousand segments. So
the views are put together again only when the set of segments changes, and each view is made once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TypeAlias

from elanus.core.ids import PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.meta.turns import in_turns
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.snapshot import SnapshotSegment

_Made: TypeAlias = tuple[SealedSegment, Timestamp, SnapshotSegment]
"""A view, with the segment and the moment that it was made of."""


class SealedViews:
    """For the loop thread. `changed` must be called when the result of `of` may have changed."""

    def __init__(self) -> None:
        self._visible_from: dict[SegmentID, Timestamp] = {}
        self._made: dict[SegmentID, _Made] = {}
        self._views: tuple[SnapshotSegment, ...] | None = None

    def set_visible_from(
        self, segment_ids: Iterable[SegmentID], visible_from: Mapping[SegmentID, Timestamp]
    ) -> None:
        """Reads see each of these segments from its timestamp on; at once if it has none."""
        self._visible_from.update({s: visible_from.get(s, NO_TIMESTAMP) for s in segment_ids})

    async def prepare(
        self, segments: Iterable[SealedSegment], visible_from: Mapping[SegmentID, Timestamp]
    ) -> None:
        """Make the views of segments that a version is about to bring online. Other tasks run meanwhile.

        They may change any of this: `of` uses a view only for the segment and timestamp that it was made of.
        """
        async for segment in in_turns(segments):
            self._make(segment, visible_from.get(segment.segment_id, NO_TIMESTAMP))

    def changed(self) -> None:
        self._views = None

    def of(
        self, segments: Mapping[SegmentID, SealedSegment], partition_ids: Set[PartitionID] | None
    ) -> tuple[SnapshotSegment, ...]:
        """Return the views of the segments of these partitions; None: of all."""
        if self._views is None:
            if len(self._visible_from) > len(segments):
                self._visible_from = {s: ts for s, ts in self._visible_from.items() if s in segments}
            before, self._made = self._made, {}
            moments = self._visible_from
            for segment_id, segment in segments.items():
                made = before.get(segment_id)
                moment = moments.get(segment_id, NO_TIMESTAMP)
                if made is not None and made[0] is segment and made[1] == moment:
                    self._made[segment_id] = made
                else:
                    self._make(segment, moment)
            views = (view for _, _, view in self._made.values())
            if partition_ids is not None:
                views = (view for view in views if view.partition_id in partition_ids)
            self._views = tuple(views)
        return self._views

    def _make(self, segment: SealedSegment, moment: Timestamp) -> None:
        """Make the view of a segment that becomes visible at the moment.

        A compaction's output refuses reads before it: they should see some of its rows and not others.
        """
        visible_from, complete_from = moment, segment.complete_from
        if segment.parents:
            visible_from, complete_from = NO_TIMESTAMP, max(complete_from, moment)
        view = SnapshotSegment(
            segment.segment_id, segment.partition_id, True, segment.blocks, visible_from, complete_from
        )
        self._made[segment.segment_id] = segment, moment, view
