"""Loading, handoff and recovery: what is served follows what is there, in an order that loses nothing."""

from __future__ import annotations

import asyncio

import pytest
from fakes import CID, DEFAULT, OTHER, FakeProxy, collection, index, manifest, recovery, schema, settle
from query_bench import NODE, Bench

from elanus.core.errors import CollectionNotFound, Unavailable
from elanus.core.ids import CollectionID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.storage.port import ObjectMissing

ONE = collection()
TWO_PARTITIONS = collection(partitions=(DEFAULT, OTHER))
IN_DEFAULT, IN_OTHER = manifest(1, partition_id=DEFAULT), manifest(2, partition_id=OTHER)


async def loaded(bench: Bench, *partition_ids: PartitionID) -> Bench:
    if CID not in bench.data.recoveries:
        bench.set_data(recovery(bench.collections[0]))
    await bench.start()
    await bench.coord.load(CID, partition_ids, 1)
    await settle()
    return bench


# loading


async def test_a_load_follows_then_loads_then_announces_then_serves() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER, growing=(manifest(3),)))
    await loaded(bench)
    steps = [name for name, _ in bench.node.calls.asked if name not in ("status", "pulse")]
    loads = ["load_collection", "watch_vchannel", "load_segment", "load_segment"]
    assert steps == [*loads, "announce", "set_partitions", "forget_deletes"]
    (request,) = bench.node.calls.of("load_collection")
    assert (request.whole_collection, request.partition_ids) == (True, (DEFAULT, OTHER))
    (watch,) = bench.node.calls.of("watch_vchannel")
    assert [m.segment_id for m in watch.growing] == [3]
    (change,) = bench.node.calls.of("announce")
    assert (change.version, change.online, change.offline) == (1, (1, 2), ())
    assert bench.node.held[CID].partitions == (DEFAULT, OTHER)
    await bench.coord.stop()


async def test_the_load_of_one_collection_is_reported_without_the_others() -> None:
    bench = await loaded(Bench())
    (status,) = await bench.coord.loads(CID)
    assert (status.collection_id, await bench.coord.loads()) == (CID, (status,))
    assert await bench.coord.loads(CollectionID(CID + 1)) == ()
    await bench.coord.stop()


async def test_a_collection_without_rows_is_announced_too() -> None:
    bench = await loaded(Bench())
    assert bench.node.held[CID].version == 1
    assert await bench.percentages() == {DEFAULT: 100}
    await bench.coord.stop()


async def test_loading_a_partition_serves_it_alone() -> None:
    bench = Bench(TWO_PARTITIONS)
    growing = (manifest(3, partition_id=DEFAULT), manifest(4, partition_id=OTHER))
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER, growing=growing))
    await loaded(bench, OTHER)
    assert bench.node.served() == {2}
    assert [m.segment_id for m in bench.node.calls.of("watch_vchannel")[0].growing] == [4]
    assert not bench.node.calls.of("load_collection")[0].whole_collection
    assert await bench.percentages() == {OTHER: 100}
    await bench.coord.load(CID, (DEFAULT,), 1)
    await settle()
    assert bench.node.served() == {1, 2}
    assert await bench.percentages() == {DEFAULT: 100, OTHER: 100}
    await bench.coord.stop()


async def test_loading_again_what_is_loaded_does_nothing() -> None:
    bench = await loaded(Bench())
    before = len(bench.node.calls.of("load_collection"))
    await bench.coord.load(CID, (), 1)
    await settle()
    assert len(bench.node.calls.of("load_collection")) == before
    await bench.coord.stop()


async def test_what_does_not_exist_is_not_loaded() -> None:
    bench = Bench()
    coord = await bench.start()
    with pytest.raises(CollectionNotFound):
        await coord.load(CollectionID(999), (), 1)
    assert await bench.meta.list("querycoord/") == []
    await coord.stop()


async def test_a_load_is_complete_when_it_answers_as_of_its_beginning() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    bench.node.tick = Timestamp(1)
    await loaded(bench)
    assert bench.node.served() == {1, 2}
    assert await bench.percentages() == {DEFAULT: 99, OTHER: 99}, "it has not caught up with its vchannel"
    ((pchannels, load_ts),) = bench.root.calls.of("tick_now")
    assert pchannels == ("by-dev-rootcoord-dml_0",)
    bench.node.tick = load_ts
    assert await bench.percentages() == {DEFAULT: 100, OTHER: 100}
    await bench.coord.stop()


