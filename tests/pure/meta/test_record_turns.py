"""A long loop lets others run after each part."""

from __future__ import annotations

import asyncio

from elanus.meta.turns import in_turns


async def test_others_run_between_the_parts_and_a_short_loop_is_not_cut() -> None:
    seen: list[object] = []
    note = seen.append

    async def meanwhile() -> None:
        while True:
            seen.append("other")
            await asyncio.sleep(0)

    async def loop_over(count: int) -> list[object]:
        seen.clear()
        async for item in in_turns(range(count), 3):
            note(item)
        return list(seen)

    other = asyncio.create_task(meanwhile())
    await asyncio.sleep(0)
    assert await loop_over(2) == [0, 1]
    assert await loop_over(7) == [0, 1, 2, "other", 3, 4, 5, "other", 6]
    other.cancel()
