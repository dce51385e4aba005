"""When a loaded collection is reconciled."""

from __future__ import annotations

import asyncio

import pytest
from fakes import settle

from elanus.core.ids import CollectionID
from elanus.querycoord.reconcile_loop import ReconcileLoop


@pytest.mark.parametrize(("segments", "rounds"), [(10, 50), (4000, 1)])
async def test_changes_gather_after_a_round_over_many_segments(segments: int, rounds: int) -> None:
    """Fifty changes within half a second: few segments are looked at each time, many seldom."""
    done = 0

    async def reconcile() -> int:
        nonlocal done
        done += 1
        return segments

    loop = ReconcileLoop(CollectionID(1), reconcile)
    loop.start()
    for _ in range(50):
        loop.wake()
        await asyncio.sleep(0.01)
    await settle()
    assert done == rounds
    await asyncio.sleep(1)
    assert done == max(rounds, 2), "the last change is seen too"
    await loop.stop()
