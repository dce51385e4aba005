"""Rows that expire at a moment of their own: no read after it sees them, and every read before it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from node_world import World

from elanus.core.time_to_live import moment_us
from elanus.core.timestamps import Timestamp

MS = 1 << 18


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_read_sees_the_rows_that_have_not_expired_at_its_moment(sealed: bool, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.schema = replace(world.schema, ttl_field="value")
    world.now = 10 * MS
    await world.start()
    await world.insert([(1, 11_000), (2, 12_000), (3, 0), (4, 13_000), (5, 12_000)])
    world.now = 20 * MS
    await world.tick()
    if sealed:
        world.seal()
        await world.hand_off(world.flush())
    for ms, left in ((10, [1, 2, 3, 4, 5]), (11, [2, 3, 4, 5]), (12, [3, 4]), (15, [3])):
        ts = ms * MS + 9
        assert moment_us(Timestamp(ts)) == ms * 1000
        assert world.keys(ts=ts) == left
        assert world.keys("id > 2", ts) == [n for n in left if n > 2]
        assert world.keys("id in [1, 5]", ts) == [n for n in (1, 5) if n in left]
        assert world.keys(ts=ts, limit=2) == left[:2]
        assert world.keys(ts=ts, primary_keys=pa.array([2, 3], pa.int64())) == [
            n for n in (2, 3) if n in left
        ]
        assert world.count(ts=ts) == len(left)
        assert sorted(world.nearest(1, 9, ts=ts)) == left
    assert world.keys(ts=10 * MS + 9) == [1, 2, 3, 4, 5], "an earlier moment has its answer still"
    await world.node.stop()


async def test_the_moments_count_as_memory(tmp_path: Path) -> None:
    sizes = []
    for name in ("", "value"):
        world = World(tmp_path / (name or "none"))
        world.schema = replace(world.schema, ttl_field=name)
        await world.start()
        await world.insert([(n, n) for n in range(100)])
        await world.tick()
        (block,) = world.snapshot.blocks(Timestamp(world.tick_ts), (), ignore_growing=False)
        sizes.append(block.memory_bytes)
        await world.node.stop()
    assert sizes[1] - sizes[0] == 800
