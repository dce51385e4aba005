"""A proxy's segment allocations: requested ahead, used locally, and gone when they are returned."""

from __future__ import annotations

from collections.abc import Sized

from fakes import CID, DEFAULT, FakeData

from elanus.core.allocation import SegmentRows
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.segments import SegmentAssigner

NOW = Timestamp(1000)


async def test_small_writes_share_one_call_and_one_segment() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    places = [await assigner.assign(CID, DEFAULT, "v", 10, NOW) for _ in range(10)]
    assert places == [[SegmentRows(SegmentID(7001), 10)]] * 10
    assert [request.rows for (request,) in data.calls.of("allocate")] == [100]


async def test_a_large_write_asks_for_what_is_missing() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    await assigner.assign(CID, DEFAULT, "v", 60, NOW)
    places = await assigner.assign(CID, DEFAULT, "v", 500, NOW)
    assert places == [SegmentRows(SegmentID(7001), 40), SegmentRows(SegmentID(7002), 460)]
    assert [request.rows for (request,) in data.calls.of("allocate")] == [100, 460]


async def test_it_asks_again_until_it_has_enough() -> None:
    data = FakeData()
    data.rows_granted_max = 40
    places = await SegmentAssigner(data, rows_ahead=1).assign(CID, DEFAULT, "v", 100, NOW)
    assert [p.rows for p in places] == [40, 40, 20]


async def test_an_expired_allocation_is_not_used() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    data.expires = NOW
    await assigner.assign(CID, DEFAULT, "v", 10, NOW)
    data.expires = Timestamp(2000)
    assert await assigner.assign(CID, DEFAULT, "v", 10, Timestamp(NOW + 1)) == [
        SegmentRows(SegmentID(7002), 10)
    ]


async def test_after_a_return_the_next_write_requests_another_allocation() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    await assigner.assign(CID, DEFAULT, "v", 10, NOW)
    assigner.return_all(CID)
    assert await assigner.assign(CID, DEFAULT, "v", 10, NOW) == [SegmentRows(SegmentID(7002), 10)]


async def test_an_allocation_in_transit_while_all_are_returned_counts_as_returned() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)

    def seal() -> None:
        data.before_answer = lambda: None
        assigner.return_all(CID)

    data.before_answer = seal
    assert await assigner.assign(CID, DEFAULT, "v", 10, NOW) == [SegmentRows(SegmentID(7002), 10)]
    assert len(data.calls.of("allocate")) == 2


async def test_giving_back_another_collections_allocations_changes_nothing() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    data.before_answer = lambda: assigner.return_all(CollectionID(999))
    assert await assigner.assign(CID, DEFAULT, "v", 10, NOW) == [SegmentRows(SegmentID(7001), 10)]


async def test_nothing_is_kept_of_collections_whose_allocations_were_returned() -> None:
    """A proxy may see a million collections come and go."""
    assigner = SegmentAssigner(FakeData(), rows_ahead=100)
    for number in range(10):
        gone = CollectionID(1000 + number)
        await assigner.assign(gone, DEFAULT, "v", 10, NOW)
        assigner.return_all(gone)
    kept = [*vars(assigner).values(), *vars(assigner._allocations).values()]
    assert not [value for value in kept if isinstance(value, Sized) and len(value)]
