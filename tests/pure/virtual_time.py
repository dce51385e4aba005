"""An event loop whose clock jumps: what the roles' tests run on.

Time stands still while anything can run, and jumps to the next timer when nothing can. So a test of a
role that sleeps for seconds takes none, and takes the same course every time. A wait that nothing would
ever end is an error at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

START_WALL_MS = 1_700_000_000_000
TEST_TIMEOUT_S = 3600.0
"""In virtual time: a test that is not done by then goes round in circles."""


class NothingWillHappen(Exception):
    """Everything waits, and no timer is set."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingWillHappen("everything waits, and nothing is left that could end it")
            self._loop.jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        self._now_s += max(0.0, seconds)


class VirtualClock:
    """The clock of a `VirtualLoop`, as roles see it. ``step_ms`` moves the wall clock alone, either way."""

    def __init__(self) -> None:
        self._steps_ms = 0

    def step_ms(self, milliseconds: int) -> None:
        self._steps_ms += milliseconds

    def wall_ms(self) -> int:
        return START_WALL_MS + self._steps_ms + round(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


def run_virtually(test: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a fresh virtual loop. An error that a background task died of fails it too."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        runner.run(asyncio.wait_for(test, TEST_TIMEOUT_S))
    if unseen:
        raise AssertionError(f"in the background: {unseen}")
