"""The change counter: nobody who waits misses a change, and nobody waits longer than asked."""

from __future__ import annotations

import asyncio

from elanus.core.change import REMEMBERED, Changes
from elanus.core.ids import CollectionID


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_a_change_wakes_everybody_who_waits() -> None:
    changes = Changes(10)
    waiting = [asyncio.ensure_future(changes.wait_change(10, 60)) for _ in range(3)]
    await asyncio.sleep(1)
    changes.happened()
    assert await asyncio.gather(*waiting) == [11, 11, 11]
    assert now_s() == 1


async def test_a_change_that_came_before_the_wait_is_seen_at_once() -> None:
    changes = Changes(10)
    changes.happened()
    assert await changes.wait_change(10, 60) == 11
    assert now_s() == 0


async def test_a_counter_that_started_again_is_a_change_at_once() -> None:
    assert await Changes(3).wait_change(10, 60) == 3
    assert now_s() == 0


async def test_without_a_change_the_wait_ends_with_its_timeout() -> None:
    assert await Changes(10).wait_change(10, 60) == 10
    assert now_s() == 60


async def test_two_changes_between_two_waits_are_one_wake() -> None:
    changes = Changes(0)
    changes.happened()
    changes.happened()
    assert await changes.wait_change(0, 60) == 2
    assert await changes.wait_change(2, 5) == 2
    assert now_s() == 5


async def test_the_subjects_of_changes_are_returned_while_they_are_kept() -> None:
    one, two = CollectionID(1), CollectionID(2)
    changes = Changes(100)
    assert await changes.changed_since(100) == ()
    for concerned in (one, two, one):
        changes.happened(concerned)
    assert await changes.changed_since(100) == (one, two)
    assert await changes.changed_since(102) == (one,)
    assert await changes.changed_since(103) == ()
    assert await changes.changed_since(99) is None, "from before this life of the role"
    assert await changes.changed_since(104) is None, "from another life"
    changes.happened()
    assert await changes.changed_since(102) is None, "one of them may concern any"
    for _ in range(REMEMBERED):
        changes.happened(two)
    assert await changes.changed_since(104) == (two,)
    assert await changes.changed_since(103) is None, "forgotten"
