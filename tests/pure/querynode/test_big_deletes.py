"""Deletes of many keys, and deletes with many segments: the loop goes on, and no read sees half of them."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_world import COLLECTION, NODE, VCHANNEL, World, breathe, inline, scenario

from elanus.core.errors import NotReady
from elanus.core.ids import ALL_PARTITIONS, FieldID, PartitionID
from elanus.core.offload import Pools
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.querynode.block import Block
from elanus.querynode.delete_applier import DeleteApplier, DeleteLimits
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.follower import Follower
from elanus.querynode.growing_segments import GrowingSegments
from elanus.querynode.key_ranges import VISIT_KEYS, KeyRanges
from elanus.querynode.node import QueryNode, QueryNodePolicy

SCHEMA = CollectionSchema(
    "c",
    (
        FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=4),
    ),
)
ONE, TWO = PartitionID(1), PartitionID(2)
EVERYTHING_OFF_THE_LOOP = DeleteLimits(inline_keys_max=0, chunk_keys_max=1)


def block_of(keys: Sequence[int]) -> Block:
    return Block(SCHEMA, {"pk": pa.array(keys, pa.int64())}, {}, np.ones(len(keys), dtype=np.int64))


def batch_of(keys: Sequence[int], ts: int = 9, partition_id: PartitionID = ALL_PARTITIONS) -> DeleteBatch:
    return DeleteBatch.of(pa.array(keys, pa.int64()), np.full(len(keys), ts, dtype=np.int64), partition_id)


def dead(block: Block) -> list[int]:
    if block.deleted_ts is None:
        return []
    return sorted(block.keys.keys.filter(pa.array(block.deleted_ts == 9)).to_pylist())


class Threads:
    """An offload that lets others run before each piece of work, and knows how much work each piece was."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        self.pieces.append(function.__name__)
        await asyncio.sleep(0)
        await self.go_on.wait()
        return function(*args)


# which segments a delete concerns

keys_of_blocks = st.lists(st.lists(st.integers(-20, 20), max_size=8), max_size=12)


@given(keys_of_blocks, st.lists(st.integers(-20, 20), max_size=12), st.data())
def test_visits_delete_what_visiting_everything_would(
    blocks: list[list[int]], deleted: list[int], data: st.DataObject
) -> None:
    held = [block_of(keys) for keys in blocks]
    gone = data.draw(st.lists(st.sampled_from(held), max_size=6) if held else st.just([]))
    partition = data.draw(st.sampled_from([ALL_PARTITIONS, ONE, TWO]))
    ranges = KeyRanges()
    for number, block in enumerate(held):
        ranges.add(block, (ONE, TWO)[number % 2])
    split = data.draw(st.integers(0, len(gone)))
    ranges.remove(gone[:split])
    ranges.remove(gone[split:])
    visits = ranges.visits(batch_of(deleted, partition_id=partition))
    pieces = visits.split(data.draw(st.integers(1, 4)))
    pieces.run(0, len(pieces))
    for number, block in enumerate(held):
        reached = partition in (ALL_PARTITIONS, (ONE, TWO)[number % 2])
        reached &= all(block is not left for left in gone)
        assert dead(block) == sorted(k for k in blocks[number] if reached and k in deleted)


def test_few_keys_cost_no_call_per_segment() -> None:
    """Each segment has keys of its own, as automatic ids are."""
    calls = []
    for segments in (100, 10_000):
        ranges = KeyRanges()
        for number in range(segments):
            ranges.add(block_of([10 * number, 10 * number + 5]), ONE)
        batch = batch_of([15, 25, 26])
        gc.disable()  # hypothesis is called at each collection, and would be counted
        sys.setprofile(lambda _frame, event, _arg: calls.append(event))
        try:
            visits = ranges.visits(batch)
        finally:
            sys.setprofile(None)
            gc.enable()
        assert [dead(b) or b.keys.numbers.tolist() for b in visits.blocks] == [[10, 15], [20, 25]]
        calls.append("end")
    few, many = (part.split() for part in " ".join(calls).split("end")[:2])
    assert len(few) == len(many)


def test_a_slice_of_the_deletes_is_handed_to_each_segment() -> None:
    """A delete of everything hands each key to one segment, not each key to each segment."""
    ranges = KeyRanges()
    for number in range(100):
        ranges.add(block_of(range(100 * number, 100 * number + 100)), ONE)
    visits = ranges.visits(batch_of(range(10_000)))
    assert (int(visits.keys.sum()), len(visits)) == (10_000, 100)


