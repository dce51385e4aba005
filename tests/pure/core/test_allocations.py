"""Segment allocations: which rows fit where. A proxy uses no more than it holds and nothing that expired."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.allocation import Allocation, AllocationCache, OpenSegment, SegmentRows, allocate
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp

KEY = (CollectionID(1), PartitionID(2), "v")
OTHER = (CollectionID(1), PartitionID(3), "v")


def segment(number: int, free: int) -> OpenSegment:
    return OpenSegment(SegmentID(number), free)


def now(number: int) -> Timestamp:
    return Timestamp(number)


@pytest.mark.parametrize(
    ("rows", "open_segments", "expected"),
    [
        (40, [], [Allocation(None, 40)]),
        (40, [segment(1, 50)], [Allocation(SegmentID(1), 40)]),
        (40, [segment(1, 39), segment(2, 40)], [Allocation(SegmentID(2), 40)]),
        (40, [segment(1, 39), segment(2, 39)], [Allocation(None, 40)]),
        (100, [segment(1, 100)], [Allocation(None, 100)]),
        (250, [segment(1, 60)], [Allocation(None, 100), Allocation(None, 100), Allocation(SegmentID(1), 50)]),
        (250, [segment(1, 49)], [Allocation(None, 100), Allocation(None, 100), Allocation(None, 50)]),
        (0, [segment(1, 100)], []),
    ],
)
def test_whole_segments_first_then_the_first_that_has_room(
    rows: int, open_segments: list[OpenSegment], expected: list[Allocation]
) -> None:
    assert allocate(rows, open_segments, 100) == expected


@given(st.integers(0, 2000), st.lists(st.integers(-5, 120), max_size=5), st.integers(1, 100))
def test_all_rows_are_placed_and_no_segment_gets_more_than_it_has_room_for(
    rows: int, free: list[int], max_rows: int
) -> None:
    allocations = allocate(rows, [segment(n, f) for n, f in enumerate(free)], max_rows)
    assert sum(a.rows for a in allocations) == rows
    for allocation in allocations:
        room = max_rows if allocation.segment_id is None else free[allocation.segment_id]
        assert 0 < allocation.rows <= room


def test_allocations_are_used_oldest_first_over_several_segments() -> None:
    cache = AllocationCache()
    cache.put(KEY, SegmentID(7), 30, now(100))
    cache.put(KEY, SegmentID(8), 30, now(100))
    assert cache.missing(KEY, 40, now(50)) == 0
    assert cache.spend(KEY, 40) == [SegmentRows(SegmentID(7), 30), SegmentRows(SegmentID(8), 10)]
    assert cache.missing(KEY, 25, now(50)) == 5


def test_an_allocation_is_valid_up_to_its_expiry() -> None:
    cache = AllocationCache()
    cache.put(KEY, SegmentID(7), 30, now(100))
    cache.put(KEY, SegmentID(8), 20, now(200))
    assert cache.missing(KEY, 50, now(100)) == 0
    assert cache.missing(KEY, 50, now(101)) == 30
    assert cache.spend(KEY, 20) == [SegmentRows(SegmentID(8), 20)], "what expired is not spent"


def test_an_allocation_of_one_partition_is_not_used_for_another() -> None:
    cache = AllocationCache()
    cache.put(KEY, SegmentID(7), 30, now(100))
    assert cache.missing(OTHER, 10, now(50)) == 10


def test_spending_what_is_not_there_is_a_mistake() -> None:
    cache = AllocationCache()
    cache.put(KEY, SegmentID(7), 5, now(100))
    with pytest.raises(ValueError, match="1 rows more"):
        cache.spend(KEY, 6)


def test_giving_back_removes_all_allocations_of_the_collection_only() -> None:
    cache = AllocationCache()
    foreign = (CollectionID(9), PartitionID(2), "v")
    for key in (KEY, OTHER, foreign):
        cache.put(key, SegmentID(7), 30, now(100))
    cache.forget(CollectionID(1))
    assert [cache.missing(k, 30, now(1)) for k in (KEY, OTHER, foreign)] == [30, 30, 0]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 100)), max_size=6), st.integers(1, 200))
def test_what_is_missing_and_what_is_there_add_up(grants: list[tuple[int, int]], wanted: int) -> None:
    cache = AllocationCache()
    for number, (rows, expires) in enumerate(grants):
        cache.put(KEY, SegmentID(number), rows, now(expires))
    valid = {n: rows for n, (rows, expires) in enumerate(grants) if expires >= 40}
    missing = cache.missing(KEY, wanted, now(40))
    assert missing == max(0, wanted - sum(valid.values()))
    places = cache.spend(KEY, wanted - missing)
    assert sum(p.rows for p in places) == wanted - missing
    assert all(p.rows <= valid[p.segment_id] for p in places)
