"""Growing data above the soft limit is sealed, largest first, and not twice; the rest is left alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from data_bench import EXPIRATION_MS, MEMORY_LOOK_S, Bench
from fakes import CID, DEFAULT, collection

from elanus.core.errors import Unavailable
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import SegmentState

S = SegmentState
PARTITIONS = (DEFAULT, *map(PartitionID, range(101, 108)))
SOFT = 8000
LOOK_S = 1.5 * MEMORY_LOOK_S


async def filled(tmp_path: Path, *sizes: int) -> tuple[Bench, list[SegmentID]]:
    """One collection with eight partitions, whose segments a query node holds with these sizes."""
    bench = Bench(tmp_path, collection(partitions=PARTITIONS))
    bench.growing_soft_bytes = SOFT
    await bench.watched()
    segments = [await bench.write(10, partition_id) for partition_id in PARTITIONS]
    await bench.report(dict.fromkeys(segments, 10))
    bench.query.growing = (held(segments, *sizes),)
    return bench, segments


def held(segments: list[SegmentID], *sizes: int) -> GrowingMemory:
    by_segment = dict(zip(segments, sizes, strict=True))
    return GrowingMemory(sum(sizes), by_segment)


async def states(bench: Bench, segments: list[SegmentID]) -> list[SegmentState]:
    return [(await bench.segment(segment_id)).state for segment_id in segments]


async def test_even_segments_that_are_far_from_full_are_sealed_and_flushed(tmp_path: Path) -> None:
    bench, segments = await filled(tmp_path, *[1001] * 8)
    await asyncio.sleep(LOOK_S)
    assert await states(bench, segments) == [S.SEALED] * 5 + [S.GROWING] * 3
    bench.later(EXPIRATION_MS + 1)
    await bench.report(dict.fromkeys(segments, 10))
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, tuple(segments[:5]))]
    assert bench.node.reasons[-1].cause == "memory"
    await bench.coord.stop()


async def test_what_is_sealed_is_in_flight_and_the_next_look_seals_nothing(tmp_path: Path) -> None:
    bench, segments = await filled(tmp_path, *[1001] * 8)
    assert await bench.coord.flushing_bytes() == 0
    for _ in range(5):
        await asyncio.sleep(LOOK_S)
        assert await states(bench, segments) == [S.SEALED] * 5 + [S.GROWING] * 3
    assert await bench.coord.flushing_bytes() == 5 * 1001
    bench.query.growing = (held(segments[5:], *[1001] * 3),)
    await asyncio.sleep(LOOK_S)
    assert await bench.coord.flushing_bytes() == 0
    await bench.coord.stop()


async def test_within_the_limit_a_look_does_not_even_ask_for_segments(tmp_path: Path) -> None:
    bench, segments = await filled(tmp_path, *[1000] * 8)
    await asyncio.sleep(10 * LOOK_S)
    assert await states(bench, segments) == [S.GROWING] * 8
    assert bench.query.calls.of("growing_memory") == []
    await bench.coord.stop()


async def test_each_query_node_gets_below_the_limit(tmp_path: Path) -> None:
    bench, segments = await filled(tmp_path, *[500] * 8)
    bench.query.growing = (held(segments[:4], 1, 2, 3, 9000), held(segments[4:], 9000, 3, 2, 1))
    await asyncio.sleep(LOOK_S)
    sealed = [
        s for s, state in zip(segments, await states(bench, segments), strict=True) if state is S.SEALED
    ]
    assert sealed == segments[3:5]
    assert await bench.coord.flushing_bytes() == 9000, "the figure of one node, as the limit is"
    await bench.coord.stop()


async def test_a_segment_that_a_client_has_sealed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    bench, segments = await filled(tmp_path, *[1001] * 8)
    await bench.coord.flush(CID)
    sealed_at = [(await bench.segment(s)).sealed_at for s in segments]
    await asyncio.sleep(LOOK_S)
    assert [(await bench.segment(s)).sealed_at for s in segments] == sealed_at
    await bench.coord.stop()


async def test_while_querycoord_is_away_nothing_is_sealed_and_afterwards_it_is(tmp_path: Path) -> None:
    bench, segments = await filled(tmp_path, *[1001] * 8)
    bench.query.calls.failing["growing_bytes"] = Unavailable("restarting")
    await asyncio.sleep(3 * LOOK_S)
    assert await states(bench, segments) == [S.GROWING] * 8
    bench.query.calls.failing.clear()
    await asyncio.sleep(LOOK_S)
    assert S.SEALED in await states(bench, segments)
    await bench.coord.stop()