@pytest.mark.parametrize("chunk_keys_max", [1, 100, 5_000])
def test_a_large_delete_is_applied_in_chunks_of_bounded_work(chunk_keys_max: int) -> None:
    """No piece of work is larger than two chunks, whatever the numbers of keys and of segments."""
    looked_up: list[int] = []
    delete = Block.delete

    def counted(block: Block, batch: DeleteBatch, first: int = 0, last: int | None = None) -> int:
        assert last is not None
        looked_up[-1] += VISIT_KEYS + last - first
        return delete(block, batch, first, last)

    async def offload(function: Callable[..., Any], /, *args: Any) -> Any:
        looked_up.append(0)
        return function(*args)

    rng = np.random.default_rng(1)
    blocks = [block_of(rng.permutation(5_000)) for _ in range(7)]
    ranges = KeyRanges()
    for block in blocks:
        ranges.add(block, ONE)
    applier = DeleteApplier(offload, DeleteLimits(inline_keys_max=10, chunk_keys_max=chunk_keys_max))
    deleted = rng.permutation(5_000)[:500]
    with patch.object(Block, "delete", counted):
        asyncio.run(applier.apply([ranges.visits(batch_of(deleted))]))
    assert all(dead(block) == sorted(deleted) for block in blocks)
    assert max(looked_up) <= 2 * (chunk_keys_max + VISIT_KEYS)


def test_what_is_little_is_done_at_once() -> None:
    async def offload(function: Callable[..., Any], /, *args: Any) -> Any:
        raise AssertionError("handed to a thread")

    ranges, block = KeyRanges(), block_of([1, 2, 3])
    ranges.add(block, ONE)
    asyncio.run(DeleteApplier(offload, DeleteLimits()).apply([ranges.visits(batch_of([2]))]))
    assert dead(block) == [2]


# on a node


def threaded(world: World) -> Threads:
    """Start the node of a world again with deletes that are all applied in threads."""
    threads = Threads()
    world.node = QueryNode(
        NODE,
        world.log,
        world.store,
        replace(Pools.one(inline), deletes=threads),
        scratch=world.scratch,
        policy=QueryNodePolicy(delete_limits=EVERYTHING_OFF_THE_LOOP),
    )
    world.version = 0
    return threads


async def sealed(world: World, *keys: int) -> int:
    await world.insert([(key, key) for key in keys])
    await world.tick()
    world.seal()
    [segment_id] = world.flush()
    await world.hand_off([segment_id])
    return segment_id


def played(test: Callable[[World, Threads], Any]) -> Callable[[Path], None]:
    """Makes a test of a coroutine over a `World` whose node applies all deletes in threads."""

    @scenario()
    async def play(world: World) -> None:
        await world.node.stop()
        threads = threaded(world)
        await world.start()
        await test(world, threads)

    play.__name__, play.__doc__ = test.__name__, test.__doc__
    return play


@played
async def test_no_read_sees_a_delete_before_all_segments_have_it(world: World, threads: Threads) -> None:
    for number in range(4):
        await sealed(world, number, 10 + number)
    await world.insert([(20, 20), (3, 33)], upsert=True)  # another segment has a key 3
    before = await world.tick()
    assert world.count() == 9
    threads.go_on.clear()
    await world.delete(range(30))
    await world.insert([(40, 40)])
    await world.tick()
    assert world.node.service_time(COLLECTION) == before
    assert (world.count(ts=before), world.keys(ts=before)[-1]) == (9, 20)
    threads.go_on.set()
    for _ in range(20):
        await breathe()
        world.node.invariants()
        if world.node.service_time(COLLECTION) == world.tick_ts:
            break
        assert world.count(ts=before) == 9
    assert (world.keys(), world.count(ts=before)) == ([40], 9)
    assert threads.pieces.count("run") >= 6


