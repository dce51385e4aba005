"""How a thread that reads waits: for what runs on the event loop, for answers, for time to pass.

Reads run in threads and everything else on the event loop, and this is where the two meet. A simulator, whose
threads take turns with its loop, brings its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Signal(Protocol):
    """Set once, on the event loop; awaited by one thread."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout_s: float) -> bool:
        """Whether it was set within the time."""
        ...


class Waits(Protocol):
    """Everything but `signal` is for a thread that reads, never for the event loop's."""

    def now_s(self) -> float:
        """Seconds on a clock that never goes back. For any thread."""
        ...

    def signal(self) -> Signal: ...
    def sleep(self, seconds: float) -> None: ...
    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Have it done on the event loop. Raises `TimeoutError`, and what it raises."""
        ...

    def begin(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        """Have it done on the event loop, and do not wait. Returns what calls it off."""
        ...


class ThreadWaits:
    """Those of a thread beside ``loop``. Implements `Waits`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now_s = time.monotonic
        self.sleep = time.sleep

    def signal(self) -> Signal:
        return threading.Event()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        return asyncio.run_coroutine_threadsafe(work, self._loop).cancel