async def test_progress_is_counted_by_partition() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, manifest(5), IN_OTHER))
    load_segment = bench.node.load_segment

    async def stuck(request):  # type: ignore[no-untyped-def]
        if request.manifest.segment_id == 2:
            await asyncio.Event().wait()
        return await load_segment(request)

    bench.node.load_segment = stuck  # type: ignore[method-assign]
    await loaded(bench)
    percentages = await bench.percentages()
    assert percentages[OTHER] == 0
    assert 50 <= percentages[DEFAULT] < 100
    await bench.coord.stop()


async def test_partitions_asked_for_during_a_look_are_not_taken_for_loaded() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    recovery_info = bench.data.recovery_info
    looks, looking, go_on = 0, asyncio.Event(), asyncio.Event()

    async def slow_look(collection_id: CollectionID, held: tuple[SegmentID, ...]):  # type: ignore[no-untyped-def]
        nonlocal looks
        looks += 1
        if looks == 2:  # the first one is the call's own
            looking.set()
            await go_on.wait()
        return await recovery_info(collection_id, held)

    bench.data.recovery_info = slow_look  # type: ignore[method-assign]
    coord = await bench.start()
    await coord.load(CID, (DEFAULT,), 1)
    await looking.wait()
    await coord.load(CID, (OTHER,), 1)
    load_segment = bench.node.load_segment

    async def not_other(request):  # type: ignore[no-untyped-def]
        if request.manifest.segment_id == 2:
            await asyncio.Event().wait()
        return await load_segment(request)

    bench.node.load_segment = not_other  # type: ignore[method-assign]
    go_on.set()
    await settle()
    assert bench.node.served() == {1}
    assert (await bench.percentages())[OTHER] < 100
    await coord.stop()


# handoff


async def test_a_flushed_segment_takes_the_growing_ones_place_in_one_step() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, growing=(manifest(1),)))
    await loaded(bench)
    bench.set_data(recovery(ONE, manifest(1), ms=20))
    await settle()
    first, second = bench.node.calls.of("announce")
    assert (second.version, second.online, second.offline) == (first.version + 1, (1,), ())
    (request,) = bench.node.calls.of("load_segment")
    assert request.checkpoint.ts == bench.data.recoveries[CID].vchannels[0].checkpoint.ts
    assert bench.node.calls.of("forget_deletes")[-1][2] == request.checkpoint.ts
    await bench.coord.stop()


async def test_nothing_is_announced_before_it_is_loaded() -> None:
    bench = await loaded(Bench())
    load_segment, go_on = bench.node.load_segment, asyncio.Event()

    async def slow(request):  # type: ignore[no-untyped-def]
        await go_on.wait()
        return await load_segment(request)

    bench.node.load_segment = slow  # type: ignore[method-assign]
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    await settle()
    assert len(bench.node.calls.of("announce")) == 1
    go_on.set()
    await settle()
    assert bench.node.calls.of("announce")[-1].online == (1, 2), "both in one version"
    await bench.coord.stop()


async def test_a_segment_that_is_gone_goes_offline() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    await loaded(bench)
    bench.set_data(recovery(ONE, manifest(2)))
    await settle()
    assert bench.node.calls.of("announce")[-1].offline == (1,)
    assert bench.node.served() == {2}
    await bench.coord.stop()


async def test_no_change_is_no_new_version() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    for _ in range(3):
        bench.data.changes.happened()
        await settle()
    assert len(bench.node.calls.of("announce")) == 1
    await bench.coord.stop()


async def test_an_index_that_was_built_takes_the_place_of_the_raw_copy() -> None:
    bench = Bench()
    bench.index.defined.append(index(90))
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    assert bench.node.indexes_of(1) == []
    bench.add_file(manifest(1))
    await settle()
    assert bench.node.indexes_of(1) == [90]
    change = bench.node.calls.of("announce")[-1]
    assert (change.version, change.online, change.offline) == (2, (1,), ())
    assert bench.node.served_before_announce[-1] == {1}, "the raw copy served until then"
    await bench.coord.stop()


async def test_every_vectors_index_is_waited_for() -> None:
    bench = Bench(collection(schema(vectors=2)))
    bench.index.defined += [index(90, 102), index(91, 103, "v1")]
    bench.set_data(recovery(bench.collections[0], manifest(1)))
    bench.add_file(manifest(1), 90, 102)
    await loaded(bench)
    assert bench.node.indexes_of(1) == [90]
    bench.add_file(manifest(1), 91, 103)
    await settle()
    assert bench.node.indexes_of(1) == [90, 91]
    await bench.coord.stop()


