"""Mirrors follow what the clients' replica serves, and are read only while they miss nothing of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fakes import CID, DEFAULT, OTHER, collection, compose, manifest, recovery
from query_bench import NODE, Bench

from elanus.api.querynode import LoadSegment, SealedSegmentsChange
from elanus.api.recovery import LogHold
from elanus.core.channels import pchannel_of
from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID, PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp

TWO_PARTITIONS = collection(partitions=(DEFAULT, OTHER))
COMMIT = compose(20)


def imported(number: int, partition_id: PartitionID = DEFAULT) -> SegmentManifest:
    return replace(manifest(number, partition_id=partition_id), commit_ts=COMMIT, deletes_from=COMMIT)


async def loaded(*segments: SegmentManifest, partition_ids: tuple[PartitionID, ...] = ()) -> Bench:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, *segments))
    await bench.start()
    await bench.coord.load(CID, partition_ids, 1)
    await asyncio.sleep(1)
    return bench


async def test_a_mirror_serves_everything_and_clients_see_no_replica_of_it() -> None:
    bench = await loaded(manifest(1))
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1}, {CID})
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1), manifest(2)))
    await asyncio.sleep(1)
    assert node.served() == bench.node.served() == {1, 2}
    assert grants.calls.of("withhold") == [0], "a handoff changes nothing that reads see"
    (replica,) = await bench.coord.replicas(CID)
    assert replica.nodes == (NODE,)
    assert [n for n, _ in await bench.coord.serving(CID)] == [NODE, NODE]
    await bench.coord.stop()


async def test_a_mirror_that_hangs_or_fails_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(TWO_PARTITIONS)
    node, grants = bench.mirrors.join(3)
    other, others = bench.mirrors.join(4)

    async def hangs(request: LoadSegment) -> None:
        await asyncio.get_running_loop().create_future()

    async def fails(request: LoadSegment) -> None:
        raise Unavailable("it went away")

    monkeypatch.setattr(node, "load_segment", hangs)
    monkeypatch.setattr(other, "load_segment", fails)
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1)))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    assert (await bench.percentages())[DEFAULT] == 100
    assert (grants.granted, others.granted) == (set(), set())
    monkeypatch.undo()
    await asyncio.sleep(20)
    assert (other.served(), others.granted) == ({1}, {CID}), "it is tried again"
    bench.mirrors.leave(3)
    await asyncio.sleep(1)
    await bench.coord.stop()


async def test_imported_rows_have_one_moment_and_no_mirror_is_read_before_it_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The grant is gone before the moment is decided, and comes back with the rows."""
    bench = await loaded(manifest(1))
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    load, go_on = node.load_segment, asyncio.Event()
    stamp, read_there = bench.root.alloc_timestamp, []

    async def slow(request: LoadSegment) -> object:
        await go_on.wait()
        return await load(request)

    async def stamping(count: int) -> Timestamp:
        read_there.append(set(grants.granted))
        return await stamp(count)

    monkeypatch.setattr(node, "load_segment", slow)
    monkeypatch.setattr(bench.root, "alloc_timestamp", stamping)
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1), imported(2)))
    await asyncio.sleep(3)
    assert bench.node.served() == {1, 2}
    assert (node.served(), grants.granted) == ({1}, set())
    assert read_there == [set()], "asked for once, when nobody read the mirror any more"
    go_on.set()
    await asyncio.sleep(1)
    last: SealedSegmentsChange = bench.node.calls.of("announce")[-1]
    mirrored: SealedSegmentsChange = node.calls.of("announce")[-1]
    assert mirrored.visible_from == last.visible_from
    assert set(last.visible_from) == {2}
    assert (node.served(), grants.granted) == ({1, 2}, {CID})
    await bench.coord.stop()


async def test_a_mirror_that_finds_an_import_first_waits_for_the_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await loaded(manifest(1))
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    load, go_on = bench.node.load_segment, asyncio.Event()

    async def slow(request: LoadSegment) -> object:
        await go_on.wait()
        return await load(request)

    monkeypatch.setattr(bench.node, "load_segment", slow)
    bench.set_data(recovery(TWO_PARTITIONS, manifest(1), imported(2)))
    await asyncio.sleep(0.1)
    (mirror,) = bench.coord._mirrors._mirrors.values()
    mirror.follow(CID)  # as after any other round
    await asyncio.sleep(3)
    assert node.served() == {1}
    assert grants.granted == {CID}, "nobody has seen the rows yet"
    go_on.set()
    await asyncio.sleep(3)
    assert node.served() == bench.node.served() == {1, 2}
    assert grants.granted == {CID}
    await bench.coord.stop()


async def test_reads_of_other_partitions_go_on_there_only_when_they_are_loaded_or_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await loaded(manifest(1), manifest(2, partition_id=OTHER), partition_ids=(DEFAULT,))
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1}, {CID})
    load, go_on = node.load_segment, asyncio.Event()

    async def slow(request: LoadSegment) -> object:
        await go_on.wait()
        return await load(request)

    monkeypatch.setattr(node, "load_segment", slow)
    await bench.coord.load(CID, (OTHER,), 1)
    assert grants.granted == set(), "the load may be complete before the mirror has the partition"
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 2}
    assert grants.granted == set()
    go_on.set()
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1, 2}, {CID})
    await bench.coord.release(CID, (DEFAULT,))
    assert grants.granted == set(), "no read that begins later sees the partition"
    await asyncio.sleep(1)
    assert grants.granted == {CID}
    assert node.held[CID].partitions == (OTHER,)
    await bench.coord.stop()


async def test_a_release_and_a_new_load_are_those_of_every_mirror() -> None:
    bench = await loaded(manifest(1))
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    await bench.coord.release(CID, ())
    assert grants.granted == set()
    await asyncio.sleep(1)
    assert node.held == {}
    (mirror,) = bench.coord._mirrors._mirrors.values()
    assert not mirror.withheld, "a million collections may come and go"
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1}, {CID})
    await bench.coord.reload(CID)
    assert grants.granted == set(), "its rows are read by other fields from now on"
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1}, {CID})
    await bench.coord.stop()


async def test_a_new_coordinator_knows_no_grants_and_loads_mirrors_again() -> None:
    bench = await loaded(manifest(1))
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    await bench.coord.stop()
    await bench.start()
    await asyncio.sleep(0)
    assert grants.granted == set()
    await asyncio.sleep(2)
    assert node.calls.of("release_collection") == [CID]
    assert (node.served(), grants.granted) == ({1}, {CID})
    await bench.coord.stop()


async def test_what_mirrors_read_is_kept_for_them() -> None:
    """The log from their positions on, and the files of the segments that they hold."""
    bench = await loaded(manifest(1))
    node, _ = bench.mirrors.join(3)
    pchannel = pchannel_of(TWO_PARTITIONS.vchannels[0])
    node.positions = {pchannel: 40}
    node.growing = {SegmentID(7): TWO_PARTITIONS.vchannels[0]}
    await asyncio.sleep(10)
    assert LogHold(NodeID(3), pchannel, 40) in bench.data.calls.of("hold_log")[-1]
    assert 7 in await bench.coord.held_segments()
    bench.mirrors.leave(3)
    await asyncio.sleep(10)
    assert bench.data.calls.of("hold_log")[-1] == ()
    await bench.coord.stop()
