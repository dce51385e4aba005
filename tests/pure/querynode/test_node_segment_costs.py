"""A node with many segments: what a status and a load cost, and which deletes are read for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from counting import steps_of, turns_of
from node_world import COLLECTION, World, scenario

from elanus.core.errors import SegmentUnreadable
from elanus.core.ids import SegmentID
from elanus.querynode import sealed_servings, status
from elanus.querynode.load_batches import BATCH_MAX

MANY = 24


async def with_segments(world: World, count: int) -> list[SegmentID]:
    """Flush this many segments of a row each; none is loaded."""
    flushed: list[SegmentID] = []
    for key in range(count):
        await world.insert([(key, key)])
        await world.stamp_and_tick()
        world.seal()
        flushed += world.flush()
    return flushed


@scenario()
async def test_a_status_costs_what_has_changed_since_the_one_before(world: World) -> None:
    few, more = 4, MANY
    costs = []
    flushed = await with_segments(world, more)
    for served in (flushed[:few], flushed[few:]):
        await world.hand_off(served)
        await world.node.status(COLLECTION)
        costs.append(await steps_of(lambda: world.node.status(COLLECTION)))
    world.node.invariants()
    each = (costs[1] - costs[0]) / (more - few)
    assert each < 60, f"steps for a segment that has not changed: {each}, of {costs}"
    assert len((await world.node.status(COLLECTION)).segments) == more


@scenario()
async def test_others_run_while_a_long_status_is_made(world: World) -> None:
    await world.hand_off(await with_segments(world, MANY))
    with pytest.MonkeyPatch.context() as patch:
        for module in (sealed_servings, status):
            patch.setattr(module, "AT_ONCE", 2)
        for collection_id in (COLLECTION, 0):
            world.node._collections[COLLECTION].servings._parts.clear()
            world.node._used._until_s = float("-inf")
            turns = await turns_of(lambda of=collection_id: world.node.status(of))  # type: ignore[misc]
            assert max(turns) < 0.3 * sum(turns), turns


@scenario()
async def test_memory_that_is_added_up_twice_at_the_same_time_counts_once(world: World) -> None:
    flushed = await with_segments(world, MANY)
    await world.hand_off(flushed[:-1])
    used_bytes = (await world.node.status()).used_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status, "AT_ONCE", 2)
        both = asyncio.gather(world.node.status(), world.node.status(COLLECTION))
        await asyncio.sleep(0)
        world.node._used.add(1000)
        await both
        assert world.node._used._used_bytes == used_bytes + 1000
    assert (await world.node.status()).used_bytes == used_bytes


@scenario()
async def test_a_kept_status_follows_deletes_exchanges_and_releases(world: World) -> None:
    flushed = await with_segments(world, 3)
    await world.hand_off(flushed)

    async def seen() -> dict[SegmentID, Any]:
        kept = (await world.node.status(COLLECTION)).segments
        world.node._collections[COLLECTION].servings._parts.clear()
        world.node._collections[COLLECTION].servings._views = None
        assert (await world.node.status(COLLECTION)).segments == kept, "as if nothing had been kept"
        return {one.segment_id: one for one in kept}

    before = await seen()
    assert before.keys() == set(flushed)
    await world.delete([0, 1])
    await world.stamp_and_tick()
    await world.node.status(COLLECTION)  # it compares the memory
    assert (await seen())[flushed[0]].memory_bytes > before[flushed[0]].memory_bytes
    world.build_index(flushed[2])
    await world.hand_off([flushed[2]])
    assert (await seen())[flushed[2]].index_ids != before[flushed[2]].index_ids
    output = world.compact(flushed[:2])
    await world.hand_off([output], flushed[:2])
    assert (await seen()).keys() == {output, flushed[2]}


class Turnstile:
    """An offload that lets work through when it is opened, and notes each piece."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.pieces: list[str] = []

    async def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        self.pieces.append(function.__name__)
        await self.open.wait()
        return function(*args)


@scenario()
async def test_small_segments_that_wait_for_their_turn_are_read_together(world: World) -> None:
    flushed = await with_segments(world, MANY)
    gate = world.node._loading.offload = Turnstile()  # type: ignore[assignment]
    damaged = flushed[-1]
    (file,) = world.segments[damaged].manifest.insert_logs
    world.store.local_path(file.path, world.scratch).unlink()
    loads = [
        asyncio.create_task(world.node.load_segment(world.segment_request(segment_id)))
        for segment_id in flushed
    ]
    await asyncio.sleep(0.1)
    gate.open.set()
    outcomes = await asyncio.gather(*loads, return_exceptions=True)
    assert [type(one) for one in outcomes] == [tuple] * (MANY - 1) + [SegmentUnreadable]
    assert set((await world.node.status()).loaded[COLLECTION]) == set(flushed[:-1])
    alone = gate.pieces.count("read_segment")
    together = gate.pieces.count("_read_all")
    assert alone <= 3, gate.pieces
    assert together <= 1 + (MANY - alone) // BATCH_MAX, gate.pieces
