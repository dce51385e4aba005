"""Damaged files on a real node: unreadable rows are refused by name; a damaged index is left out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from node_world import COLLECTION, World, scenario
from test_node_fleet import Fleet
from test_node_fleet import scenario as fleet_scenario

from elanus.api.query_channel import MissingSegment
from elanus.api.querynode import SealedSegmentsChange, UnrecoveredSegment
from elanus.core.errors import SegmentUnreadable
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.proxy.fanout.client import Patience
from elanus.storage.local import LocalStore

HNSW = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "64"}


def damage(store: LocalStore, path: str, share: float = 0.5) -> bytes:
    """Change one byte of an object; return its content before."""
    file = store.local_path(path, Path())
    content = file.read_bytes()
    changed = bytearray(content)
    changed[int(len(content) * share)] ^= 0xFF
    file.unlink()  # the object may be mapped
    file.write_bytes(changed)
    return content


def restore(store: LocalStore, path: str, content: bytes) -> None:
    store.delete(path)
    store.put(path, content)


async def flushed(world: World, keys: range) -> SegmentID:
    await world.insert([(key, key) for key in keys])
    await world.tick()
    world.seal()
    (segment_id,) = world.flush()
    return segment_id


def insert_log(world: World, segment_id: SegmentID) -> str:
    return world.segments[segment_id].manifest.insert_logs[0].path


@scenario()
async def test_rows_that_cannot_be_read_are_refused_by_name(world: World) -> None:
    segment_id = await flushed(world, range(300))
    path = insert_log(world, segment_id)
    content = damage(world.store, path, 0.2)
    with pytest.raises(SegmentUnreadable, match=rf"segment {segment_id} of partition \d+ .*{path}.*Restore"):
        await world.node.load_segment(world.segment_request(segment_id))
    assert (await world.node.status()).loaded == {}
    assert world.count() == 300, "its growing rows serve"
    restore(world.store, path, content)
    await world.hand_off([segment_id])
    assert world.count() == 300


@scenario(index=HNSW)
async def test_a_segment_with_a_damaged_index_is_served_from_its_rows(world: World) -> None:
    segment_id = await flushed(world, range(300))
    world.build_index(segment_id)
    (file,) = world.segments[segment_id].indexes
    damage(world.store, file.path)
    (found,) = await world.node.load_segment(world.segment_request(segment_id))
    assert found.path == file.path
    assert "damaged" in found.reason
    await world.announce([segment_id])
    (serving,) = (await world.node.status()).segments
    assert (serving.sealed, serving.index_ids) == (True, ())
    assert world.count() == 300
    hits = world.node.search(world.node_search(7.0, 3))
    assert int(hits.ids[0]) == 7
    world.segments[segment_id].indexes = ()
    copy = world.node._collections[CollectionID(7)].copy_of(segment_id)
    assert await world.node.load_segment(world.segment_request(segment_id)) == ()
    assert world.node._collections[CollectionID(7)].copy_of(segment_id) is copy, "it is not loaded twice"
    world.build_index(segment_id)
    await world.hand_off([segment_id])
    (serving,) = (await world.node.status()).segments
    assert serving.index_ids != ()


@scenario(index=HNSW)
async def test_an_index_file_that_is_gone_is_done_without(world: World) -> None:
    segment_id = await flushed(world, range(20))
    world.build_index(segment_id)
    (file,) = world.segments[segment_id].indexes
    world.store.delete(file.path)
    (found,) = await world.node.load_segment(world.segment_request(segment_id))
    assert (found.path, "missing" in found.reason) == (file.path, True)


@scenario(partitions=(1, 2))
async def test_reads_of_partitions_that_are_complete_are_answered(world: World) -> None:
    await world.insert([(1, 1)], 1)
    await world.insert([(2, 2)], 2)
    await world.tick()
    gap = {SegmentID(9): MissingSegment(PartitionID(2), "segment 9 cannot be read")}
    await world.node.announce(SealedSegmentsChange(CollectionID(7), 5, (), (), missing=gap))
    assert world.node.count(world.node_query(partition_ids=(PartitionID(1),))) == 1
    for partitions in ((), (PartitionID(2),), (PartitionID(1), PartitionID(2))):
        with pytest.raises(SegmentUnreadable, match="collection 7 is not complete: segment 9"):
            world.node.count(world.node_query(partition_ids=partitions))
    await world.node.announce(SealedSegmentsChange(CollectionID(7), 6, (), ()))
    assert world.node.count(world.node_query()) == 2


async def growing_with_binlogs(world: World) -> list[SegmentID]:
    """Two growing segments, of partitions 1 and 2, with some rows in files and some only in the log."""
    for partition in (1, 2):
        await world.insert([(10 * partition + n, n) for n in range(3)], partition)
    await world.tick()
    world.flush()
    for partition in (1, 2):
        await world.insert([(10 * partition + 5, 5)], partition)
    await world.delete([10, 20])
    await world.tick()
    return list(world.open.values())


@scenario(partitions=(1, 2))
async def test_a_growing_segment_that_cannot_be_recovered_is_refused_and_the_others_serve(
    world: World,
) -> None:
    damaged, intact = await growing_with_binlogs(world)
    path = insert_log(world, damaged)
    content = damage(world.store, path, 0.2)
    await world.restart()
    (found,) = await world.node.watch_vchannel(world.watch_request())
    assert (found.segment_id, found.partition_id, path in found.reason) == (damaged, 1, True)
    assert world.count(partition_ids=(PartitionID(2),)) == 3
    for partitions in ((), (PartitionID(1),)):
        with pytest.raises(SegmentUnreadable, match=rf"segment {damaged} of partition 1 .*{path}.*Restore"):
            world.node.count(world.node_query(partition_ids=partitions))
    await world.insert([(16, 6)], 1)
    await world.tick()
    growing = [s.segment_id for s in (await world.node.status()).segments]
    assert growing == [intact], "its rows in the log are not taken for the whole segment"
    again = replace(world.watch_request(), again=(damaged,))
    assert len(await world.node.watch_vchannel(again)) == 1, "still damaged"
    restore(world.store, path, content)
    assert len(await world.node.watch_vchannel(world.watch_request())) == 1, "it is not looked at each time"
    trying = asyncio.create_task(world.node.watch_vchannel(again))
    await world.stamp_and_tick()
    assert await trying == ()
    assert world.count() == 7
    world.node.invariants()


@scenario(partitions=(1, 2))
async def test_a_damaged_file_of_deletes_concerns_the_growing_segments_with_binlogs(world: World) -> None:
    await growing_with_binlogs(world)
    world.flush()
    (log,) = world.delta_logs
    content = bytes(world.store.get(log.file.path))
    world.store.delete(log.file.path)
    await world.restart()
    found = await world.node.watch_vchannel(world.watch_request())
    assert sorted(one.partition_id for one in found) == [1, 2]
    assert all(log.file.path in one.reason for one in found)
    world.store.put(log.file.path, content)
    trying = asyncio.create_task(
        world.node.watch_vchannel(replace(world.watch_request(), again=(found[0].segment_id,)))
    )
    await world.stamp_and_tick()
    assert await trying == ()
    assert world.count() == 6


@scenario(partitions=(1, 2))
async def test_a_growing_segment_without_its_manifest_is_refused_until_a_version_has_it(world: World) -> None:
    damaged, _ = await growing_with_binlogs(world)
    whole = world.watch_request()
    named = UnrecoveredSegment(damaged, PartitionID(1), "manifests/5 is damaged")
    growing = tuple(m for m in whole.growing if m.segment_id != damaged)
    await world.node.stop()
    world.node, world.version = world._new_node(), 0
    await world.node.start()
    await world.node.load_collection(world.load_request())
    assert await world.node.watch_vchannel(replace(whole, growing=growing, damaged=(named,))) == (named,)
    await world.announce()
    await world.tick()
    with pytest.raises(SegmentUnreadable, match="manifests/5"):
        world.node.count(world.node_query())
    world.seal()
    world.flush()
    await world.hand_off([damaged])
    assert world.count() == 6
    assert await world.node.watch_vchannel(world.watch_request()) == ()


@fleet_scenario
async def test_the_replica_that_has_a_segment_in_memory_answers_for_the_one_that_cannot_read_it(
    fleet: Fleet,
) -> None:
    await fleet.begin(1, 2, replicas=2)
    segment_id = await fleet.finish(1, 2, 3)

    async def spread() -> bool:
        return await fleet.spread() == {1: 1, 2: 1}

    await fleet.until(spread)
    await fleet.insert([(key, key) for key in (4, 5)])
    await fleet.tick()
    fleet.flush()
    await fleet.check()
    (growing,) = fleet.open.values()
    for damaged in (segment_id, growing):
        damage(fleet.store, insert_log(fleet, damaged), 0.2)
    await fleet.kill(2)
    await fleet.join(3)

    async def joined() -> bool:
        await fleet.stamp_and_tick()
        infos = await fleet.coord.query_channels(COLLECTION)
        return len(infos) == 2 and any(info.missing and 3 in info.vchannels.values() for info in infos)

    await fleet.until(joined)
    for _ in range(4):
        await fleet.check()
    (status,) = await fleet.coord.loads()
    assert {one.segment_id for one in status.unreadable if one.missing} == {segment_id, growing}
    with pytest.raises(SegmentUnreadable):
        fleet.nodes[NodeID(3)].count(fleet.node_query())
    await fleet.end()


@fleet_scenario
async def test_the_intact_segments_are_handed_off_and_reads_never_answer_with_less(fleet: Fleet) -> None:
    await fleet.begin(1, 2)
    await fleet.check()
    ids = []
    for number in range(3):
        await fleet.insert([(10 * number + key, key) for key in range(10)])
        await fleet.tick()
        fleet.seal()
        ids += fleet.flush()
    path = insert_log(fleet, ids[1])
    content = damage(fleet.store, path, 0.2)
    fleet.changes.happened()

    async def handed_off() -> bool:
        await fleet.stamp_and_tick()
        return sum((await fleet.spread()).values()) == 2

    await fleet.until(handed_off)
    await fleet.check()
    # The rows of the third one are lost with the nodes' memory: now a read would find less.
    await fleet.join(3)
    await fleet.kill(1)
    await fleet.kill(2)

    async def refused() -> bool:
        await fleet.stamp_and_tick()
        try:
            await asyncio.to_thread(fleet.proxy.count, fleet.node_query(), Patience(2.0))
        except SegmentUnreadable as error:
            return path in error.message
        except Exception:  # noqa: BLE001 - node 3 is being loaded
            return False
        raise AssertionError("a read was answered without the rows of the damaged segment")

    await fleet.until(refused)
    assert await fleet.spread() == {3: 2}
    restore(fleet.store, path, content)
    await fleet.coord.release(CollectionID(7), ())
    await fleet.coord.load(CollectionID(7), (), 1)
    await fleet.loaded()
    await fleet.check()
    await fleet.end()
