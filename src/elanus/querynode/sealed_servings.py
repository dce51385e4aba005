"""The part of a node's status about the sealed segments of a collection, kept from one status to the next.

Querycoord asks for the status several times per reconciliation, and a collection may have twenty thousand
segments. So each segment's part is made when the segment is first served. The memory that a segment takes
changes slowly, with deletes; some parts are compared with it each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from elanus.api.querynode import SegmentServing
from elanus.core.ids import CollectionID, IndexID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.querynode.growing import GrowingSegment
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.snapshot import SnapshotSegment

AT_ONCE = 500
"""How many parts are made before other tasks run, and how many are compared at each status."""
NO_INDEX = IndexID(0)


class SealedServings:
    """For the loop thread."""

    def __init__(self, collection_id: CollectionID) -> None:
        self._collection_id = collection_id
        self._parts: dict[SegmentID, tuple[SealedSegment, SegmentServing]] = {}
        self._views: tuple[SnapshotSegment, ...] | None = None
        self._answer: tuple[SegmentServing, ...] = ()
        self._visible_at: Timestamp | None = None
        """When the first of the segments that reads do not see yet becomes visible; None: all are."""
        self._compared = 0

    async def prepare(self, serving: Mapping[SegmentID, SealedSegment]) -> None:
        """Make what `of` needs, and let others run meanwhile. ``serving``: the segments; it may change."""
        segments = tuple(serving.values())
        made = 0
        for segment in segments:
            part = self._parts.get(segment.segment_id)
            if part is None or part[0] is not segment:
                self._make(segment, visible=True)
                made += 1
                if made % AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._compare_some(segments)

    def forget(self, segments: Iterable[SealedSegment | GrowingSegment]) -> None:
        """Keep nothing of segments that were released: their memory is freed in turns."""
        for segment in segments:
            part = self._parts.get(segment.segment_id)
            if part is not None and part[0] is segment:
                del self._parts[segment.segment_id]
                self._views = None

    def of(
        self,
        service_ts: Timestamp,
        views: tuple[SnapshotSegment, ...],
        serving: Mapping[SegmentID, SealedSegment],
    ) -> tuple[SegmentServing, ...]:
        """Return the parts of the segments that are served, in the order of their views."""
        if views is not self._views or (self._visible_at is not None and self._visible_at <= service_ts):
            self._answer = tuple(self._parts_of(service_ts, views, serving))
            self._views = views
        return self._answer

    def _parts_of(
        self,
        service_ts: Timestamp,
        views: Iterable[SnapshotSegment],
        serving: Mapping[SegmentID, SealedSegment],
    ) -> list[SegmentServing]:
        known = self._parts
        found: list[SegmentServing] = []
        hidden = [view.visible_from for view in views if view.visible_from > service_ts]
        self._visible_at = min(hidden, default=None)
        for view in views:
            segment = serving[view.segment_id]
            part = known.get(view.segment_id)
            visible = view.visible_from <= service_ts
            if part is None or part[0] is not segment or part[1].visible != visible:
                found.append(self._make(segment, visible))
            else:
                found.append(part[1])
        if len(known) > len(serving):
            self._parts = {segment_id: known[segment_id] for segment_id in serving if segment_id in known}
        return found

    def _compare_some(self, segments: tuple[SealedSegment, ...]) -> None:
        """Correct the memory of the next parts, in turns."""
        if self._compared >= len(segments):
            self._compared = 0
        for segment in segments[self._compared : self._compared + AT_ONCE]:
            part = self._parts.get(segment.segment_id)
            if part is None or part[0] is not segment or part[1].memory_bytes == segment.memory_bytes:
                continue
            self._make(segment, part[1].visible)
            self._views = None  # the answer is put together again
        self._compared += AT_ONCE

    def _make(self, segment: SealedSegment, visible: bool) -> SegmentServing:
        made = SegmentServing(
            segment_id=segment.segment_id,
            collection_id=self._collection_id,
            partition_id=segment.partition_id,
            vchannel=segment.vchannel,
            rows=segment.rows,
            sealed=True,
            memory_bytes=segment.memory_bytes,
            index_id=segment.index_ids[0] if segment.index_ids else NO_INDEX,
            index_ids=segment.index_ids,
            visible=visible,
        )
        self._parts[segment.segment_id] = segment, made
        return made
