"""A pchannel as readers in the writer's process see it: its files, its end, and a way to wait for more.

The writer thread publishes; readers on event loops read and wait. The file list and the end are replaced
together, as one immutable value, so readers need no lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from elanus.log.layout import FileSpan, end_of
from elanus.log.port import LogClosed, Position


@dataclass(frozen=True, slots=True)
class View:
    """``end`` is the position after the last entry that readers can see."""

    spans: Sequence[FileSpan]

    @property
    def end(self) -> Position:
        return end_of(self.spans)


class Channel:
    """Shared by one writer thread and any number of readers."""

    def __init__(self, name: str, spans: Sequence[FileSpan]) -> None:
        self.name = name
        self.view = View(spans)
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = False
        self._lock = threading.Lock()

    def publish(self, spans: Sequence[FileSpan]) -> list[asyncio.Future[None]]:
        """Make these files visible up to their ends. Returns the waiters' futures; the caller wakes them."""
        with self._lock:
            self.view = View(spans)
            waiting, self._waiting = self._waiting, set()
        return list(waiting)

    def close(self) -> list[asyncio.Future[None]]:
        """Mark the channel as complete. Returns the waiters' futures; the caller wakes them."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, set()
        return list(waiting)

    async def wait_beyond(self, position: Position) -> None:
        """Return once the end is beyond the position.

        Raises `LogClosed` when it never will be, because the log is closed.
        """
        while self.view.end <= position:
            bell = asyncio.get_running_loop().create_future()
            with self._lock:
                if self.view.end > position:
                    return
                if self._closed:
                    raise LogClosed(f"the log is closed; {self.name} ends at {self.view.end}")
                self._waiting.add(bell)
            try:
                await bell
            finally:
                with self._lock:
                    self._waiting.discard(bell)
