"""An event loop in virtual time: no selector, no threads, and the same run every time.

Time stands still while anything can run and jumps to the next timer when nothing can, so that a minute of
a whole system takes the time its computing takes. The order in which asyncio promises to run callbacks is
kept; what varies from seed to seed is how long messages, writes and jobs take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

START_WALL_MS = 1_700_000_000_000


class NothingWillHappen(Exception):
    """Everything waits, and no timer is set that could end it."""


class _Jump:
    """Stands where a loop has its selector: instead of waiting for sockets it moves the time on."""

    def __init__(self, move_on: Callable[[float], None]) -> None:
        self._move_on = move_on

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingWillHappen("everything waits, and no timer is set")
        self._move_on(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """``time()`` is seconds since the run began."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _Jump(self._move_on)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now_s

    def _move_on(self, seconds: float) -> None:
        self._now_s += max(0.0, seconds)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: no sockets."""

    def _write_to_self(self) -> None:
        """Nobody has to be woken: there is one thread."""


class VirtualClock:
    """`elanus.core.world.Clock` over a loop. The wall clock can be made to jump, either way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps_ms = 0

    def step_ms(self, milliseconds: int) -> None:
        self._steps_ms += milliseconds

    def wall_ms(self) -> int:
        return START_WALL_MS + self._steps_ms + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()
