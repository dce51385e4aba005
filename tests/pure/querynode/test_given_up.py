"""A vchannel whose log was trimmed under a node is recovered from its segments; the others stay loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from node_world import COLLECTION, VCHANNEL, World, scenario
from test_damaged_files import flushed
from test_node_fleet import Fleet
from test_node_fleet import scenario as fleet_scenario

from elanus.api.querynode import SealedSegmentsChange
from elanus.core.errors import NotReady, Unavailable
from elanus.log.port import TrimmedLog
from elanus.querynode.coverage import Coverage
from elanus.querynode.sealed import SealedSegment

OTHER = "by-dev-rootcoord-dml_1_7v1"


def fail(world: World) -> None:
    """The node cannot read on: the log before its position is gone."""
    follower = world.node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    follower._give_up(TrimmedLog("position 1 is trimmed"))


def loaded_copies(world: World) -> dict[int, SealedSegment]:
    collection = world.node._collections[COLLECTION]
    return {**collection.staged, **collection.serving}


@scenario()
async def test_it_serves_nothing_until_a_version_has_what_was_flushed_meanwhile(world: World) -> None:
    first = await flushed(world, range(10))
    await world.hand_off([first])
    await world.insert([(key, key) for key in range(10, 15)])
    await world.delete([1, 11])
    await world.tick()
    assert world.count() == 13
    fail(world)
    version, leads = world.version, (VCHANNEL,)
    await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    status = await world.node.status()
    assert (status.failures, status.versions[COLLECTION], status.segments) == ({}, 0, ())
    with pytest.raises(Unavailable, match="served up to timestamp 0"):
        world.count()
    world.seal()
    (second,) = world.flush()
    await world.insert([(20, 20)])
    await world.node.watch_vchannel(world.watch_request())
    with pytest.raises(NotReady, match="given up"):
        await world.node.announce(SealedSegmentsChange(COLLECTION, version, (), (), leads=leads))
    await world.hand_off([first, second])
    await world.tick()
    assert world.count() == 14
    assert world.keys() == [key for key in (*range(15), 20) if key not in (1, 11)]
    world.node.invariants()


@scenario()
async def test_a_vchannel_that_is_followed_is_not_given_up(world: World) -> None:
    await world.hand_off([await flushed(world, range(10))])
    await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    await world.node.give_up_vchannel(COLLECTION, "another")
    assert world.count() == 10


@scenario()
async def test_a_follower_that_was_prepared_for_it_does_not_start(world: World) -> None:
    recovering, go_on = asyncio.Event(), asyncio.Event()

    async def slow(function: Callable[..., Any], *args: Any) -> Any:
        recovering.set()
        await go_on.wait()
        return function(*args)

    await world.node.load_collection(world.load_request((1, 2)))
    with patch.object(world.node._loading, "offload", slow):
        channel = world.node._collections[COLLECTION].channels[VCHANNEL]
        channel.follower.coverage = Coverage.nothing()  # type: ignore[union-attr]
        watching = asyncio.create_task(world.node.watch_vchannel(world.watch_request()))
        await recovering.wait()
        fail(world)
        await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
        go_on.set()
        with pytest.raises(NotReady, match="was let go meanwhile"):
            await watching
    assert world.node._collections[COLLECTION].channels[VCHANNEL].followers() == []


@scenario()
async def test_the_segments_of_the_other_vchannels_stay_loaded(world: World) -> None:
    here = await flushed(world, range(10))
    there = await flushed(world, range(10, 20))
    await world.node.release_collection(COLLECTION)
    await world.node.load_collection(replace(world.load_request(), vchannels=(VCHANNEL, OTHER)))
    info = world.segments[there]
    info.manifest = replace(info.manifest, vchannel=OTHER)
    both = [world.watch_request(), replace(world.watch_request(), vchannel=OTHER, growing=(), delta_logs=())]
    for request in both:
        await world.node.watch_vchannel(request)
    world.version = 0
    await world.hand_off([here, there])
    before = loaded_copies(world)
    followed = world.node._collections[COLLECTION].channels[OTHER].follower
    fail(world)
    await world.node.give_up_vchannel(COLLECTION, VCHANNEL)
    assert loaded_copies(world) == {there: before[there]}
    assert (await world.node.status()).loaded == {COLLECTION: (there,)}
    await world.node.watch_vchannel(both[0])
    await world.hand_off([here, there])
    after = loaded_copies(world)
    assert after[there] is before[there]
    assert after[here] is not before[here], "deletes that it missed are in the delta logs"
    assert world.node._collections[COLLECTION].channels[OTHER].follower is followed
    assert {s.segment_id for s in (await world.node.status()).segments} == {here, there}
    world.node.invariants()


@fleet_scenario
async def test_reads_are_right_while_a_replica_recovers_from_a_trimmed_log(fleet: Fleet) -> None:
    await fleet.begin(1, 2, replicas=2)
    await fleet.finish(1, 2, 3)
    await fleet.insert([(4, 4)])
    await fleet.delete([2])
    await fleet.tick()
    await fleet.check()
    node = fleet.nodes[next(iter(fleet.nodes))]
    follower = node._collections[COLLECTION].channels[VCHANNEL].follower
    assert follower is not None
    follower._give_up(TrimmedLog("position 1 is trimmed"))
    await fleet.insert([(5, 5)])
    await fleet.tick()
    fleet.seal()
    fleet.flush()
    fleet.changes.happened()
    for _ in range(10):
        await fleet.check()

    async def recovered() -> bool:
        await fleet.stamp_and_tick()
        status = await node.status()
        return not status.failures and status.versions.get(COLLECTION, 0) > 0

    await fleet.until(recovered)
    await fleet.loaded()
    for _ in range(4):
        await fleet.check()
    await fleet.end()
