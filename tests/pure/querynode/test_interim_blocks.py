"""Joined growing blocks: made in threads, exchanged between packs, and nothing that reads see changes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from node_rows import VECTOR, schema_of
from node_world import COLLECTION, NODE, VCHANNEL, World, breathe, inline, scenario
from test_big_deletes import Threads

from elanus.api.querynode import NodeSearch
from elanus.core.ids import FieldID, PartitionID, SegmentID
from elanus.core.offload import Pools
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.core.trail import following
from elanus.expr import compile_filter
from elanus.index import IndexSpec, InterimIndex, SearchParams, resolve_index
from elanus.querynode.explaining import new_trail, report
from elanus.querynode.follower import Follower
from elanus.querynode.growing import GrowingBlock, GrowingSegment, NewRows
from elanus.querynode.interim import LATER_SHARE, RATIO, InterimRules, due
from elanus.querynode.node import QueryNode, QueryNodePolicy
from elanus.querynode.search import search
from elanus.querynode.search_interest import LATELY_S, SearchInterest
from elanus.querynode.snapshot import Snapshot, SnapshotSegment

DIM = 64
ANY = InterimRules(bytes_min=1, without_codes=True)


def joining(world: World, rules: InterimRules) -> Threads:
    """Start the node of a world again with these rules."""
    threads = Threads()
    world.node = QueryNode(
        NODE,
        world.log,
        world.store,
        replace(Pools.one(inline), interim=threads),
        scratch=world.scratch,
        policy=QueryNodePolicy(interim=rules),
    )
    world.version = 0
    return threads


def played(test: Any) -> Any:
    """Makes a test of a coroutine over a `World` whose node joins all blocks."""

    @scenario()
    async def play(world: World) -> None:
        await world.node.stop()
        threads = joining(world, ANY)
        await world.start()
        await test(world, threads)

    play.__name__, play.__doc__ = test.__name__, test.__doc__
    return play


def follower_of(world: World) -> Follower:
    follower = world.node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    return follower


def joined(world: World) -> list[bool]:
    """Return for each block whether it was joined."""
    return [block.is_joined for segment in follower_of(world).growing.values() for block in segment.blocks]


async def settled(world: World) -> None:
    for _ in range(10):
        await breathe()
    world.node.invariants()


@played
async def test_blocks_are_joined_in_a_thread_and_reads_see_the_same_rows(
    world: World, threads: Threads
) -> None:
    threads.go_on.clear()
    await world.insert([(1, 1), (2, 2)])
    first = await world.tick()
    await world.insert([(3, 3)])
    await world.tick()
    assert joined(world) == [
        False,
        False,
    ]  # rows that arrive meanwhile are not added to a block that is joined
    threads.go_on.set()
    await settled(world)
    assert "joined" in threads.pieces
    assert all(joined(world))
    assert (world.keys(), world.keys(ts=first)) == ([1, 2, 3], [1, 2])


@played
async def test_deletes_that_come_while_blocks_are_joined_hold(world: World, threads: Threads) -> None:
    await world.insert([(0, 0)])
    await world.tick()
    await settled(world)
    threads.go_on.clear()
    await world.insert([(1, 1), (2, 2), (3, 3)])
    before = await world.tick()
    await world.delete([2])
    await world.insert([(3, 33), (4, 4)], upsert=True)
    after = await world.tick()
    await world.delete([4])
    threads.go_on.set()
    await world.tick()
    await settled(world)
    assert (world.keys(), world.count("value == 33")) == ([0, 1, 3], 1)
    assert (world.keys(ts=before), world.keys(ts=after)) == ([0, 1, 2, 3], [0, 1, 3, 4])
    assert all(joined(world))
    await world.delete([1])
    await world.tick()
    assert world.keys() == [0, 3]


@played
async def test_a_handoff_while_blocks_are_joined_discards_them(world: World, threads: Threads) -> None:
    threads.go_on.clear()
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    making_bytes = follower_of(world)._interim.making_bytes
    assert making_bytes > 0
    assert follower_of(world).growing_bytes == follower_of(world).growing.batch_bytes + making_bytes
    world.seal()
    [segment_id] = world.flush()
    await world.hand_off([segment_id])
    assert not follower_of(world).growing
    threads.go_on.set()
    await settled(world)
    assert not follower_of(world).growing
    assert follower_of(world).growing_bytes == 0
    collection = world.node._collections[COLLECTION]
    assert collection.growing_bytes == sum(c.deletes.memory_bytes for c in collection.channels.values())
    assert world.keys() == [1, 2]


@played
async def test_a_release_ends_the_joining(world: World, threads: Threads) -> None:
    threads.go_on.clear()
    await world.insert([(1, 1)])
    await world.tick()
    await world.node.release_collection(COLLECTION)
    threads.go_on.set()
    await breathe()
    assert world.node.growing_bytes == 0


@played
async def test_rows_stay_searchable_when_joining_fails(world: World, threads: Threads) -> None:
    async def failing(*_: Any) -> Any:
        raise MemoryError("no room for another block")

    follower_of(world)._interim._offload = failing
    for key in (1, 2, 3):
        await world.insert([(key, key)])
        await world.tick()
    await settled(world)
    assert (world.keys(), joined(world)) == ([1, 2, 3], [False, False])
    assert follower_of(world)._interim.making_bytes == 0


@scenario()
async def test_recovered_rows_are_joined(world: World) -> None:
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    world.flush()
    await world.node.stop()
    joining(world, ANY)
    await world.start()
    await settled(world)
    assert (joined(world), world.keys()) == ([True], [1, 2])


@scenario()
async def test_fields_that_can_have_no_codes_are_left_as_they_are(world: World) -> None:
    await world.node.stop()
    threads = joining(world, InterimRules(bytes_min=1))
    await world.start()
    await world.insert([(1, 1)])
    await world.tick()
    await settled(world)
    assert (joined(world), threads.pieces) == ([False], [])


# collections that nobody searches


@scenario()
async def test_only_collections_that_are_searched_get_interim_indexes(world: World) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GrowingSegment, "takes_codes", True)  # vectors of two numbers have no codes
        await world.node.stop()
        joining(world, InterimRules(bytes_min=1))
        await world.start()
        await world.insert([(1, 1)])
        await world.tick()
        await world.insert([(2, 2)])
        await world.tick()
        await settled(world)
        assert joined(world) == [False], "rows are added to the block, and nothing is joined"
        assert world.keys() == [1, 2], "a query does not need an index"
        await settled(world)
        assert joined(world) == [False]
        world.nearest(1, 1)
        await settled(world)
        assert joined(world) == [True], "the first search has the earlier rows joined"
        await world.insert([(3, 3)])
        await world.tick()
        await settled(world)
        assert all(joined(world)), "and later ones join at once"
        assert world.keys() == [1, 2, 3]


def test_a_search_counts_for_a_while_and_the_next_one_wakes() -> None:
    wakes: list[None] = []
    interest = SearchInterest(lambda: wakes.append(None))
    interest.note()
    assert (interest.is_recent(0.0), len(wakes)) == (True, 0), "nobody had asked"
    assert interest.is_recent(LATELY_S - 1)
    interest.note()
    assert interest.is_recent(LATELY_S + 1), "searched again meanwhile"
    assert not interest.is_recent(2 * LATELY_S + 1)
    interest.note()
    interest.note()
    assert (interest.is_recent(2 * LATELY_S + 2), len(wakes)) == (True, 1)


# which blocks are joined


def test_blocks_are_joined_with_those_before_that_are_not_much_larger() -> None:
    one, first = block_of(10), round(1 / LATER_SHARE)
    rules = InterimRules(bytes_min=first * one.batch_bytes, bytes_max=100 * one.batch_bytes)

    def joined_of(count: int) -> GrowingBlock:
        return block_of(count, is_joined=True)

    assert due([], rules) is None
    assert due([one] * (first - 1), rules) is None
    assert due([one] * first, rules) == slice(0, first)
    assert due([joined_of(50)], rules) is None
    assert due([joined_of(50), block_of(9)], rules) is None
    assert due([joined_of(10 * RATIO), one], rules) == slice(1, 2)
    assert due([joined_of(10 * RATIO - 1), one], rules) == slice(0, 2)
    assert due([joined_of(10 * RATIO), joined_of(5), one], rules) == slice(0, 3)
    assert due([joined_of(990), joined_of(20), one], rules) == slice(1, 3)
    assert due([joined_of(990), one, one], rules) == slice(1, 3)


def test_a_segment_has_few_blocks_and_copies_its_rows_a_few_times() -> None:
    rules = InterimRules(bytes_min=1, bytes_max=1 << 40)
    blocks: list[GrowingBlock] = []
    copied = 0
    for _ in range(100):
        blocks.append(block_of(1))
        run = due(blocks, rules)
        assert run is not None
        rows = sum(block.rows for block in blocks[run])
        copied += rows
        blocks[run] = [block_of(rows, is_joined=True)]
        assert len(blocks) <= 1 + math.log(100, RATIO)
    assert copied <= 2 * RATIO * 100


# blocks by themselves


def schema() -> CollectionSchema:
    fields = (
        *schema_of(DataType.INT64).fields[:1],
        FieldSchema(VECTOR, "vector", DataType.FLOAT_VECTOR, dim=DIM),
    )
    return CollectionSchema("rows", fields)


def specs() -> dict[FieldID, IndexSpec]:
    sent = {"index_type": "HNSW", "metric_type": "COSINE"}
    return {VECTOR: resolve_index(sent, DataType.FLOAT_VECTOR, DIM)}


def rows_of(first: int, count: int) -> NewRows:
    random = np.random.default_rng(first)
    few = random.normal(size=(count, 6)) @ np.random.default_rng(1).normal(size=(6, DIM))
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(few.astype(np.float32).reshape(-1)), type=schema().field("vector").arrow_type
    )
    keys = pa.array(np.arange(first, first + count))
    batch = pa.record_batch([keys, vectors], schema=schema().arrow_schema)
    return NewRows(batch, np.arange(first, first + count, dtype=np.int64) + 1)


def block_of(count: int, *, is_joined: bool = False) -> GrowingBlock:
    rows = rows_of(0, count)
    return GrowingBlock(schema(), {}, rows.batch, rows.row_ts, is_joined=is_joined)


def test_a_joined_block_is_searched_by_codes_and_counts_them() -> None:
    segment = GrowingSegment(SegmentID(1), PartitionID(1), schema(), specs())
    assert segment.takes_codes
    for first in range(0, 6000, 2000):
        segment.append([rows_of(first, 2000)])
    plain_bytes, batch_bytes = segment.memory_bytes, sum(block.batch_bytes for block in segment.blocks)
    first = segment.joined(segment.blocks)
    segment.blocks = (first,)
    segment.append([rows_of(6000, 100)])
    assert [block.is_joined for block in segment.blocks] == [True, False]
    joined = segment.joined([first, segment.joined(segment.blocks[1:])])
    index = joined.vectors[VECTOR].index
    assert (joined.rows, joined.is_joined) == (6100, True)
    assert isinstance(index, InterimIndex)
    assert first.memory_bytes > plain_bytes
    assert first.batch_bytes == pytest.approx(batch_bytes + 6000 * (DIM / 8 + 8), rel=0.05)
    queries = np.stack(rows_of(10**6, 20).batch.column("vector").to_numpy(zero_copy_only=False))
    exact = GrowingBlock(schema(), specs(), joined.batch, joined.row_ts).vectors[VECTOR].index
    assert exact is not None
    truth = exact.search(queries, 10, SearchParams()).rows
    met = index._coded.nearest(index._checked(queries), 10, None, 1).rows
    assert np.mean([np.isin(a, b).mean() for a, b in zip(truth, met, strict=True)]) >= 0.98


def test_a_search_by_codes_is_explained() -> None:
    growing = GrowingSegment(SegmentID(1), PartitionID(1), schema(), specs())
    growing.append([rows_of(0, 6000)])
    block = growing.joined(growing.blocks)
    part = SnapshotSegment(growing.segment_id, growing.partition_id, False, (block,))
    snapshot = Snapshot(COLLECTION, schema(), specs(), 1, Timestamp(10**6), None, (part,))
    queries = np.stack(block.batch.column("vector").slice(0, 1).to_numpy(zero_copy_only=False))
    every = compile_filter("", schema())
    read = NodeSearch(COLLECTION, (), VECTOR, queries, 10, "", {}, every, (), Timestamp(10**6))
    trail = new_trail()
    with following(trail):
        search(snapshot, read, 1)
    trail.step("")
    (said,) = report(NODE, "search", snapshot, read, trail).segments
    assert said.methods == ("codes of all rows compared, and the rows of the best 150",)


def test_a_joined_block_takes_the_deletes_of_its_parts() -> None:
    segment = GrowingSegment(SegmentID(1), PartitionID(1), schema(), {})
    segment.append([rows_of(0, 10)])
    parts = segment.blocks
    joined = segment.joined(parts)
    parts[0]._visibility.apply_deletes(np.array([3]), np.array([50]))
    joined.take_deletes(parts)
    assert joined._visibility.deleted_rows == 1
    assert joined._visibility.sees(np.array([2, 3]), 60).tolist() == [True, False]
    assert joined._visibility.sees(np.array([2, 3]), 40).tolist() == [True, True]


def test_a_joined_block_keeps_the_order_of_its_rows() -> None:
    segment = GrowingSegment(SegmentID(1), PartitionID(1), schema(), specs())
    for first in (0, 700, 1400):
        segment.append([rows_of(first, 700)])
    joined = segment.joined(segment.blocks)
    assert joined.keys.keys.to_pylist() == list(range(2100))
    assert joined.row_ts.tolist() == list(range(1, 2101))
