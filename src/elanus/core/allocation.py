"""Segment allocation: how datacoord hands out room in segments, and how a proxy uses it.

An allocation permits a proxy to write a number of rows into a segment, up to an expiry timestamp. A proxy
uses its allocations oldest first, for writes whose timestamp is not later than the expiry, and may split one
write over several segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A growing segment and the number of rows that can still be allocated in it."""

    segment_id: SegmentID
    free_rows: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rows allocated in one segment. ``segment_id`` None: in a new segment."""

    segment_id: SegmentID | None
    rows: int


def allocate(rows: int, open_segments: Sequence[OpenSegment], max_rows: int) -> list[Allocation]:
    """Choose the segments for a request's rows (the reference's greedy policy).

    The request gets whole new segments as long as it fills them. The remainder goes to the first open
    segment with room for all of it, otherwise to a new one.
    """
    full, remainder = divmod(rows, max_rows)
    allocations = [Allocation(None, max_rows)] * full
    if remainder:
        fits = next((s for s in open_segments if s.free_rows >= remainder), None)
        allocations.append(Allocation(fits.segment_id if fits else None, remainder))
    return allocations


@dataclass(slots=True)
class _Unused:
    """The rows of an allocation that have not been written."""

    segment_id: SegmentID
    rows: int
    expires: Timestamp


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """``rows`` consecutive rows of a write that go to one segment."""

    segment_id: SegmentID
    rows: int


_Key = tuple[CollectionID, PartitionID, str]


class AllocationCache:
    """A proxy's unused allocations."""

    def __init__(self) -> None:
        self._unused: dict[_Key, deque[_Unused]] = {}

    def put(self, key: _Key, segment_id: SegmentID, rows: int, expires: Timestamp) -> None:
        self._unused.setdefault(key, deque()).append(_Unused(segment_id, rows, expires))

    def missing(self, key: _Key, rows: int, ts: Timestamp) -> int:
        """Return how many of ``rows`` rows stamped ``ts`` the unused allocations do not cover.

        Drops expired allocations.
        """
        unused = self._unused.get(key)
        if not unused:
            return rows
        for allocation in [a for a in unused if a.expires < ts or a.rows <= 0]:
            unused.remove(allocation)
        return max(0, rows - sum(a.rows for a in unused))

    def spend(self, key: _Key, rows: int) -> list[SegmentRows]:
        """Use allocations that `missing` has confirmed. Raises `ValueError` if they do not cover ``rows``."""
        places = []
        unused = self._unused.get(key, deque())
        while rows:
            if not unused:
                raise ValueError(f"{rows} rows more than the allocations of {key} cover")
            allocation = unused[0]
            taken = min(rows, allocation.rows)
            places.append(SegmentRows(allocation.segment_id, taken))
            allocation.rows -= taken
            rows -= taken
            if allocation.rows == 0:
                unused.popleft()
        return places

    def forget(self, collection_id: CollectionID) -> None:
        """Forget all allocations of a collection."""
        for key in [k for k in self._unused if k[0] == collection_id]:
            del self._unused[key]
