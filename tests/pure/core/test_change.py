"""The change counter: nobody who waits misses a change, and nobody waits longer than asked."""

from __future__ import annotations

import asyncio

from elanus.core.change import Changes


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_a_change_wakes_everybody_who_waits() -> None:
    changes = Changes(10)
    waiting = [asyncio.ensure_future(changes.wait(10, 60)) for _ in range(3)]
    await asyncio.sleep(1)
    changes.happened()
    assert await asyncio.gather(*waiting) == [11, 11, 11]
    assert now_s() == 1


async def test_a_change_that_came_before_the_wait_is_seen_at_once() -> None:
    changes = Changes(10)
    changes.happened()
    assert await changes.wait(10, 60) == 11
    assert now_s() == 0


async def test_a_counter_that_began_anew_differs_and_is_seen_at_once() -> None:
    assert await Changes(3).wait(10, 60) == 3
    assert now_s() == 0


async def test_without_a_change_the_wait_ends_with_its_timeout() -> None:
    assert await Changes(10).wait(10, 60) == 10
    assert now_s() == 60


async def test_two_changes_between_two_waits_are_one_wake() -> None:
    changes = Changes(0)
    changes.happened()
    changes.happened()
    assert await changes.wait(0, 60) == 2
    assert await changes.wait(2, 5) == 2
    assert now_s() == 5