async def test_a_file_that_cannot_be_read_delays_the_load_and_does_not_end_it() -> None:
    bench = await loaded(Bench())
    load_segment = bench.node.load_segment
    attempts: list[int] = []

    async def failing(request):  # type: ignore[no-untyped-def]
        attempts.append(request.manifest.segment_id)
        if len(attempts) < 4:
            raise ObjectMissing("index/1")
        return await load_segment(request)

    bench.node.load_segment = failing  # type: ignore[method-assign]
    bench.set_data(recovery(ONE, manifest(1)))
    await asyncio.sleep(60)
    assert bench.node.served() == {1}
    await bench.coord.stop()


# release


async def test_a_release_forgets_the_load_and_frees_the_node() -> None:
    bench = await loaded(Bench())
    await bench.coord.release(CID, ())
    await bench.coord.release(CID, ())
    assert bench.node.calls.of("release_collection") == [CID]
    assert bench.proxy.calls.of("release_query_channels") == [CID]
    assert await bench.coord.loads() == ()
    bench.set_data(recovery(ONE, manifest(1)))
    await asyncio.sleep(5)
    assert bench.node.held == {}
    await bench.restart()
    await asyncio.sleep(5)
    assert bench.node.held == {}
    await bench.coord.stop()


async def test_proxies_that_leave_during_a_release_do_not_fail_it() -> None:
    class Leaving(FakeProxy):
        async def release_query_channels(self, collection_id: CollectionID) -> None:
            bench.proxies.clear()

    bench = Bench()
    bench.proxies |= {NodeID(n): Leaving() for n in (2, 3)}
    await loaded(bench)
    await bench.coord.release(CID, ())
    assert await bench.coord.loads() == ()
    await bench.coord.stop()


async def released_without_the_node() -> Bench:
    bench = await loaded(Bench())
    bench.node.calls.failing["release_collection"] = Unavailable("the call was lost")
    await bench.coord.release(CID, ())
    assert await bench.coord.loads() == ()
    assert bench.proxy.calls.of("release_query_channels") == [CID]
    bench.node.calls.failing.clear()
    return bench


async def test_a_node_that_missed_a_release_gets_it_later() -> None:
    bench = await released_without_the_node()
    assert CID in bench.node.held
    await asyncio.sleep(5)
    assert bench.node.held == {}
    await bench.coord.stop()


async def test_a_load_starts_again_on_a_node_that_missed_the_release_before() -> None:
    bench = await released_without_the_node()
    of_the_load_before = bench.node.held[CID]
    await bench.coord.load(CID, (), 1)
    await settle()
    assert bench.node.held[CID] is not of_the_load_before, "its growing rows may be in segments by now"
    assert bench.node.held[CID].version == 1
    releases = len(bench.node.calls.of("release_collection"))
    await asyncio.sleep(5)
    assert len(bench.node.calls.of("release_collection")) == releases, "it stays"
    await bench.coord.stop()


async def test_releasing_a_partition_leaves_the_others() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    await loaded(bench)
    await bench.coord.release(CID, (DEFAULT,))
    assert bench.node.held[CID].partitions == (OTHER,), "when the call returns"
    await settle()
    assert bench.node.served() == {2}
    assert bench.node.held[CID].partitions == (OTHER,)
    assert await bench.percentages() == {OTHER: 100}
    await bench.coord.release(CID, (OTHER,))
    assert bench.node.held == {}
    assert await bench.coord.loads() == ()
    await bench.coord.stop()


async def test_releasing_what_is_not_loaded_does_nothing() -> None:
    bench = Bench(TWO_PARTITIONS)
    await loaded(bench, OTHER)
    await bench.coord.release(CID, (DEFAULT,))
    await settle()
    assert await bench.percentages() == {OTHER: 100}
    await bench.coord.stop()


async def test_a_release_during_a_load_ends_it() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    bench.node.load_segment = lambda _: asyncio.Event().wait()  # type: ignore
    await loaded(bench)
    await bench.coord.release(CID, ())
    await asyncio.sleep(60)
    assert bench.node.held == {}
    await bench.coord.stop()


