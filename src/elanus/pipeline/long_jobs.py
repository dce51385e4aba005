"""The room for long jobs: all slots but one, which is left to flushes, and the memory of the machine.

How many slots there are may change while jobs run: workers join and leave a cluster. So the room is counted
whenever a job asks for its share, and whenever one gives its share back. The tasks of a cluster have their
executors' memory, which is not counted here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class LongJobs:
    """Belongs to one event loop. ``slots``: how many there are now. ``memory_bytes``: what the tasks of all
    these jobs may take together; None: it is not counted."""

    def __init__(self, slots: Callable[[], int], memory_bytes: int | None = None) -> None:
        self._slots = slots
        self._memory_bytes = memory_bytes
        self._taken = 0
        self._taken_bytes = 0
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def share(self, wanted: int, memory_bytes: int = 0) -> AsyncIterator[None]:
        """Hold so many slots and so much memory, in the order in which they are asked for. A job that wants
        more than the whole room gets it alone."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, memory_bytes, turn))
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = deque(one for one in self._waiting if one[2] is not turn)
                self._give()
            else:
                self._back(wanted, memory_bytes)
            raise
        try:
            yield
        finally:
            self._back(wanted, memory_bytes)

    def _back(self, wanted: int, memory_bytes: int) -> None:
        self._taken -= wanted
        self._taken_bytes -= memory_bytes
        self._give()

    def _has_room(self, wanted: int, memory_bytes: int) -> bool:
        if not self._taken:
            return True
        if self._memory_bytes is not None and self._taken_bytes + memory_bytes > self._memory_bytes:
            return False
        return self._taken + wanted <= max(1, self._slots() - 1)

    def _give(self) -> None:
        while self._waiting:
            wanted, memory_bytes, turn = self._waiting[0]
            if not self._has_room(wanted, memory_bytes):
                return
            self._waiting.popleft()
            if not turn.cancelled():
                self._taken += wanted
                self._taken_bytes += memory_bytes
                turn.set_result(None)
