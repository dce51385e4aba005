"""The whole status of a query node, the status of one collection and the pulse agree."""

from __future__ import annotations

from dataclasses import replace

from node_world import COLLECTION, World, scenario

from elanus.core.ids import CollectionID


@scenario()
async def test_the_status_of_a_collection_and_the_pulse_are_parts_of_the_whole(world: World) -> None:
    await world.insert([(1, 1), (2, 2), (3, 3)])
    await world.stamp_and_tick()
    world.seal()
    flushed = world.flush()
    await world.hand_off(flushed)
    await world.insert([(4, 4), (5, 5)])
    await world.stamp_and_tick()
    node = world.node
    whole, pulse = await node.status(), await node.pulse()
    assert {s.sealed for s in whole.segments} == {True, False}
    assert await node.status(COLLECTION) == replace(whole, held=(), positions={})
    none = await node.status(CollectionID(COLLECTION + 1))
    assert (none.segments, none.versions, none.loaded, none.service_times, none.leads) == ((), {}, {}, {}, ())
    assert (none.used_bytes, none.leads_elsewhere) == (whole.used_bytes, len(whole.leads))
    assert pulse.growing_bytes == whole.growing_bytes
    assert {(g.segment_id, g.memory_bytes) for g in pulse.growing} == {
        (s.segment_id, s.memory_bytes) for s in whole.segments if not s.sealed
    }
    assert (pulse.versions, pulse.positions, pulse.incarnation) == (
        whole.versions,
        whole.positions,
        whole.incarnation,
    )
    assert (pulse.query_channels, pulse.failures) == (whole.query_channels, whole.failures)


@scenario()
async def test_the_pulse_follows_rows_and_their_handoff(world: World) -> None:
    for change in (lambda: world.insert([(1, 1)]), world.stamp_and_tick, world.stamp_and_tick):
        await change()
        pulse, whole = await world.node.pulse(), await world.node.status()
        world.node.invariants()
        assert pulse.positions == whole.positions
        assert {g.segment_id for g in pulse.growing} == {s.segment_id for s in whole.segments if not s.sealed}
    assert pulse.growing
    world.seal()
    await world.hand_off(world.flush())
    assert not (await world.node.pulse()).growing
    await world.node.release_collection(COLLECTION)
    after = await world.node.pulse()
    assert (after.versions, after.positions, after.failures) == ({}, {}, {})