@played
async def test_a_segment_loaded_while_deletes_are_applied_misses_none(world: World, threads: Threads) -> None:
    await sealed(world, 1, 2)
    await world.insert([(key, key) for key in (3, 4, 5, 6)])
    await world.delete([3])
    await world.tick()
    world.seal()
    before_the_deletes = world.checkpoint
    [segment_id] = world.flush()
    threads.go_on.clear()
    await world.delete([1, 4])
    await world.tick()
    request = world.segment_request(segment_id, before_the_deletes)
    loading = asyncio.create_task(world.node.load_segment(request))
    await breathe()
    await world.insert([(5, 55)], upsert=True)
    await world.tick()
    assert not loading.done()
    threads.go_on.set()
    await loading
    await world.announce([segment_id])
    for _ in range(10):
        await breathe()
    assert world.keys() == [2, 5, 6]
    assert (world.count(), world.count("value == 5")) == (3, 0)


@played
async def test_a_segment_is_not_staged_if_its_vchannel_was_let_go_meanwhile(
    world: World, threads: Threads
) -> None:
    await sealed(world, 1)
    await world.insert([(key, key) for key in (2, 3)])
    await world.tick()
    world.seal()
    old = world.checkpoint
    [segment_id] = world.flush()
    await world.delete([2])
    await world.tick()
    await breathe()
    threads.go_on.clear()
    loading = asyncio.create_task(world.node.load_segment(world.segment_request(segment_id, old)))
    await breathe()
    collection = world.node._collections[COLLECTION]
    collection.leads = frozenset()
    await world.announce(offline=list(collection.serving))
    collection.leads = frozenset()
    await world.node.unwatch_vchannel(COLLECTION, VCHANNEL)
    threads.go_on.set()
    with pytest.raises(NotReady, match="load the segment again"):
        await loading
    assert not collection.staged


@scenario()
async def test_rows_that_come_while_deletes_are_applied_leave_the_blocks_alone(world: World) -> None:
    """Adding rows joins small blocks, and a delete of a block that has been joined would be lost."""
    await world.insert([(1, 1), (2, 2), (3, 3)])
    await world.tick()
    go_on = asyncio.Event()

    async def waits(function: Callable[..., Any], /, *args: Any) -> Any:
        if function.__name__ == "run":
            await go_on.wait()
        return function(*args)

    world.node._collections[COLLECTION].applier = DeleteApplier(waits, EVERYTHING_OFF_THE_LOOP)
    await world.delete([2])
    deleted = await world.tick()
    await world.insert([(4, 4), (5, 5), (6, 6)])
    await world.tick()
    assert world.node.service_time(COLLECTION) < deleted
    go_on.set()
    await breathe()
    assert world.keys() == [1, 3, 4, 5, 6]


@scenario()
async def test_a_follower_takes_over_only_when_neither_applies_anything(world: World) -> None:
    await sealed(world, 1, 2, 3)
    collection = world.node._collections[COLLECTION]
    channel = collection.channels[VCHANNEL]
    predecessor = channel.follower
    assert predecessor is not None
    successor = Mock(
        spec=Follower,
        vchannel=VCHANNEL,
        growing=GrowingSegments(),
        tick=predecessor.tick,
        excluded=predecessor.excluded,
        growing_bytes=0,
        started=True,
        is_busy=True,
        unrecovered=tuple,
        failure=None,
    )
    channel.successor = successor
    collection.settle(channel)
    assert channel.follower is predecessor
    successor.is_busy = False
    with patch.object(predecessor, "_held", (predecessor.tick, predecessor.position)):
        collection.settle(channel)
        assert channel.follower is predecessor
    collection.settle(channel)
    assert channel.follower is successor


@scenario()
async def test_a_release_while_deletes_are_applied_ends_them(world: World) -> None:
    await world.node.stop()
    threads = threaded(world)
    await world.start()
    await sealed(world, 1, 2, 3)
    threads.go_on.clear()
    await world.delete([1, 2])
    await world.tick()
    await world.node.release_collection(COLLECTION)
    threads.go_on.set()
    await breathe()
    await world.start()
    for _ in range(10):
        await breathe()
    assert world.keys() == [3]


@scenario()
async def test_a_tick_makes_no_new_views_of_sealed_segments(world: World) -> None:
    for number in range(3):
        await sealed(world, number)
    before = world.snapshot
    await world.insert([(9, 9)])
    await world.tick()
    assert world.snapshot is not before
    assert all(new is old for new, old in zip(world.snapshot.segments[:3], before.segments[:3], strict=True))
    await world.announce(offline=[before.segments[0].segment_id])
    assert [s.segment_id for s in world.snapshot.segments[:2]] == [s.segment_id for s in before.segments[1:3]]
