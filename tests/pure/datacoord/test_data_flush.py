"""Flush: seal, wait for the tick, order, commit; and every way it may be held up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from data_bench import EXPIRATION_MS, MAX_ROWS, SYNC_BYTES, Bench
from fakes import CID, FakeProxy, collection, pchannels_of, schema, settle

from elanus.api.datacoord import DataNodeTick
from elanus.api.datanode import FlushReason
from elanus.core.errors import CollectionNotFound, Unavailable
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.segments import SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms

S = SegmentState


def states(bench: Bench) -> dict[SegmentID, SegmentState]:
    return {s.segment_id: s.state for s in bench.coord.context.state.segments()}


async def test_a_flush_step_by_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    await bench.report({segment: 100})
    outcome = await coord.flush(CID)
    assert (outcome.sealed, outcome.flushed) == ((segment,), ())
    info = await bench.segment(segment)
    assert info.state is S.SEALED
    assert not await coord.flush_finished(CID, (segment,), outcome.flush_ts)

    await bench.report({segment: 100}, ts=Timestamp(info.sealed_at - 1))
    assert bench.node.calls.of("flush_segments") == [], "rows may still be on their way"
    await bench.report({segment: 100}, ts=info.sealed_at)
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, (segment,))]
    assert states(bench) == {segment: S.FLUSHING}

    await bench.commit({segment: 100}, flushed=[segment])
    assert states(bench) == {segment: S.FLUSHED}
    assert await coord.flush_finished(CID, (segment,), outcome.flush_ts)
    assert (await coord.flush(CID)).flushed == (segment,)
    await coord.stop()


async def test_a_flush_asks_proxies_for_their_allocations_and_rootcoord_for_a_tick(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.proxies.registered[NodeID(2)] = FakeProxy()  # its session is newer than datacoord's view
    coord = await bench.watched()
    segment = await bench.write(100)
    outcome = await coord.flush(CID)
    assert [p.calls.of("return_allocations") for p in bench.proxies.values()] == [[CID], [CID]]
    await settle()
    assert bench.root.calls.of("tick_now") == [(pchannels_of(bench.collections[0]), outcome.flush_ts)]
    info = await bench.segment(segment)
    assert outcome.flush_ts <= info.sealed_at < info.last_expire, "nothing to wait for"
    await coord.stop()


async def test_the_seal_is_stamped_after_the_last_allocation_has_come_back(tmp_path: Path) -> None:
    """A write that used its allocation just before was stamped earlier: its rows belong to the segment."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    stamps: list[Timestamp] = []

    async def return_allocations(_collection_id: CollectionID) -> Timestamp:
        await asyncio.sleep(0.5)
        stamps.append(bench.root.stamp())
        return NO_TIMESTAMP

    bench.proxies[NodeID(1)].return_allocations = return_allocations  # type: ignore[method-assign]
    await coord.flush(CID)
    assert (await bench.segment(segment)).sealed_at > stamps[0]
    await coord.stop()


async def test_the_seal_is_not_before_a_write_that_a_later_rootcoord_has_stamped(tmp_path: Path) -> None:
    """Datacoord may not know of the later one yet. Rows above a seal would never be flushed."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    stamped = Timestamp(bench.root.stamp() + (1 << 30))

    async def return_allocations(_collection_id: CollectionID) -> Timestamp:
        return stamped

    bench.proxies[NodeID(1)].return_allocations = return_allocations  # type: ignore[method-assign]
    await coord.flush(CID)
    assert (await bench.segment(segment)).sealed_at == stamped
    await coord.stop()


async def test_the_seal_is_stamped_after_the_log_refuses_the_proxies_that_are_gone(tmp_path: Path) -> None:
    """A proxy whose lease was revoked is not asked for its allocations, and may still believe in them."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    bench.proxies.leave(NodeID(1))
    written: list[Timestamp] = []

    async def fence_gone(pchannels: tuple[str, ...]) -> None:
        assert pchannels == pchannels_of(bench.collections[0])
        written.append(bench.root.stamp())  # the last entry that the log took of it

    bench.root.fence_gone = fence_gone  # type: ignore[method-assign]
    await coord.flush(CID)
    info = await bench.segment(segment)
    assert written[0] < info.sealed_at < info.last_expire
    await coord.stop()


