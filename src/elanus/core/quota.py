"""Segment quota: how datacoord hands out room in segments, and how a proxy spends it.

Quota is a promise of rows in a segment up to an expiry timestamp. A proxy spends it for writes whose
timestamp is not beyond the expiry, front to back, and may split one write over several segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A growing segment and the rows it can still promise."""

    segment_id: SegmentID
    free_rows: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """``segment_id`` None: in a new segment."""

    segment_id: SegmentID | None
    rows: int


def allocate(rows: int, open_segments: Sequence[OpenSegment], max_rows: int) -> list[Allocation]:
    """Where a request's rows go (the reference's greedy policy).

    Whole new segments while the request fills them; the remainder goes to the first open segment with
    room for all of it, else to a new one.
    """
    full, remainder = divmod(rows, max_rows)
    allocations = [Allocation(None, max_rows)] * full
    if remainder:
        fits = next((s for s in open_segments if s.free_rows >= remainder), None)
        allocations.append(Allocation(fits.segment_id if fits else None, remainder))
    return allocations


@dataclass(slots=True)
class _Grant:
    segment_id: SegmentID
    rows: int
    expires: Timestamp


@dataclass(frozen=True, slots=True)
class Place:
    """``rows`` consecutive rows of a write that go to one segment."""

    segment_id: SegmentID
    rows: int


_Key = tuple[CollectionID, PartitionID, str]


class QuotaCache:
    """A proxy's unspent quota."""

    def __init__(self) -> None:
        self._grants: dict[_Key, deque[_Grant]] = {}

    def put(self, key: _Key, segment_id: SegmentID, rows: int, expires: Timestamp) -> None:
        self._grants.setdefault(key, deque()).append(_Grant(segment_id, rows, expires))

    def missing(self, key: _Key, rows: int, ts: Timestamp) -> int:
        """How many of ``rows`` rows stamped ``ts`` the unspent quota does not cover. Drops what expired."""
        grants = self._grants.get(key)
        if not grants:
            return rows
        for grant in [g for g in grants if g.expires < ts or g.rows <= 0]:
            grants.remove(grant)
        return max(0, rows - sum(g.rows for g in grants))

    def spend(self, key: _Key, rows: int) -> list[Place]:
        """Spend quota that `missing` said is there. Raises `ValueError` when it is not."""
        places = []
        grants = self._grants.get(key, deque())
        while rows:
            if not grants:
                raise ValueError(f"{rows} rows more than the quota of {key} covers")
            grant = grants[0]
            taken = min(rows, grant.rows)
            places.append(Place(grant.segment_id, taken))
            grant.rows -= taken
            rows -= taken
            if grant.rows == 0:
                grants.popleft()
        return places

    def give_back(self, collection_id: CollectionID) -> None:
        """Forget all quota of a collection."""
        for key in [k for k in self._grants if k[0] == collection_id]:
            del self._grants[key]
