"""Handoff, exchange, compaction, release: a version switches in one step and loses or doubles nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from node_world import COLLECTION, NODE, VCHANNEL, World, breathe, inline, scenario

from elanus.api.querynode import SealedSegmentsChange
from elanus.core.errors import CollectionNotLoaded, NotReady, SegmentNotFound, SegmentUnreadable, Unavailable
from elanus.core.offload import Pools
from elanus.core.timestamps import Timestamp
from elanus.log.memory import MemoryLog
from elanus.log.port import Position
from elanus.querynode.node import QueryNode
from elanus.querynode.query import count


class Gate:
    """An offload whose work waits until the gate opens."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.calls: list[str] = []

    async def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        self.calls.append(function.__name__)
        await self.open.wait()
        return function(*args)


class HeldLog:
    """A log whose readers stand still until they may go on."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.go_on = asyncio.Event()

    def open_reader(self, pchannel: str, start: Position) -> Any:
        reader = self._log.open_reader(pchannel, start)
        read = reader.read

        async def held_read(bytes_max: int) -> Any:
            await self.go_on.wait()
            return await read(bytes_max)

        reader.read = held_read
        return reader

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        return self._log.missing_from(pchannel, position)

    async def sync(self, pchannel: str) -> Position:
        return await self._log.sync(pchannel)


async def flushed(world: World, *keys: int) -> int:
    """A finished segment with these keys, still served as growing."""
    await world.insert([(key, key) for key in keys])
    await world.tick()
    world.seal()
    [segment_id] = world.flush()
    return segment_id


@scenario()
async def test_a_handoff_replaces_the_growing_copy(world: World) -> None:
    segment_id = await flushed(world, 1, 2, 3)
    await world.node.load_segment(world.segment_request(segment_id))
    assert (await world.node.status()).loaded == {COLLECTION: (segment_id,)}
    assert [s.sealed for s in (await world.node.status()).segments] == [False]
    assert world.count() == 3

    await world.announce([segment_id])
    [serving] = (await world.node.status()).segments
    assert (serving.segment_id, serving.sealed, serving.rows) == (segment_id, True, 3)
    assert (world.count(), world.keys()) == (3, [1, 2, 3])


@scenario()
async def test_rows_of_a_finished_segment_that_come_later_in_the_log_are_not_taken_in(world: World) -> None:
    """The node lags behind the pipeline: it has read nothing of the segment when it goes online."""
    await world.node.stop()
    log = HeldLog(world.log)
    world.node, world.version = QueryNode(NODE, log, world.store, Pools.one(inline), scratch=world.scratch), 0
    await world.start()
    before = world.node.service_time(COLLECTION)
    segment_id = await flushed(world, 1, 2)
    await world.insert([(3, 3)])
    await world.tick()
    await world.hand_off([segment_id])
    assert world.node.service_time(COLLECTION) == before
    log.go_on.set()
    await breathe()
    assert (world.count(), world.keys()) == (3, [1, 2, 3])


@scenario()
async def test_deletes_reach_a_segment_before_while_and_after_it_is_loaded(world: World) -> None:
    segment_id = await flushed(world, 1, 2, 3, 4, 5)
    await world.delete([1])
    await world.tick()
    world.node._loading.offload = gate = Gate()
    loading = asyncio.create_task(world.node.load_segment(world.segment_request(segment_id)))
    await breathe()
    await world.delete([2])
    await world.tick()
    gate.open.set()
    await loading
    await world.delete([3])
    await world.tick()
    await world.announce([segment_id])
    await world.delete([4])
    await world.tick()
    assert (world.count(), world.keys()) == (1, [5])


@scenario()
async def test_the_growing_copy_of_a_segment_that_was_compacted_before_its_handoff_goes(world: World) -> None:
    segment_id = await flushed(world, 1, 2)
    await world.hand_off([world.compact([segment_id])])
    assert world.count() == 2


@scenario()
async def test_growing_segments_can_go_offline(world: World) -> None:
    segment_id = await flushed(world, 1, 2)
    await world.announce(offline=[segment_id])
    assert world.count() == 0


@scenario()
async def test_segments_that_come_online_elsewhere_are_released_here(world: World) -> None:
    segment_id = await flushed(world, 1)
    await world.node.announce(SealedSegmentsChange(COLLECTION, 2, (), (), elsewhere=(segment_id,)))
    assert world.count() == 0


@scenario()
async def test_a_version_that_is_not_ready_changes_nothing(world: World) -> None:
    segment_id = await flushed(world, 1, 2)
    await world.node.load_segment(world.segment_request(segment_id))
    with pytest.raises(SegmentNotFound, match="99"):
        await world.node.announce(SealedSegmentsChange(COLLECTION, 2, (segment_id, 99), ()))
    assert [s.sealed for s in (await world.node.status()).segments] == [False]
    assert (await world.node.status()).versions == {COLLECTION: 1}


@scenario()
async def test_an_old_version_changes_nothing(world: World) -> None:
    segment_id = await flushed(world, 1, 2)
    await world.hand_off([segment_id])
    await world.node.announce(SealedSegmentsChange(COLLECTION, 2, (), (segment_id,)))
    await world.node.announce(SealedSegmentsChange(COLLECTION, 1, (99,), ()))
    assert world.count() == 2


@scenario()
async def test_a_version_meant_for_the_node_before_it_started_again_is_refused(world: World) -> None:
    """A call that was under way when the node died, and reaches the next one."""
    segment_id = await flushed(world, 1, 2)
    status = await world.node.status()
    late = SealedSegmentsChange(COLLECTION, 8, (), (segment_id,), incarnation="another")
    with pytest.raises(NotReady, match="before its restart"):
        await world.node.announce(late)
    assert (await world.node.status()).versions == {COLLECTION: 1}
    await world.node.announce(replace(late, incarnation=status.incarnation))
    assert (await world.node.status()).versions == {COLLECTION: 8}


@scenario()
async def test_an_indexed_copy_is_loaded_next_to_the_one_that_serves(world: World) -> None:
    segment_id = await flushed(world, 1, 2)
    await world.hand_off([segment_id])
    world.build_index(segment_id)
    await world.node.load_segment(world.segment_request(segment_id))
    [before] = (await world.node.status()).segments
    await world.announce([segment_id])
    [after] = (await world.node.status()).segments
    assert (before.index_id, before.index_ids) == (0, ())
    assert (after.index_id, after.index_ids) == (5, (5,))
    assert world.nearest(2, 1) == [2]


@scenario()
async def test_a_copy_that_no_version_will_name_is_released_next_to_the_one_that_serves(world: World) -> None:
    segment_id = await flushed(world, 1, 2)
    await world.hand_off([segment_id])
    used_bytes = (await world.node.status()).used_bytes
    world.build_index(segment_id)
    await world.node.load_segment(world.segment_request(segment_id))
    assert (await world.node.status()).used_bytes > used_bytes
    for _ in range(2):
        await world.node.unload_segments(COLLECTION, [segment_id])
    status = await world.node.status()
    assert (status.loaded, status.used_bytes) == ({}, used_bytes)
    assert world.count() == 2


@scenario()
async def test_a_load_asked_for_again_runs_once(world: World) -> None:
    segment_id = await flushed(world, 1)
    world.node._loading.offload = gate = Gate()
    request = world.segment_request(segment_id)
    loads = [asyncio.create_task(world.node.load_segment(request)) for _ in range(3)]
    await breathe()
    loads[0].cancel()
    gate.open.set()
    await asyncio.gather(*loads, return_exceptions=True)
    await world.node.load_segment(request)
    await world.announce([segment_id])
    await world.node.load_segment(request)
    assert gate.calls == ["read_segment"]


@scenario()
async def test_a_load_that_fails_leaves_nothing_behind(world: World) -> None:
    segment_id = await flushed(world, 1)
    request = world.segment_request(segment_id)
    path = request.manifest.insert_logs[0].path
    content = bytes(world.store.get(path))
    world.store.delete(path)
    with pytest.raises(SegmentUnreadable, match=f"{path}: no such object.*Restore"):
        await world.node.load_segment(request)
    assert (await world.node.status()).loaded == {}
    world.store.put(path, content)
    await world.hand_off([segment_id])
    assert world.count() == 1


@scenario()
async def test_a_segment_cannot_be_loaded_from_before_the_deletes_that_are_kept(world: World) -> None:
    segment_id = await flushed(world, 1)
    old = world.checkpoint
    await world.delete([1])
    await world.tick()
    world.flush()
    await world.node.forget_deletes(COLLECTION, VCHANNEL, world.checkpoint.ts)
    with pytest.raises(NotReady, match="newer checkpoint"):
        await world.node.load_segment(world.segment_request(segment_id, old))
    await world.hand_off([segment_id])
    assert world.count() == 0


@scenario()
async def test_deletes_that_nobody_needs_free_their_memory(world: World) -> None:
    await world.delete(range(100))
    await world.tick()
    held = (await world.node.status()).growing_bytes
    world.flush()
    await world.node.forget_deletes(COLLECTION, VCHANNEL, world.checkpoint.ts)
    await world.tick()
    await world.insert([(1, 1)])
    await world.tick()
    assert 0 < (await world.node.status()).growing_bytes < held


@scenario()
async def test_a_dropped_segment_lives_as_long_as_a_read_that_began_before(world: World) -> None:
    await flushed(world, 1, 2, 3)
    [growing] = world.snapshot.segments
    gone = [weakref.ref(block) for block in growing.blocks]
    reading = world.snapshot
    del growing
    await world.announce(offline=[s.segment_id for s in reading.segments])
    assert (world.count(), count(reading, world.node_query())) == (0, 3)
    assert all(block() is not None for block in gone)
    gc.disable()  # reference counts alone must free it
    try:
        del reading
        assert all(block() is None for block in gone)
    finally:
        gc.enable()


@scenario()
async def test_a_release_frees_everything(world: World) -> None:
    await world.hand_off([await flushed(world, 1, 2, 3)])
    await world.insert([(4, 4)])
    await world.tick()
    gone = [weakref.ref(block) for segment in world.snapshot.segments for block in segment.blocks]
    await world.node.release_collection(COLLECTION)
    await world.node.release_collection(COLLECTION)
    assert len(gone) == 2
    assert all(block() is None for block in gone)
    assert (await world.node.status()).segments == ()
    with pytest.raises(CollectionNotLoaded):
        world.keys()
    for call in (
        world.node.announce(SealedSegmentsChange(COLLECTION, 9, (), ())),
        world.node.load_segment(world.segment_request(next(iter(world.segments)))),
        world.node.watch_vchannel(world.watch_request()),
        world.node.set_partitions(COLLECTION, ()),
    ):
        with pytest.raises(CollectionNotLoaded):
            await call
    await world.start()
    assert world.count() == 4


@scenario()
async def test_a_load_under_way_when_the_collection_is_released_comes_to_nothing(world: World) -> None:
    segment_id = await flushed(world, 1)
    world.node._loading.offload = gate = Gate()
    loading = asyncio.create_task(world.node.load_segment(world.segment_request(segment_id)))
    await breathe()
    await world.node.release_collection(COLLECTION)
    gate.open.set()
    with pytest.raises(CollectionNotLoaded):
        await loading
    world.node._loading.offload = inline


@scenario()
async def test_a_read_beyond_the_service_time_is_refused(world: World) -> None:
    with pytest.raises(Unavailable, match="not yet up to"):
        world.keys(ts=world.tick_ts + 1)


@scenario()
async def test_a_collection_serves_no_read_before_its_first_version(world: World) -> None:
    await world.insert([(1, 1)])
    await world.tick()
    await world.node.release_collection(COLLECTION)
    await world.node.load_collection(world.load_request())
    assert world.node.service_time(COLLECTION) == 0
    await world.node.watch_vchannel(world.watch_request())
    await breathe()
    assert world.node.service_time(COLLECTION) == 0
    await world.announce()
    assert world.node.service_time(COLLECTION) == Timestamp(world.tick_ts)
    assert world.keys() == [1]


@scenario()
async def test_a_read_holds_the_segments_of_the_version_it_began_under(world: World) -> None:
    """Their files stay on the object store: what is large and seldom wanted is read from there."""
    segment_id = await flushed(world, 1, 2, 3)
    assert (await world.node.status()).held == ()
    await world.node.load_segment(world.segment_request(segment_id))
    assert (await world.node.status()).held == (segment_id,)
    await world.announce([segment_id])
    read = world.snapshot
    await world.announce(offline=[segment_id])
    assert (await world.node.status()).held == (segment_id,)
    del read
    gc.collect()
    assert (await world.node.status()).held == ()
