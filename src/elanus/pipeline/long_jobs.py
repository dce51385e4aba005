"""The room for long jobs: all slots but one, which is left to flushes.

How many slots there are may change while jobs run: workers join and leave a cluster. So the room is counted
whenever a job asks for its share, and whenever one gives its share back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class LongJobs:
    """Belongs to one event loop. ``slots``: how many there are now."""

    def __init__(self, slots: Callable[[], int]) -> None:
        self._slots = slots
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def share(self, wanted: int) -> AsyncIterator[None]:
        """Hold so many slots, in the order in which they are asked for. A job that wants more than the whole
        room gets it alone."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, turn))
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = deque(one for one in self._waiting if one[1] is not turn)
                self._give()
            else:
                self._back(wanted)
            raise
        try:
            yield
        finally:
            self._back(wanted)

    def _back(self, wanted: int) -> None:
        self._taken -= wanted
        self._give()

    def _give(self) -> None:
        room = max(1, self._slots() - 1)
        while self._waiting:
            wanted, turn = self._waiting[0]
            if self._taken and self._taken + wanted > room:
                return
            self._waiting.popleft()
            if not turn.cancelled():
                self._taken += wanted
                turn.set_result(None)