async def test_without_fences_a_seal_waits_until_the_allocations_expire(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    bench.proxies.leave(NodeID(1))
    bench.root.calls.failing["fence_gone"] = Unavailable("the log takes no entry")
    await coord.flush(CID)
    info = await bench.segment(segment)
    assert info.sealed_at == info.last_expire
    await coord.stop()


@pytest.mark.parametrize("silent", [False, True])
async def test_an_allocation_that_does_not_come_back_is_waited_for_until_it_expires(
    tmp_path: Path, silent: bool
) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    if silent:
        bench.proxies[NodeID(1)].return_allocations = lambda _: asyncio.Event().wait()  # type: ignore
    else:
        bench.proxies[NodeID(1)].calls.failing["return_allocations"] = Unavailable("restarting")
    outcome = await coord.flush(CID)
    info = await bench.segment(segment)
    assert info.sealed_at == info.last_expire
    assert asyncio.get_running_loop().time() <= 1.0, "others wait for the coordinator"

    # rows written from now on are no matter of this flush
    other = await bench.write(10)
    assert other != segment
    bench.later(EXPIRATION_MS)
    await bench.report({segment: 100, other: 10})
    await bench.commit({segment: 100, other: 10}, flushed=[segment])
    assert await coord.flush_finished(CID, (segment,), outcome.flush_ts)
    await coord.stop()


async def test_a_flush_without_rows_is_finished_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    outcome = await coord.flush(CID)
    assert (outcome.sealed, outcome.flushed) == ((), ())
    assert outcome.flush_ts > 0
    assert await coord.flush_finished(CID, (), outcome.flush_ts)
    await coord.stop()


async def test_a_flush_of_what_is_not_there_or_dropped_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    with pytest.raises(CollectionNotFound):
        await coord.flush(CollectionID(999))
    await coord.drop_collection(CID)
    with pytest.raises(CollectionNotFound):
        await coord.flush(CID)
    await coord.stop()


async def test_a_sealed_segment_that_got_no_row_is_dropped_not_flushed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    outcome = await coord.flush(CID)
    changes = await coord.wait_change(0, 0)
    await bench.report({})
    assert states(bench) == {segment: S.DROPPED}
    assert bench.node.calls.of("flush_segments") == []
    assert await coord.flush_finished(CID, (segment,), outcome.flush_ts)
    assert await coord.wait_change(changes, 0) != changes
    await coord.stop()


async def test_a_segment_whose_rows_are_all_in_binlogs_is_not_empty(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    await bench.report({segment: 100})
    await bench.commit({segment: 100})
    await coord.flush(CID)
    await bench.report({})
    assert states(bench) == {segment: S.FLUSHING}
    await coord.stop()


async def test_a_flush_of_all_collections_waits_for_all_of_them(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path, collection(), other)
    coord = await bench.watched()
    mine = await bench.write(10)
    theirs = await bench.write(10, other.partitions[0].partition_id, other.vchannels[0], other.collection_id)
    flush_ts = max([(await coord.flush(c)).flush_ts for c in (CID, other.collection_id)])
    await bench.report({mine: 10})
    await bench.commit({mine: 10}, flushed=[mine])
    assert await coord.flush_finished(CID, (), flush_ts)
    assert not await coord.flush_finished(CollectionID(0), (), flush_ts)
    await bench.report({theirs: 10}, vchannel=other.vchannels[0])
    await bench.commit({theirs: 10}, flushed=[theirs], vchannel=other.vchannels[0])
    assert await coord.flush_finished(CollectionID(0), (), flush_ts)
    await coord.stop()


async def test_segments_nobody_knows_count_as_finished(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    assert await coord.flush_finished(CID, (SegmentID(1), SegmentID(2)), NO_TIMESTAMP)
    await coord.stop()


# orders


async def ready_to_flush(bench: Bench) -> SegmentID:
    await bench.watched()
    segment = await bench.write(100)
    await bench.report({segment: 100})
    await bench.coord.flush(CID)
    return segment


async def test_an_order_is_given_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await ready_to_flush(bench)
    for _ in range(3):
        await bench.report({segment: 100})
    assert len(bench.node.calls.of("flush_segments")) == 1
    await bench.coord.stop()


async def test_an_order_that_did_not_arrive_is_given_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await ready_to_flush(bench)
    bench.node.calls.failing["flush_segments"] = Unavailable("gone")
    await bench.report({segment: 100})
    bench.node.calls.failing.clear()
    await bench.report({segment: 100})
    await bench.report({segment: 100})
    assert len(bench.node.calls.of("flush_segments")) == 2
    await bench.coord.stop()


async def test_a_new_data_node_is_ordered_what_the_old_one_did_not_finish(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await ready_to_flush(bench)
    await bench.report({segment: 100})
    await bench.register()
    assert states(bench) == {segment: S.SEALED}
    await bench.report({segment: 100})
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, (segment,))]
    await bench.coord.stop()


async def test_an_order_that_a_replaced_node_took_is_given_to_its_successor(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    segment = await ready_to_flush(bench)
    old, go_on = bench.node, asyncio.Event()

    async def slowly(*_order: object) -> None:
        await go_on.wait()

    old.flush_segments = slowly  # type: ignore[method-assign]
    reporting = asyncio.ensure_future(bench.report({segment: 100}))
    await settle()
    await bench.register()
    go_on.set()  # the old node answers at last: it has taken the order
    await reporting
    await bench.report({segment: 100})
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, (segment,))]
    await bench.coord.stop()


async def test_an_order_for_one_node_does_not_go_to_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    await bench.watched()
    names = bench.collections[0].vchannels
    segments = [await bench.write(10, vchannel=name) for name in names]
    await bench.coord.flush(CID)
    old, go_on = bench.node, asyncio.Event()

    async def slowly(*_order: object) -> None:
        await go_on.wait()

    old.flush_segments = slowly  # type: ignore[method-assign]
    now = bench.root.stamp()
    ticks = [
        DataNodeTick(name, now, (await bench.recovery(name)).ts, {segment: 10}, 0)
        for name, segment in zip(names, segments, strict=True)
    ]
    reporting = asyncio.ensure_future(bench.coord.report_ticks(bench.epoch, tuple(ticks)))
    await settle()
    await bench.register()
    go_on.set()
    await reporting
    assert bench.node.calls.asked == [], "its segments are not FLUSHING any more"
    await bench.coord.stop()


async def test_a_vchannel_with_much_in_the_log_alone_is_synced(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    segment = await bench.write(100)
    await bench.report({segment: 50}, size_bytes=SYNC_BYTES - 1)
    assert bench.node.calls.of("sync") == []
    await bench.report({segment: 50}, size_bytes=SYNC_BYTES)
    assert bench.node.calls.of("sync") == [(bench.vchannel, ())]
    await bench.coord.stop()


async def test_a_flush_waits_a_bounded_time_for_a_tick(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    bench.root.tick_now = lambda *_: asyncio.Event().wait()  # type: ignore
    await bench.write(1)
    before = set(coord.role._background)
    await coord.flush(CID)
    await asyncio.sleep(60)
    assert coord.role._background == before
    await coord.stop()


async def test_time_in_a_seal_is_the_oracles(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(1)
    bench.later(77)
    await coord.flush(CID)
    assert physical_ms((await bench.segment(segment)).sealed_at) == bench.root.now_ms
    await coord.stop()


@pytest.mark.slow
async def test_flush_calls_of_a_careless_client_become_few_seals_and_none_is_refused(tmp_path: Path) -> None:
    """Ten thousand in a minute, over a collection that is written to all the while."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    sealed: set[SegmentID] = set()
    for call in range(10_000):
        if call % 100 == 0:
            await bench.write(1)
        outcome = await coord.flush(CID)
        sealed.update(outcome.sealed)
    assert len(sealed) == 100, "one seal per write, not one per call"
    segments = dict.fromkeys(sealed, 1)
    await bench.report(segments)
    ((_, ordered),) = bench.node.calls.of("flush_segments")
    assert set(ordered) == sealed, "one order for all"
    await bench.coord.stop()


async def test_an_order_says_why_and_who_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(10)
    for _ in range(3):
        await coord.flush(CID)
    await bench.report({segment: 10})
    assert bench.node.reasons == [FlushReason("flush call", ("3 flush calls",))]
    assert bench.node.epochs == [bench.epoch]
    await bench.report(size_bytes=SYNC_BYTES)
    assert bench.node.reasons[1:] == [FlushReason("size of the log")]
    await bench.commit({segment: 10}, [segment])
    full = await bench.write(MAX_ROWS)
    await bench.report({full: MAX_ROWS})
    await bench.restart()
    await bench.register()
    bench.later(EXPIRATION_MS * 2)
    await bench.report({full: MAX_ROWS})
    assert bench.node.reasons == [FlushReason("sealed before a restart")]
    await bench.coord.stop()


async def test_a_dropped_vchannel_is_awaited_no_longer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its flush was still to come: nobody reads the vchannel up to there any more."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await bench.report()
    await coord.flush(CID)
    assert not await coord.role._datanodes.order_range(bench.vchannel, bench.root.stamp())
    assert await coord.report_ticks(bench.epoch, ()) == (bench.vchannel,)
    await coord.drop_collection(CID)
    await coord.channel_dropped(bench.epoch, bench.vchannel)
    assert await coord.report_ticks(bench.epoch, ()) == ()
    assert not coord.role._datanodes._ticks
    await coord.stop()
