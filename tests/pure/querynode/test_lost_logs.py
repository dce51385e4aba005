"""A log that begins after the position that is needed: trimmed meanwhile, or lost."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from node_world import COLLECTION, PCHANNEL, VCHANNEL, World, breathe, scenario

from elanus.api.querynode import WatchVchannel
from elanus.core.errors import Unavailable
from elanus.log.port import Position
from elanus.querynode.log_troubles import TRIES


async def restarted_without_its_log(world: World) -> None:
    """Rows that are only in the log, a node that starts, and a log that begins after them."""
    await world.insert([(1, 1)])
    await world.tick()
    await restart_and_trim(world)


async def restart_and_trim(world: World) -> None:
    world.node = world._new_node()
    await world.node.start()
    await world.node.load_collection(world.load_request())
    await world.log.trim(PCHANNEL, world.log.end(PCHANNEL))


async def fail_to_follow(world: World, request: WatchVchannel | None = None) -> None:
    with contextlib.suppress(Unavailable):
        await world.node.watch_vchannel(request or world.watch_request())
    await breathe()
    assert "TrimmedLog" in (await world.node.status()).failures[VCHANNEL]


@scenario()
async def test_reads_of_a_log_that_has_lost_its_beginning_are_refused_with_a_text(world: World) -> None:
    await restarted_without_its_log(world)
    end = world.log.end(PCHANNEL)
    reading = asyncio.create_task(world.node._collections[COLLECTION].clock.reached(world.tick_ts, 60.0))
    for tries in range(1, TRIES + 1):
        await fail_to_follow(world)
        status = await world.node.status(COLLECTION)
        assert (reading.done(), bool(status.unreadable_logs)) == (tries == TRIES, tries == TRIES)
        await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    text = (await world.node.status()).unreadable_logs[COLLECTION][0]
    assert f"position 0 is trimmed; the log begins at {end}): the log has lost" in text
    with pytest.raises(Unavailable, match="restore the log from a copy"):
        await reading
    with pytest.raises(Unavailable, match=f"the log of vchannel {VCHANNEL} cannot be read"):
        world.node.wait_service_time(COLLECTION, world.tick_ts, 60.0)


@scenario()
async def test_a_log_trimmed_up_to_a_newer_checkpoint_is_followed_from_there(world: World) -> None:
    """The node's checkpoint was looked up before a commit and a trim, twice."""
    await world.insert([(1, 1)])
    await world.tick()
    before = world.watch_request()
    world.seal()
    flushed = world.flush()
    await restart_and_trim(world)
    reading = asyncio.create_task(world.node._collections[COLLECTION].clock.reached(world.tick_ts, 60.0))
    for _ in range(TRIES - 1):
        await fail_to_follow(world, before)
        await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    world.version = 0
    await world.node.watch_vchannel(world.watch_request())
    await world.hand_off(flushed)
    await world.tick()
    await reading
    assert (world.keys(), (await world.node.status()).unreadable_logs) == ([1], {})


@scenario()
async def test_a_vchannel_that_could_not_be_read_serves_once_something_was_read(world: World) -> None:
    await restarted_without_its_log(world)
    for _ in range(2):
        await fail_to_follow(world)
        await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    world.log._streams[PCHANNEL].begin = Position(0)  # its file is there again
    watching = asyncio.create_task(world.node.watch_vchannel(world.watch_request()))
    await breathe()
    assert not watching.done(), "what is left of the log has no tick"
    await world.stamp_and_tick()
    await watching
