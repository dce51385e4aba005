"""Vchannels whose log or binlogs cannot be read: watches fail, and reads are refused until that is over."""

from __future__ import annotations

import asyncio
import contextlib
from unittest.mock import patch

import pytest
from node_world import COLLECTION, PCHANNEL, VCHANNEL, World, breathe, scenario

from elanus.api.querynode import (
    SealedSegmentsChange,
    WatchVchannel,
)
from elanus.core.errors import (
    Unavailable,
)
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.port import CorruptLog, EntryHeader, NewEntry, Position
from elanus.querynode import loading
from elanus.querynode.log_troubles import TRIES
from elanus.storage.port import StorageFailed

ONE, TWO = PartitionID(1), PartitionID(2)


@scenario()
async def test_a_vchannel_that_cannot_be_followed_is_an_error_until_it_is_loaded_again(world: World) -> None:
    await world.insert([(1, 1)])
    await world.tick()
    world.flush()
    header = EntryHeader(
        MsgKind.INSERT, Timestamp(world.stamp()), VCHANNEL, COLLECTION, ONE, SegmentID(5), rows=1
    )
    await world.log.append(PCHANNEL, [NewEntry(header, [b"damaged"])])
    await world.tick()
    status = await world.node.status()
    assert "CorruptLog" in status.failures[VCHANNEL]
    assert world.node.service_time(COLLECTION) < world.tick_ts
    with pytest.raises(Unavailable, match="CorruptLog"):
        await world.node.watch_vchannel(world.watch_request())
    for _ in range(2):  # a read that would wait is refused at once, until the vchannel can be read again
        with pytest.raises(Unavailable, match=r"cannot be read \(CorruptLog.*: restore the file"):
            world.node.wait_service_time(COLLECTION, world.tick_ts, 60.0)
        await world.node.give_up_vchannel(COLLECTION, VCHANNEL)


@scenario()
async def test_reads_go_on_once_a_damaged_log_is_restored(world: World) -> None:
    await world.insert([(1, 1)])
    await world.tick()
    follower = world.node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    follower._give_up(CorruptLog("a file"))
    await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    watching = asyncio.create_task(world.node.watch_vchannel(world.watch_request()))
    await breathe()
    assert not watching.done(), "the damage may still be ahead"
    await world.stamp_and_tick()
    await watching
    world.version += 1
    change = SealedSegmentsChange(COLLECTION, world.version, (), (), (), leads=(VCHANNEL,))
    await world.node.announce(change)
    await world.tick()
    await breathe()
    world.node.wait_service_time(COLLECTION, world.tick_ts, 0.0)
    assert world.keys() == [1]


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
async def test_reads_of_a_log_that_was_put_back_are_refused_until_it_is_restored(
    world: World,
) -> None:
    """Its checkpoint is beyond the end of an older copy, which goes on with other entries."""
    await world.insert([(1, 1)])
    await world.tick()
    end = world.log.end(PCHANNEL)
    await world.insert([(2, 2)])
    await world.tick()
    world.flush()
    needed, stream = world.checkpoint.position, world.log._streams[PCHANNEL]
    lost = [entry for entry in stream.entries if entry.position >= end]
    stream.cut(end)
    world.node = world._new_node()
    await world.node.start()
    await world.node.load_collection(world.load_request())
    with pytest.raises(Unavailable, match="RewoundLog"):
        await world.node.watch_vchannel(world.watch_request())
    text = f"{PCHANNEL}: position {needed} is needed, but the log ends at {end}: an older copy"
    assert text in (await world.node.status()).unreadable_logs[COLLECTION][0]
    for _ in range(2):
        with pytest.raises(Unavailable, match=f"{text}.*restore a copy that reaches this position"):
            world.node.wait_service_time(COLLECTION, world.tick_ts, 60.0)
        await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    stream.entries += lost
    stream.positions += [entry.position for entry in lost]
    stream.end = lost[-1].next
    watching = asyncio.create_task(world.node.watch_vchannel(world.watch_request()))
    await world.stamp_and_tick()
    await watching
    world.version = 0
    await world.announce()
    await world.tick()
    world.node.wait_service_time(COLLECTION, world.tick_ts, 0.0)
    assert (sorted(world.keys()), (await world.node.status()).unreadable_logs) == ([1, 2], {})


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


@scenario()
async def test_waiting_for_a_vchannel_that_will_not_catch_up_fails(world: World) -> None:
    """The log was trimmed after its checkpoint had been looked up."""
    await world.insert([(1, 1)])
    await world.tick()
    world.version += 1
    change = SealedSegmentsChange(COLLECTION, world.version, (), (), (), leads=())
    await world.node.announce(change)  # another node leads it from now on
    await world.node.unwatch_vchannel(COLLECTION, VCHANNEL)
    await world.log.trim(PCHANNEL, world.log.end(PCHANNEL))
    with pytest.raises(Unavailable, match="TrimmedLog"):
        async with asyncio.timeout(5):
            await world.node.watch_vchannel(world.watch_request())


@scenario()
async def test_a_store_that_does_not_answer_fails_the_watch_and_leaves_nothing(world: World) -> None:
    await world.insert([(1, 1)])
    await world.tick()
    world.flush()
    await world.node.release_collection(COLLECTION)
    await world.node.load_collection(world.load_request())
    away = StorageFailed("the store does not answer")
    with patch.object(loading, "recover_growing", side_effect=away), pytest.raises(StorageFailed):
        await world.node.watch_vchannel(world.watch_request())
    await world.node.watch_vchannel(world.watch_request())
    world.version = 0
    await world.announce()
    await breathe()
    assert world.keys() == [1]
