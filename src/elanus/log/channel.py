"""A pchannel as readers in the writer's process see it: its files, its end, and a way to wait for more.

The writer thread publishes; readers on event loops read and wait. The file list and the end are replaced
together, as one immutable value, so readers need no lock.

Writes alone do not wake a patient reader, which can do nothing with them before their tick: it reads them
together with the tick, and is woken before that only when many bytes are unread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from elanus.log.layout import FileSpan, end_of
from elanus.log.port import START, LogClosed, Position


@dataclass(frozen=True, slots=True)
class View:
    """``end`` is the position after the last entry that readers can see.

    ``due``: what is before it is not left for later even by patient readers.
    """

    spans: Sequence[FileSpan]
    due: Position

    @property
    def end(self) -> Position:
        return end_of(self.spans)

    def is_ready(self, position: Position, unread_bytes_max: int) -> bool:
        """Whether a reader at the position is to read now; see `Channel.wait_beyond`."""
        end = self.end
        return end > position and (self.due > position or self.unread_bytes(position) > unread_bytes_max)

    def unread_bytes(self, position: Position) -> int:
        """How many bytes a reader at the position has before it."""
        return self.end - max(position, self.spans[0].base if self.spans else START)


class Channel:
    """Shared by one writer thread and any number of readers."""

    def __init__(self, name: str, spans: Sequence[FileSpan]) -> None:
        self.name = name
        self.view = View(spans, end_of(spans))
        self._waiting: dict[asyncio.Future[None], tuple[Position, int]] = {}
        """The waiters' futures, with the arguments of their `wait_beyond`."""
        self._closed = False
        self._lock = threading.Lock()

    def publish(self, spans: Sequence[FileSpan], *, can_wait: bool = False) -> list[asyncio.Future[None]]:
        """Make these files visible up to their ends. Returns the futures of waiters that the caller wakes.

        ``can_wait``: what is new are only writes, whose tick has not come yet.
        """
        with self._lock:
            self.view = view = View(spans, self.view.due if can_wait else end_of(spans))
            woken = [bell for bell, wish in self._waiting.items() if view.is_ready(*wish)]
            for bell in woken:
                del self._waiting[bell]
        return woken

    def close(self) -> list[asyncio.Future[None]]:
        """Mark the channel as complete. Returns the waiters' futures; the caller wakes them."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, {}
        return list(waiting)

    async def wait_beyond(self, position: Position, unread_bytes_max: int = 0) -> None:
        """Return once the end is beyond the position.

        ``unread_bytes_max``: how many bytes of writes may be there before it returns without their tick.
        Raises `LogClosed` when the end never will be beyond it, because the log is closed.
        """
        while not self.view.is_ready(position, unread_bytes_max):
            bell = asyncio.get_running_loop().create_future()
            with self._lock:
                if self.view.is_ready(position, unread_bytes_max):
                    return
                if self._closed:
                    if self.view.end > position:
                        return
                    raise LogClosed(f"the log is closed; {self.name} ends at {self.view.end}")
                self._waiting[bell] = position, unread_bytes_max
            try:
                await bell
            finally:
                with self._lock:
                    self._waiting.pop(bell, None)
