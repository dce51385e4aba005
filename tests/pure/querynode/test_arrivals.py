"""The rows of large packs are prepared in threads, and reads see them when all before them is done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from node_world import COLLECTION, NODE, VCHANNEL, World, breathe, inline, scenario
from test_big_deletes import Threads

from elanus.core.ids import PartitionID
from elanus.core.messages import MsgKind
from elanus.core.offload import Pools
from elanus.querynode.arrivals import Intake
from elanus.querynode.key_ranges import KeyRanges
from elanus.querynode.node import QueryNode, QueryNodePolicy


def threaded(world: World, inline_rows_max: int) -> Threads:
    """Start the node of a world again; packs with more rows than these are prepared in threads."""
    threads = Threads()
    world.node = QueryNode(
        NODE,
        world.log,
        world.store,
        replace(Pools.one(inline), arrivals=threads),
        scratch=world.scratch,
        policy=QueryNodePolicy(inline_rows_max=inline_rows_max),
    )
    world.version = 0
    return threads


def played(test: Any) -> Any:
    """Makes a test of a coroutine over a `World` whose node prepares packs of more than two rows in
    threads."""

    @scenario()
    async def play(world: World) -> None:
        await world.node.stop()
        threads = threaded(world, 2)
        await world.start()
        await test(world, threads)

    play.__name__, play.__doc__ = test.__name__, test.__doc__
    return play


async def settled(world: World) -> None:
    for _ in range(20):
        await breathe()
    assert world.node.service_time(COLLECTION) == world.tick_ts


@played
async def test_only_large_packs_are_prepared_in_threads(world: World, threads: Threads) -> None:
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    assert (threads.pieces, world.keys()) == ([], [1, 2])
    await world.insert([(3, 3), (4, 4), (5, 5)])
    await world.tick()
    await settled(world)
    assert (threads.pieces, world.keys()) == (["prepared"], [1, 2, 3, 4, 5])
    follower = world.node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    follower._intake = Intake(threads, inline_entries_max=1)
    for key in (6, 7):
        await world.insert([(key, key)])
    await world.tick()
    await settled(world)
    assert (threads.pieces, world.keys()) == (["prepared"] * 2, [1, 2, 3, 4, 5, 6, 7])


@played
async def test_what_follows_waits_for_rows_that_are_being_prepared(world: World, threads: Threads) -> None:
    await world.insert([(0, 0)])
    before = await world.tick()
    threads.go_on.clear()
    await world.insert([(key, key) for key in (1, 2, 3)])
    await world.tick()
    await world.delete([0, 2])
    await world.insert([(3, 33)], upsert=True)
    await world.tick()
    await breathe()
    assert (world.node.service_time(COLLECTION), world.keys(ts=before)) == (before, [0])
    threads.go_on.set()
    await settled(world)
    assert (world.keys(), world.count("value == 33")) == ([1, 3], 1)
    world.node.invariants()


@played
async def test_rows_of_a_segment_that_is_released_meanwhile_do_not_come_back(
    world: World, threads: Threads
) -> None:
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    threads.go_on.clear()
    await world.insert([(key, key) for key in (3, 4, 5)])
    await world.tick()
    follower = world.node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    follower.release(set(follower.growing))
    threads.go_on.set()
    await settled(world)
    assert (list(follower.growing), follower.growing.batch_bytes) == ([], 0)


@played
async def test_rows_of_a_partition_that_is_dropped_in_the_same_pack_are_gone(
    world: World, threads: Threads
) -> None:
    await world.insert([(1, 1), (2, 2)])
    await world.insert([(key, key) for key in (3, 4, 5)], partition=2)
    await world.ddl(MsgKind.DROP_PARTITION, 2)
    await world.tick()
    await settled(world)
    follower = world.node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    assert [s.partition_id for s in follower.growing.values()] == [PartitionID(1)]
    assert threads.pieces == ["prepared"]


@played
async def test_a_release_while_rows_are_prepared_ends_the_following(world: World, threads: Threads) -> None:
    threads.go_on.clear()
    await world.insert([(key, key) for key in (1, 2, 3)])
    await world.tick()
    await world.node.release_collection(COLLECTION)
    threads.go_on.set()
    await breathe()
    assert world.node.growing_bytes == 0


async def added_at_a_delete(directory: Path, segments: int) -> int:
    """Return how many blocks are given to the ranges of keys while a pack with one delete is applied."""
    world = World(directory)
    await world.start()
    for key in range(segments):
        world.open.clear()  # a segment of its own
        await world.insert([(key, key)])
    await world.tick()
    with patch.object(KeyRanges, "add", autospec=True, side_effect=KeyRanges.add) as add:
        await world.delete([0])
        await world.tick()
        await breathe()
    assert world.keys() == list(range(1, segments))
    await world.node.stop()
    return int(add.call_count)


@pytest.mark.parametrize("segments", [2, 20])
def test_a_delete_does_not_look_at_every_growing_segment(tmp_path: Path, segments: int) -> None:
    assert asyncio.run(added_at_a_delete(tmp_path, segments)) == 0
