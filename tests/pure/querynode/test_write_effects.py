"""The deletes of writes reach every held row, whatever is interrupted or replaced while they are applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node_world import COLLECTION, NODE, World, breathe, inline, scenario
from test_big_deletes import EVERYTHING_OFF_THE_LOOP, Threads
from test_interim_blocks import ANY
from test_node_writes import deletes, serve

from elanus.api.querynode import SealedSegmentsChange
from elanus.core.offload import Pools
from elanus.core.segments import DeltaLog
from elanus.core.timestamps import Timestamp
from elanus.querynode.node import QueryNode, QueryNodePolicy


class SlowToReturn(Threads):
    """Does the work at once, and comes back later."""

    async def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        await asyncio.sleep(0)
        result = function(*args)
        await self.go_on.wait()
        return result


async def renew(world: World, policy: QueryNodePolicy, **pools: Threads) -> None:
    """Begin again with a node whose threads these are."""
    await world.node.stop()
    offload = replace(Pools.one(inline), **pools)
    world.node = QueryNode(NODE, world.log, world.store, offload, scratch=world.scratch, policy=policy)
    world.version, world.served = 0, 0
    await world.start()


async def write_deletes(world: World, key: int) -> tuple[DeltaLog, int]:
    """A write that deletes the key. Returns its moment, too."""
    log = deletes(world, [key], world.stamp())
    await world.stamp_and_tick()
    return log, world.now + 50


async def reach(world: World, moment: int) -> None:
    world.now = moment
    await world.tick()
    for _ in range(5):
        await breathe()


@scenario()
async def test_an_interrupted_version_leaves_nothing_out_when_it_is_repeated(world: World) -> None:
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    world.seal()
    world.flush()
    threads = Threads()
    await renew(world, QueryNodePolicy(delete_limits=EVERYTHING_OFF_THE_LOOP), deletes=threads)
    log, moment = await write_deletes(world, 1)
    await world.node.watch_vchannel(replace(world.watch_request(), unserved=(log,)))
    world.version += 1
    named = {log.file.path: Timestamp(moment)}
    change = SealedSegmentsChange(COLLECTION, world.version, (), (), deletes=named)
    threads.go_on.clear()
    announced = asyncio.create_task(world.node.announce(change))
    await breathe()
    announced.cancel()
    await asyncio.gather(announced, return_exceptions=True)
    assert announced.cancelled()
    threads.go_on.set()
    await world.node.announce(change)
    await reach(world, moment)
    assert world.keys() == [2]


@scenario()
async def test_rows_that_join_a_block_meanwhile_do_not_bring_its_deleted_ones_back(world: World) -> None:
    threads = Threads()
    await renew(world, QueryNodePolicy(delete_limits=EVERYTHING_OFF_THE_LOOP), deletes=threads)
    await world.insert([(1, 10)])
    await world.tick()
    log, moment = await write_deletes(world, 1)
    threads.go_on.clear()
    serving = asyncio.create_task(serve(world, log, [], moment))
    await breathe()
    await world.insert([(3, 30)])
    await world.tick()
    await breathe()
    threads.go_on.set()
    await serving
    await reach(world, moment)
    assert world.keys() == [3]


@scenario()
async def test_a_block_that_is_in_the_making_gets_the_deletes(world: World) -> None:
    threads = SlowToReturn()
    await renew(world, QueryNodePolicy(inline_rows_max=0), arrivals=threads)
    await world.insert([(1, 10)])
    await world.tick()
    log, moment = await write_deletes(world, 1)
    threads.go_on.clear()
    await world.insert([(3, 30)])
    await world.tick()
    serving = asyncio.create_task(serve(world, log, [], moment))
    await breathe()
    assert not serving.done(), "the version waits until the block is there"
    threads.go_on.set()
    await serving
    await reach(world, moment)
    assert world.keys() == [3]


@scenario()
async def test_a_joined_block_gets_the_deletes_that_come_while_it_is_made(world: World) -> None:
    joins, applies = Threads(), Threads()
    policy = QueryNodePolicy(interim=ANY, delete_limits=EVERYTHING_OFF_THE_LOOP)
    await renew(world, policy, interim=joins, deletes=applies)
    joins.go_on.clear()
    await world.insert([(1, 10), (2, 20)])
    await world.tick()
    log, moment = await write_deletes(world, 1)
    applies.go_on.clear()
    serving = asyncio.create_task(serve(world, log, [], moment))
    await breathe()
    joins.go_on.set()
    for _ in range(5):
        await breathe()
    applies.go_on.set()
    await serving
    await reach(world, moment)
    assert world.keys() == [2]


@scenario()
async def test_a_node_that_ends_meanwhile_waits_for_nobody(world: World) -> None:
    threads = SlowToReturn()
    await renew(world, QueryNodePolicy(inline_rows_max=0), arrivals=threads)
    await world.insert([(1, 10)])
    await world.tick()
    log, moment = await write_deletes(world, 1)
    threads.go_on.clear()
    await world.insert([(3, 30)])
    await world.tick()
    serving = asyncio.create_task(serve(world, log, [], moment))
    await breathe()
    await world.node.release_collection(COLLECTION)
    async with asyncio.timeout(5.0):
        await asyncio.gather(serving, return_exceptions=True)
    threads.go_on.set()


@scenario()
async def test_a_node_that_ends_while_it_applies_them_waits_for_nobody(world: World) -> None:
    threads = Threads()
    await renew(world, QueryNodePolicy(delete_limits=EVERYTHING_OFF_THE_LOOP), deletes=threads)
    await world.insert([(1, 10)])
    await world.tick()
    log, moment = await write_deletes(world, 1)
    threads.go_on.clear()
    serving = asyncio.create_task(serve(world, log, [], moment))
    await breathe()
    await world.node.release_collection(COLLECTION)
    threads.go_on.set()
    async with asyncio.timeout(5.0):
        await asyncio.gather(serving, return_exceptions=True)
