"""A proxy's segment quota: asked for ahead, spent locally, and gone the moment it is given back."""

from __future__ import annotations

from fakes import CID, DEFAULT, FakeData

from elanus.core.ids import CollectionID, SegmentID
from elanus.core.quota import Place
from elanus.core.timestamps import Timestamp
from elanus.proxy.segments import SegmentAssigner

NOW = Timestamp(1000)


async def test_small_writes_share_one_call_and_one_segment() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    places = [await assigner.assign(CID, DEFAULT, "v", 10, NOW) for _ in range(10)]
    assert places == [[Place(SegmentID(7001), 10)]] * 10
    assert [request.rows for (request,) in data.calls.of("assign_quota")] == [100]


async def test_a_large_write_asks_for_what_is_missing() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    await assigner.assign(CID, DEFAULT, "v", 60, NOW)
    places = await assigner.assign(CID, DEFAULT, "v", 500, NOW)
    assert places == [Place(SegmentID(7001), 40), Place(SegmentID(7002), 460)]
    assert [request.rows for (request,) in data.calls.of("assign_quota")] == [100, 460]


async def test_it_asks_again_until_it_has_enough() -> None:
    data = FakeData()
    data.rows_granted_max = 40
    places = await SegmentAssigner(data, rows_ahead=1).assign(CID, DEFAULT, "v", 100, NOW)
    assert [p.rows for p in places] == [40, 40, 20]


async def test_expired_quota_is_not_spent() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    data.expires = NOW
    await assigner.assign(CID, DEFAULT, "v", 10, NOW)
    data.expires = Timestamp(2000)
    assert await assigner.assign(CID, DEFAULT, "v", 10, Timestamp(NOW + 1)) == [Place(SegmentID(7002), 10)]


async def test_after_giving_back_the_next_write_asks_anew() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    await assigner.assign(CID, DEFAULT, "v", 10, NOW)
    assigner.give_back(CID)
    assert await assigner.assign(CID, DEFAULT, "v", 10, NOW) == [Place(SegmentID(7002), 10)]


async def test_quota_on_its_way_while_all_is_given_back_counts_as_given_back() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)

    def seal() -> None:
        data.before_answer = lambda: None
        assigner.give_back(CID)

    data.before_answer = seal
    assert await assigner.assign(CID, DEFAULT, "v", 10, NOW) == [Place(SegmentID(7002), 10)]
    assert len(data.calls.of("assign_quota")) == 2


async def test_giving_back_another_collections_quota_disturbs_nobody() -> None:
    data = FakeData()
    assigner = SegmentAssigner(data, rows_ahead=100)
    data.before_answer = lambda: assigner.give_back(CollectionID(999))
    assert await assigner.assign(CID, DEFAULT, "v", 10, NOW) == [Place(SegmentID(7001), 10)]
