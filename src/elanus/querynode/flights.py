"""Work that is asked for again while it is under way runs once, and all who asked share its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any


class Flights:
    """For one event loop. A caller that gives up does not end the work."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the work under way for ``key``; begin it where there is none. Raises what it raises."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._landed(key, done))
        await asyncio.shield(task)

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is under way, or that long for what is."""
        deadline_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while self._tasks:
            left_s = None if deadline_s is None else deadline_s - asyncio.get_running_loop().time()
            if left_s is not None and left_s <= 0:
                return
            await asyncio.wait(tuple(self._tasks.values()), timeout=left_s)

    def _landed(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have
