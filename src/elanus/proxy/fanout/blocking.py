"""How a reading thread waits: for work on the event loop, for answers, for time to pass.

Reads run in threads and everything else runs on the event loop; this module connects the two. A simulator,
whose threads take turns with its loop, provides its own implementation.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from elanus.rpc.serving.waiting import about_to_wait

T = TypeVar("T")


class Signal(Protocol):
    """Set once, on the event loop; one thread waits for it."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout_s: float) -> bool:
        """Return whether it was set within the time."""
        ...


class Waits(Protocol):
    """Everything but `signal` is for reading threads, never for the event loop's thread."""

    def now_s(self) -> float:
        """Seconds on a clock that never goes back. For any thread."""
        ...

    def signal(self) -> Signal: ...
    def sleep(self, seconds: float) -> None: ...
    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run ``work`` on the event loop and return its result. Raises `TimeoutError`, and its errors."""
        ...

    def begin(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        """Start ``work`` on the event loop without waiting. Returns a function that cancels it."""
        ...


class _Event(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            about_to_wait()
        return super().wait(timeout)


class ThreadWaits:
    """Waits for threads that run alongside ``loop``. Implements `Waits`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now_s = time.monotonic

    def signal(self) -> Signal:
        return _Event()

    def sleep(self, seconds: float) -> None:
        about_to_wait()
        time.sleep(seconds)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        about_to_wait()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        return asyncio.run_coroutine_threadsafe(work, self._loop).cancel