async def test_a_dropped_collection_is_let_go_without_more_ado() -> None:
    bench = await loaded(Bench())
    bench.root.collections.clear()
    del bench.data.recoveries[CID]
    bench.data.changes.happened()
    await settle()
    assert await bench.coord.loads() == ()
    await bench.coord.release(CID, ())
    assert bench.node.held == {}
    await bench.coord.stop()


async def test_a_partition_created_later_is_served_when_all_are() -> None:
    bench = await loaded(Bench())
    bench.root.collections[CID] = TWO_PARTITIONS
    bench.set_data(recovery(TWO_PARTITIONS, IN_OTHER))
    await settle()
    assert bench.node.served() == {2}
    assert await bench.percentages() == {DEFAULT: 100, OTHER: 100}
    await bench.coord.stop()


# restarts


async def test_a_restarted_coordinator_takes_up_what_was_loaded_where_it_stands() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    await loaded(bench, OTHER)
    await bench.restart()
    await settle()
    assert bench.node.served() == {2}
    assert len(bench.node.calls.of("announce")) == 1, "there was nothing to change"
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER, manifest(9, partition_id=OTHER)))
    await settle()
    assert bench.node.calls.of("announce")[-1].version == 2
    await bench.coord.stop()


async def test_a_restarted_node_is_loaded_again_though_no_data_has_changed() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    bench.node.restart()
    await asyncio.sleep(2)
    assert bench.node.served() == {1}
    assert await bench.percentages() == {DEFAULT: 100}
    await bench.coord.stop()


async def test_a_node_that_is_away_is_loaded_when_it_is_back() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    bench.node.restart()
    for method in ("status", "load_collection"):
        bench.node.calls.failing[method] = Unavailable("restarting")
    await asyncio.sleep(10)
    bench.node.calls.failing.clear()
    await asyncio.sleep(20)
    assert bench.node.served() == {1}
    await bench.coord.stop()


async def test_a_vchannel_whose_following_failed_is_followed_again() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    bench.node.failures[ONE.vchannels[0]] = "CorruptLog: a frame"
    await asyncio.sleep(2)
    calls = bench.node.calls
    assert (calls.of("give_up_vchannel"), calls.of("release_collection")) == ([ONE.vchannels[0]], [])
    assert bench.node.served() == {1}
    assert len(calls.of("watch_vchannel")) >= 2
    await bench.coord.stop()


async def test_an_undisturbed_node_is_left_in_peace() -> None:
    bench = await loaded(Bench())
    await asyncio.sleep(61)
    bench.node.calls.asked.clear()
    await asyncio.sleep(60)
    assert {name for name, _ in bench.node.calls.asked} == {"pulse"}
    assert len(bench.node.calls.asked) <= 61
    await bench.coord.stop()


@pytest.mark.parametrize("who", ["data", "index"])
async def test_a_change_of_another_collection_is_not_looked_at(who: str) -> None:
    bench = await loaded(Bench())
    changes = getattr(bench, who).changes
    bench.data.calls.asked.clear()
    changes.happened(CollectionID(CID + 1))
    await asyncio.sleep(10)
    assert bench.data.calls.of("recovery_info") == []
    changes.happened(CID)
    await asyncio.sleep(1)
    assert bench.data.calls.of("recovery_info") == [CID]
    changes.happened()
    await asyncio.sleep(1)
    assert bench.data.calls.of("recovery_info") == [CID, CID]
    await bench.coord.stop()


@pytest.mark.parametrize("who", ["data", "index"])
async def test_a_coordinator_that_is_away_is_followed_again_when_it_is_back(who: str) -> None:
    bench = await loaded(Bench())
    peer = getattr(bench, who)
    peer.calls.failing["wait_change"] = Unavailable("restarting")
    await asyncio.sleep(10)
    bench.data.recoveries[CID] = recovery(ONE, manifest(1))
    peer.changes.happened()
    await asyncio.sleep(10)
    assert bench.node.served() == set()
    peer.calls.failing.clear()
    await asyncio.sleep(2)
    assert bench.node.served() == {1}
    await bench.coord.stop()


async def test_what_is_served_is_shown_with_its_node() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    ((node_id, serving),) = await bench.coord.serving(CID)
    assert (node_id, serving.segment_id, serving.index_id) == (NODE, 1, IndexID(0))
    assert await bench.coord.serving(CollectionID(9)) == ()
    await bench.coord.stop()
