"""Deduplication of concurrent work: a request for work in progress joins it and shares its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any


class SingleFlight:
    """The work in progress, by key. For one event loop. A caller that gives up does not cancel the work."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the work in progress for ``key``, or start it if there is none. Raises what it raises."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._landed(key, done))
        await asyncio.shield(task)

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait until no work is in progress, or until ``timeout_s`` has passed."""
        deadline_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while self._tasks:
            left_s = None if deadline_s is None else deadline_s - asyncio.get_running_loop().time()
            if left_s is not None and left_s <= 0:
                return
            await asyncio.wait(tuple(self._tasks.values()), timeout=left_s)

    def _landed(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # mark it as retrieved: there may be no caller left to receive it
