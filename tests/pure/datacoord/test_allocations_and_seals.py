"""An allocation expires, and a segment is sealed for a reason."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from data_bench import EXPIRATION_MS, MAX_ROWS, Bench
from fakes import CID, DEFAULT, OTHER, FakeLease, collection
from whole_coord import Coord

from elanus.api.datacoord import AllocationRequest
from elanus.core.errors import CollectionNotFound, LeaseLost, PartitionNotFound
from elanus.core.ids import CollectionID
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp, compose, physical_ms

S = SegmentState


async def test_an_allocation_is_for_one_partition_and_vchannel(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2, partitions=(DEFAULT, OTHER)))
    await bench.watched()
    one, two = bench.collections[0].vchannels
    segments = [
        await bench.write(10, DEFAULT, one),
        await bench.write(10, DEFAULT, two),
        await bench.write(10, OTHER, one),
    ]
    assert len(set(segments)) == 3
    assert await bench.write(10, DEFAULT, one) == segments[0], "there is room in it"
    await bench.coord.stop()


async def test_no_segment_is_opened_in_a_partition_that_is_dropped(tmp_path: Path) -> None:
    """The write was stamped before the drop, by a proxy that did not know of it."""
    bench = Bench(tmp_path, collection(partitions=(DEFAULT, OTHER)))
    coord = await bench.watched()
    segment = await bench.write(10, OTHER)
    bench.root.collections[CID] = collection(partitions=(DEFAULT,))  # the drop begins there
    assert await bench.write(10, OTHER) == segment, "which is dropped when it gets here"
    await coord.drop_partition(CID, OTHER)
    assert (await bench.segment(segment)).state is S.DROPPED
    for _ in range(2):
        with pytest.raises(PartitionNotFound, match=f"partition={OTHER}"):
            await bench.write(10, OTHER)
        await bench.restart()
    await bench.write(10, DEFAULT)
    await bench.coord.stop()


async def test_a_promise_expires_and_says_when(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    (allocation,) = await bench.coord.allocate((AllocationRequest(CID, DEFAULT, bench.vchannel, 10),))
    assert physical_ms(allocation.expires) == bench.root.now_ms + EXPIRATION_MS
    assert (await bench.segment(allocation.segment_id)).last_expire == allocation.expires
    await bench.coord.stop()


async def test_no_more_is_promised_than_fits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    first = await bench.write(600)
    second = await bench.write(600)
    assert second != first
    assert await bench.write(400) == first
    assert await bench.write(1) == second
    await bench.coord.stop()


async def test_a_promise_that_has_expired_makes_room_less_what_was_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    first = await bench.write(600)
    bench.later(EXPIRATION_MS + 1)
    await bench.report({first: 250})
    assert await bench.write(700) == first
    await bench.coord.stop()


async def test_a_commit_leaves_no_room_for_rows_that_lie_in_the_log_beyond_it(tmp_path: Path) -> None:
    """The data node has read and reported them; until it reports again nobody else knows of them."""
    bench = Bench(tmp_path)
    await bench.watched()
    first = await bench.write(600)
    await bench.report({first: 600})
    bench.later(EXPIRATION_MS + 1)
    await bench.report({first: 600})
    await bench.commit({first: 400})
    assert await bench.write(401) != first
    assert await bench.write(400) == first
    await bench.coord.stop()


async def test_a_report_that_another_has_overtaken_makes_no_room(tmp_path: Path) -> None:
    """Promises have expired with the later one: the rows that they brought are counted by it alone."""
    bench = Bench(tmp_path)
    await bench.watched()
    first = await bench.write(600)
    before = bench.root.stamp()
    bench.later(EXPIRATION_MS + 1)
    await bench.report({first: 600})
    await bench.report({first: 100}, ts=before)
    assert await bench.write(401) != first
    await bench.coord.stop()


async def test_a_large_request_fills_whole_segments(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    request = AllocationRequest(CID, DEFAULT, bench.vchannel, 2 * MAX_ROWS + 5)
    allocations = await bench.coord.allocate((request,))
    assert [q.rows for q in allocations] == [MAX_ROWS, MAX_ROWS, 5]
    assert len({q.segment_id for q in allocations}) == 3
    await bench.coord.stop()


async def test_there_are_no_allocations_for_what_does_not_exist_or_is_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    with pytest.raises(CollectionNotFound):
        await bench.write(vchannel="by-dev-rootcoord-dml_0_999v0", collection_id=CollectionID(999))
    await bench.coord.drop_collection(CID)
    with pytest.raises(CollectionNotFound):
        await bench.write()
    await bench.coord.stop()


@pytest.mark.parametrize(
    ("rows", "later_ms", "sealed"),
    [
        (749, 100, False),
        (750, 100, True),
        (1, EXPIRATION_MS + 599_000, False),
        (1, EXPIRATION_MS + 601_000, True),
        (0, 10_000_000, False),
    ],
)
async def test_segments_are_sealed_by_size_and_idleness(
    tmp_path: Path, rows: int, later_ms: int, sealed: bool
) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(800)
    bench.later(later_ms)
    await bench.report({segment: rows} if rows else {})
    assert ((await bench.segment(segment)).state is not S.GROWING) is sealed
    await bench.coord.stop()


async def test_a_segment_in_use_is_sealed_when_it_is_old(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(1)
    for _ in range(7):
        bench.later(550_000)
        await bench.report({segment: 1})
        if (await bench.segment(segment)).state is S.GROWING:
            assert await bench.write(1) == segment
    assert (await bench.segment(segment)).state is not S.GROWING
    assert await bench.write(1) != segment
    await bench.coord.stop()


async def test_a_seal_by_policy_waits_for_outstanding_allocations(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(800)
    expires = (await bench.segment(segment)).last_expire
    await bench.report({segment: 800})
    info = await bench.segment(segment)
    assert (info.state, info.sealed_at) == (S.SEALED, expires)
    await bench.report({segment: 800}, ts=compose(physical_ms(expires) - 1))
    assert bench.node.calls.of("flush_segments") == []
    await bench.report({segment: 800}, ts=expires)
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, (segment,))]
    await bench.coord.stop()


async def test_a_restarted_coordinator_counts_on_promises_it_no_longer_knows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(600)
    bench.later(1000)
    coord = await bench.restart()
    info = await bench.segment(segment)
    assert info.state is S.GROWING
    assert physical_ms(info.last_expire) == bench.root.now_ms + EXPIRATION_MS
    await bench.register()
    assert await bench.write(100) != segment, "who knows what was promised of it"
    bench.later(EXPIRATION_MS + 1)
    await bench.report({segment: 600})
    assert await bench.write(100) == segment
    await coord.stop()


async def test_rows_are_those_in_binlogs_and_those_seen_in_the_log(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(100)
    assert (await bench.segment(segment)).rows == 0
    await bench.report({segment: 30})
    assert (await bench.segment(segment)).rows == 30
    await bench.commit({segment: 25})
    assert (await bench.segment(segment)).rows == 30
    await bench.report({segment: 5})
    assert (await bench.segment(segment)).rows == 30
    await bench.report({segment: 30}, checkpoint_ts=compose(1))
    assert (await bench.segment(segment)).rows == 30, "that report counts from before the commit"
    await bench.report({})
    assert (await bench.segment(segment)).rows == 25
    await bench.coord.stop()


async def test_room_that_a_successor_has_sealed_is_not_promised(tmp_path: Path) -> None:
    """The lease ends while the promise is being made. It needs no transaction, which would be refused."""
    bench = Bench(tmp_path)
    former = await bench.watched()
    segment = await bench.write(10)
    lease, bench.lease = bench.lease, FakeLease()
    successor = await bench.start()
    await bench.register()
    alloc_timestamp = bench.root.alloc_timestamp

    async def meanwhile(count: int) -> Timestamp:
        now = await alloc_timestamp(count)
        bench.root.alloc_timestamp = alloc_timestamp  # type: ignore[method-assign]
        lease.calls.failing["confirm"] = LeaseLost("the session of datacoord 1 is over")
        await successor.flush(CID)
        return now

    bench.root.alloc_timestamp = meanwhile  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        await former.allocate((AllocationRequest(CID, DEFAULT, bench.vchannel, 10),))
    assert (await bench.segment(segment)).state is S.SEALED
    assert await bench.write(10) != segment
    await former.stop()
    await successor.stop()


@pytest.mark.parametrize(
    "ask",
    [
        lambda coord: coord.allocate((AllocationRequest(CID, DEFAULT, "made by the successor", 10),)),
        lambda coord: coord.flush(CID),
        lambda coord: coord.flush_finished(CID, (), compose(1)),
        lambda coord: coord.holds_channels(CID),
    ],
    ids=["no such vchannel", "flush", "flush finished", "holds channels"],
)
async def test_what_others_rely_on_is_not_answered_by_one_that_was_replaced(
    tmp_path: Path, ask: Callable[[Coord], Coroutine[Any, Any, object]]
) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    bench.lease.calls.failing["confirm"] = LeaseLost("another one is active")
    with pytest.raises(LeaseLost, match="another one"):
        await ask(coord)
    await coord.stop()
