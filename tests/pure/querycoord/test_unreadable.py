"""A file that cannot be read concerns its segment alone: the others load and are handed off."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fakes import CID, DEFAULT, OTHER, index, manifest, recovery
from query_bench import Bench
from test_loading import ONE, TWO_PARTITIONS, loaded

from elanus.api.querycoord import UnreadableSegment
from elanus.api.querynode import SegmentServing
from elanus.api.recovery import DamagedManifest
from elanus.core.errors import StoreAway, Unavailable
from elanus.core.heirs import Heirs
from elanus.core.ids import IndexID, SegmentID
from elanus.querycoord.handoff import Handoff, decide, has_rows, hold_back
from elanus.querycoord.served import Served
from elanus.querycoord.unreadable import PAUSE_MAX_S, PAUSE_S, UnreadableSegments

V = manifest(1).vchannel


def tries(bench: Bench, segment_id: int) -> int:
    return sum(r.manifest.segment_id == segment_id for r in bench.node.calls.of("load_segment"))


async def test_of_three_flushed_segments_the_two_that_can_be_read_are_handed_off() -> None:
    bench = await loaded(Bench())
    bench.node.growing = {SegmentID(s): V for s in (1, 2, 3)}
    bench.node.damaged_rows = {2}
    bench.set_data(recovery(ONE, manifest(1), manifest(2), manifest(3)))
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 3}
    assert bench.node.calls.of("announce")[-1].missing == {}, "its growing rows still serve"
    (status,) = await bench.coord.loads(CID)
    assert status.unreadable == (
        UnreadableSegment(SegmentID(2), DEFAULT, "segment 2: its file is damaged", missing=False),
    )
    assert status.percentages == {DEFAULT: 100}
    await bench.coord.stop()


async def test_a_load_brings_up_the_rest_and_says_what_it_lacks() -> None:
    bench = Bench(TWO_PARTITIONS)
    parts = (manifest(1), manifest(2, partition_id=OTHER), manifest(3))
    bench.set_data(recovery(TWO_PARTITIONS, *parts))
    bench.node.damaged_rows = {2}
    await loaded(bench)
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 3}
    (gap,) = bench.node.calls.of("announce")[-1].missing.items()
    assert (gap[0], gap[1].partition_id, gap[1].reason) == (2, OTHER, "segment 2: its file is damaged")
    (status,) = await bench.coord.loads(CID)
    assert status.percentages == {DEFAULT: 99, OTHER: 0}
    assert [one.missing for one in status.unreadable] == [True]
    (info,) = await bench.coord.query_channels(CID)
    assert dict(info.missing) == dict([gap])
    await bench.coord.stop()


async def test_it_is_tried_again_after_growing_pauses_and_served_when_it_can_be_read() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    bench.node.damaged_rows = {2}
    await loaded(bench)
    await asyncio.sleep(1)
    versions = len(bench.node.calls.of("announce"))
    assert tries(bench, 2) == 1
    await asyncio.sleep(PAUSE_S)
    assert tries(bench, 2) == 2
    await asyncio.sleep(PAUSE_S)
    assert tries(bench, 2) == 2, "the second pause is longer"
    await asyncio.sleep(2 * PAUSE_MAX_S)
    assert tries(bench, 2) < 12
    assert tries(bench, 1) == 2, "the others are asked for when it failed first, and to be announced"
    assert len(bench.node.calls.of("announce")) == versions, "nothing new is announced meanwhile"
    bench.node.damaged_rows = set()
    await asyncio.sleep(PAUSE_MAX_S + 1)
    assert bench.node.served() == {1, 2}
    assert bench.node.calls.of("announce")[-1].missing == {}
    (status,) = await bench.coord.loads(CID)
    assert (status.unreadable, status.percentages) == ((), {DEFAULT: 100})
    await bench.coord.stop()


async def test_a_later_coordinator_keeps_the_reads_refused() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    bench.node.damaged_rows = {2}
    await loaded(bench)
    await asyncio.sleep(1)
    await bench.restart()
    (info,) = await bench.coord.query_channels(CID)
    assert set(info.missing) == {2}
    await asyncio.sleep(1)
    assert bench.node.calls.of("announce")[-1].missing.keys() == {2}
    await bench.coord.stop()


async def test_a_segment_that_is_dropped_is_no_longer_missing() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    bench.node.damaged_rows = {2}
    await loaded(bench)
    await asyncio.sleep(1)
    bench.set_data(recovery(ONE, manifest(1)))
    await asyncio.sleep(1)
    assert bench.node.calls.of("announce")[-1].missing == {}
    assert await bench.percentages() == {DEFAULT: 100}
    await bench.coord.stop()


async def test_a_damaged_index_is_built_again_and_the_rows_serve_meanwhile() -> None:
    bench = Bench()
    bench.index.defined = [index()]
    bench.set_data(recovery(ONE, manifest(1)))
    bench.add_file(manifest(1))
    bench.node.damaged_indexes = {"index/1"}
    await loaded(bench)
    await asyncio.sleep(1)
    assert bench.node.served() == {1}
    assert bench.node.indexes_of(1) == []
    assert bench.index.calls.of("rebuild") == [(CID, "index/1")]
    assert tries(bench, 1) == 1
    assert await bench.percentages() == {DEFAULT: 100}
    bench.node.damaged_indexes = set()
    bench.add_file(manifest(1))
    await asyncio.sleep(1)
    assert bench.node.indexes_of(1) == [IndexID(90)]
    await bench.coord.stop()


async def test_an_indexed_copy_that_cannot_be_read_leaves_the_raw_one_in_service() -> None:
    bench = Bench()
    bench.index.defined = [index()]
    bench.set_data(recovery(ONE, manifest(1)))
    await loaded(bench)
    bench.node.damaged_rows = {1}
    bench.add_file(manifest(1))
    await asyncio.sleep(1)
    assert bench.node.served() == {1}
    assert bench.node.indexes_of(1) == []
    (status,) = await bench.coord.loads(CID)
    assert [one.missing for one in status.unreadable] == [False]
    assert status.percentages == {DEFAULT: 100}
    await bench.coord.stop()


async def test_inputs_serve_on_while_the_output_of_a_compaction_cannot_be_read() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    await loaded(bench)
    bench.node.damaged_rows = {9}
    output = replace(manifest(9), parents=(SegmentID(1), SegmentID(2)))
    successors = {SegmentID(1): SegmentID(9), SegmentID(2): SegmentID(9)}
    bench.set_data(replace(recovery(ONE, output), successors=successors))
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 2}
    (status,) = await bench.coord.loads(CID)
    assert [one.missing for one in status.unreadable] == [False]
    bench.node.damaged_rows = set()
    await asyncio.sleep(PAUSE_S + 1)
    assert bench.node.served() == {9}
    await bench.coord.stop()


async def test_a_damaged_manifest_leaves_out_its_segment_alone() -> None:
    bench = Bench(TWO_PARTITIONS)
    intact, damaged = manifest(1), DamagedManifest(manifest(2, partition_id=OTHER), "manifests/2 is damaged")
    bench.set_data(replace(recovery(TWO_PARTITIONS, intact), damaged=(damaged,)))
    await loaded(bench)
    await asyncio.sleep(1)
    assert bench.node.served() == {1}
    (gap,) = bench.node.calls.of("announce")[-1].missing.values()
    assert gap.partition_id == OTHER
    assert gap.reason.startswith(f"segment 2 of partition {OTHER} cannot be read: manifests/2 is damaged. Re")
    (status,) = await bench.coord.loads(CID)
    assert [(one.segment_id, one.missing) for one in status.unreadable] == [(2, True)]
    assert status.percentages == {DEFAULT: 99, OTHER: 0}
    bench.data.recoveries[CID] = recovery(TWO_PARTITIONS, intact, manifest(2, partition_id=OTHER))
    await asyncio.sleep(PAUSE_S + 1)
    assert bench.node.served() == {1, 2}, "it is read again after a pause, though nothing has changed"
    (status,) = await bench.coord.loads(CID)
    assert (status.unreadable, status.percentages) == ((), {DEFAULT: 100, OTHER: 100})
    await bench.coord.stop()


async def test_a_segment_that_is_served_stays_when_its_manifest_can_no_longer_be_read() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1), manifest(2)))
    await loaded(bench)
    bench.set_data(replace(recovery(ONE, manifest(1)), damaged=(DamagedManifest(manifest(2), "damaged"),)))
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 2}
    (status,) = await bench.coord.loads(CID)
    assert [(one.segment_id, one.missing) for one in status.unreadable] == [(2, False)]
    assert status.percentages == {DEFAULT: 100}
    await bench.coord.stop()


async def test_a_growing_segment_that_cannot_be_recovered_holds_up_nothing() -> None:
    bench = Bench()
    bench.node.damaged_rows = {5}
    bench.set_data(recovery(ONE, manifest(1), growing=(manifest(5), manifest(6))))
    await loaded(bench)
    await asyncio.sleep(1)
    assert bench.node.served() == {1}
    (status,) = await bench.coord.loads(CID)
    assert status.unreadable == (
        UnreadableSegment(SegmentID(5), DEFAULT, "its file is damaged", missing=True),
    )
    assert status.percentages == {DEFAULT: 99}
    await asyncio.sleep(PAUSE_S)
    tried = [request.again for request in bench.node.calls.of("watch_vchannel") if request.again]
    assert tried == [(5,)]
    bench.node.damaged_rows = set()
    await asyncio.sleep(2 * PAUSE_S)
    (status,) = await bench.coord.loads(CID)
    assert (status.unreadable, status.percentages) == ((), {DEFAULT: 100})
    await bench.coord.stop()


async def test_the_manifest_of_a_growing_segment_may_be_damaged_too() -> None:
    bench = Bench()
    (vchannel,) = recovery(ONE).vchannels
    vchannel = replace(vchannel, damaged=(DamagedManifest(manifest(5), "manifests/5 is damaged"),))
    bench.set_data(replace(recovery(ONE, manifest(1)), vchannels=(vchannel,)))
    await loaded(bench)
    await asyncio.sleep(1)
    assert bench.node.served() == {1}
    (status,) = await bench.coord.loads(CID)
    assert [(one.segment_id, "manifests/5" in one.reason) for one in status.unreadable] == [(5, True)]
    await bench.coord.stop()


# the decision


def sealed(number: int) -> SegmentServing:
    return SegmentServing(SegmentID(number), CID, DEFAULT, V, 10, True, 0, IndexID(0))


def decided(of: Served, unreadable: set[int], *wanted: int) -> Handoff:
    output = replace(manifest(9), parents=(SegmentID(1), SegmentID(2)))
    segments = {SegmentID(n): output if n == 9 else manifest(n) for n in wanted}
    heirs = Heirs({SegmentID(1): SegmentID(9), SegmentID(2): SegmentID(9)} if 9 in wanted else {})
    handoff = decide(segments, of, heirs, (), of.ticks.get(V, manifest(1).insert_logs[0].ts_max))
    found = hold_back(handoff, {SegmentID(n) for n in unreadable}, of, heirs)
    assert found.held >= unreadable
    return found


def served(sealed_ones: tuple[int, ...], growing: tuple[int, ...] = ()) -> Served:
    ids = {SegmentID(n): sealed(n) for n in sealed_ones}
    tick = manifest(1).insert_logs[0].ts_max
    return Served(tuple(ids), ids, {SegmentID(n): V for n in growing}, {V: tick})


def test_what_else_has_the_rows_stays_in_service() -> None:
    copy = decided(served((5,)), {5}, 5)
    assert copy.kept == {5: V}
    assert has_rows(manifest(5), copy, ())
    growing = decided(served((), (5,)), {5}, 5)
    assert growing.retired == {}
    assert has_rows(manifest(5), growing, {SegmentID(5)})
    assert not has_rows(manifest(5), growing, ()), "its vchannel moves to another node"
    output = replace(manifest(9), parents=(SegmentID(1), SegmentID(2)))
    both = decided(served((1,), (2,)), {9}, 9)
    assert (both.kept, both.retired) == ({1: V}, {})
    assert has_rows(output, both, {SegmentID(2)})
    half = decided(served((1,)), {9}, 9)
    assert not has_rows(output, half, ()), "the other input's rows are nowhere"


def test_segments_are_forgotten_when_they_are_read_replaced_or_no_longer_wanted() -> None:
    found = UnreadableSegments()
    for number in (1, 2, 3):
        found.failed(manifest(number), "damaged", 0.0)
    wanted = {SegmentID(n): manifest(n) for n in (1, 2, 3)}
    assert found.waiting(wanted, PAUSE_S - 1).keys() == {1, 2, 3}
    assert found.waiting(wanted, PAUSE_S).keys() == set()
    assert found.failed(manifest(1), "damaged", PAUSE_S).due_s == PAUSE_S + 2 * PAUSE_S
    found.readable([SegmentID(2)])
    wanted[SegmentID(3)] = replace(manifest(3), stats_logs=("another",))
    assert found.waiting(wanted, 0.0).keys() == {1}
    assert [one.manifest.segment_id for one in found.all()] == [1]
    assert found.waiting({}, 0.0) == {}
    assert found.due_s() is None


async def test_a_load_says_what_holds_it_up_and_goes_on_when_that_is_over() -> None:
    bench = Bench()
    bench.set_data(recovery(ONE, manifest(1)))
    bench.node.calls.failing["load_segment"] = StoreAway("the store s3://b does not answer")
    await loaded(bench)
    await asyncio.sleep(40)
    (status,) = await bench.coord.loads(CID)
    assert status.stall is not None
    assert (status.stall.reason, 39 < status.stall.for_s < 42) == ("the store s3://b does not answer", True)
    bench.node.calls.failing["load_segment"] = Unavailable("the node is lost")
    await asyncio.sleep(20)
    (status,) = await bench.coord.loads(CID)
    assert status.stall is not None, "the store has not answered meanwhile"
    bench.node.calls.failing.clear()
    await asyncio.sleep(20)
    (status,) = await bench.coord.loads(CID)
    assert (status.stall, status.percentages) == (None, {DEFAULT: 100})
    await bench.coord.stop()
