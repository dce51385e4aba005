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

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _landed(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have
