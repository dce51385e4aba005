"""A version of many segments: what stays the same is not made again, and what is released goes in turns."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from node_world import COLLECTION, World, scenario

from elanus.core.ids import PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.meta.turns import AT_ONCE
from elanus.querynode import memory
from elanus.querynode.memory import WORTH_RETURNING_BYTES, MemoryReturn
from elanus.querynode.sealed_views import SealedViews

HERE = PartitionID(3)


@dataclass(eq=False)
class Segment:
    """A sealed segment, as far as a view shows it."""

    segment_id: SegmentID
    partition_id: PartitionID = HERE
    blocks: tuple[Any, ...] = ()
    parents: tuple[SegmentID, ...] = ()
    complete_from: Timestamp = NO_TIMESTAMP


class Block:
    memory_bytes = 1 + WORTH_RETURNING_BYTES // 5


async def test_segments_that_change_while_views_are_prepared_get_views_of_what_they_are() -> None:
    views: Any = SealedViews()
    segments = {s: Segment(s, blocks=(s,)) for s in map(SegmentID, range(1, 2 * AT_ONCE))}
    first, second, last = SegmentID(1), SegmentID(2), SegmentID(2 * AT_ONCE - 1)
    preparing = asyncio.create_task(
        views.prepare([*segments.values()], dict.fromkeys(segments, Timestamp(50)))
    )
    await asyncio.sleep(0)
    assert not preparing.done(), "others run meanwhile"
    segments[first] = Segment(first, blocks=("loaded again",))
    del segments[last]
    views.set_visible_from(segments, {**dict.fromkeys(segments, Timestamp(50)), second: Timestamp(60)})
    await preparing
    views.changed()
    found = {view.segment_id: view for view in views.of(segments, None)}
    assert found.keys() == segments.keys()
    assert found[first].blocks == ("loaded again",)
    assert found[second].visible_from == 60
    assert {view.visible_from for view in found.values()} == {50, 60}


def test_views_are_kept_and_those_of_other_partitions_are_left_out() -> None:
    views: Any = SealedViews()
    segments = {s: Segment(s, PartitionID(s % 2)) for s in map(SegmentID, range(4))}
    before = views.of(segments, None)
    segments[SegmentID(9)] = Segment(SegmentID(9), PartitionID(0))
    views.changed()
    after = views.of(segments, None)
    assert after[:4] == before
    assert all(one is other for one, other in zip(before, after, strict=False))
    views.changed()
    assert [view.segment_id for view in views.of(segments, {PartitionID(0)})] == [0, 2, 9]


@scenario()
async def test_a_version_and_the_same_partitions_again_keep_the_views(world: World) -> None:
    flushed = []
    for key in range(4):
        await world.insert([(key, key)])
        await world.stamp_and_tick()
        world.seal()
        flushed += world.flush()
    await world.hand_off(flushed[:3])
    held = world.node._collections[COLLECTION]
    before = {view.segment_id: view for view in held.snapshot.segments if view.sealed}
    await world.hand_off(flushed[3:])
    await world.node.set_partitions(COLLECTION, held.wanted.named)
    after = {view.segment_id: view for view in held.snapshot.segments if view.sealed}
    assert after.keys() == set(flushed)
    assert all(after[segment_id] is view for segment_id, view in before.items())


async def test_many_blocks_are_freed_in_turns_and_then_memory_is_returned() -> None:
    calls = []

    async def offload(function: Any, *_: Any) -> None:
        calls.append(function)

    returning: Any = MemoryReturn(offload)
    returning.start()
    blocks = [Block() for _ in range(3 * memory._FREED_AT_ONCE)]
    alive = [weakref.ref(block) for block in blocks]
    gc.disable()  # reference counts alone free them
    try:
        returning.release(tuple(blocks))
        del blocks
        left = []
        while any(ref() is not None for ref in alive):
            left.append(sum(ref() is not None for ref in alive))
            await asyncio.sleep(0)
    finally:
        gc.enable()
    freed = [one - other for one, other in zip(left, [*left[1:], 0], strict=True)]
    assert max(freed) <= memory._FREED_AT_ONCE + 1, freed
    await asyncio.sleep(10)
    assert calls == [memory.return_free_memory]
    await returning.stop()


async def test_blocks_that_a_read_still_holds_are_waited_for() -> None:
    calls = []

    async def offload(function: Any, *_: Any) -> None:
        calls.append(function)

    returning: Any = MemoryReturn(offload)
    returning.start()
    blocks = [Block() for _ in range(2 * memory._FREED_AT_ONCE)]
    read = [blocks[0]]
    returning.release(tuple(blocks))
    del blocks
    await asyncio.sleep(10)
    assert calls == []
    read.clear()
    await asyncio.sleep(10)
    assert calls == [memory.return_free_memory]
    await returning.stop()


class Compared(int):
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


@scenario()
async def test_segments_are_not_compared_with_each_of_many_partitions(world: World) -> None:
    for key in range(8):
        await world.insert([(key, key)])
        await world.stamp_and_tick()
        world.seal()
        await world.hand_off(world.flush())
    held = world.node._collections[COLLECTION]
    (partition_id,) = {view.partition_id for view in held.snapshot.segments}
    partitions = [*(Compared(10_000 + n) for n in range(1000)), partition_id]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "wanted", held.wanted.narrowed(partitions))
        for channel in held.channels.values():
            for follower in channel.followers():
                follower.coverage = held.wanted
        Compared.comparisons = 0
        await world.node.set_partitions(COLLECTION, partitions)
    assert len(held.snapshot.segments) == 8
    assert Compared.comparisons < 200, Compared.comparisons
