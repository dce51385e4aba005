"""An event loop in virtual time: no selector, no threads, and the same run every time.

Time stands still while anything can run and jumps to the next timer when nothing can, so a minute of the
whole system takes only as long as its computation. The callback order that asyncio promises is kept: ready
callbacks run in the order they became ready, timers in the order of their times, and timers with equal times
in the order they were set. Seeds differ in how long messages, writes and jobs take. A wait that nothing can
ever end is an error at once.

A run has some 35,000 callbacks, so the loop is as lean as possible: `asyncio.Task` and `asyncio.Future` are
implemented in C, and they call only these few methods.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_WALL_MS = 1_700_000_000_000
_WHEN, _CALLBACK, _ARGUMENTS = 0, 2, 3


class NothingWillHappen(Exception):
    """Everything waits, and no timer is set that could end a wait."""


class _Call(list[Any]):
    """A handle in asyncio's sense: a callback that can be cancelled.

    It is a list, so that C code creates and compares it: [when_s, number, callback, arguments, context]. Only
    timers have a time and a number, and only they are compared. Callback None means cancelled.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[_CALLBACK], self[_ARGUMENTS] = None, ()

    def cancelled(self) -> bool:
        return self[_CALLBACK] is None

    def when(self) -> float:
        when_s: float = self[_WHEN]
        return when_s


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. ``time()`` is seconds since the run began. ``made`` is called with every new task."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._calls: deque[_Call] = deque()
        self._timers: list[_Call] = []
        self._timer_number = itertools.count()
        self._is_to_stop = False
        self.made: Callable[[asyncio.Task[Any]], None] = lambda task: None
        self.create_future = functools.partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.get_debug = bool  # type: ignore[method-assign] # False; every task and future asks

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override] # a handle of our own
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        call = _Call((0.0, 0, callback, args, contextvars.copy_context() if context is None else context))
        self._calls.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        """Same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> _Call:
        if context is None:
            context = contextvars.copy_context()
        call = _Call((when, next(self._timer_number), callback, args, context))
        heapq.heappush(self._timers, call)
        return call

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> _Call:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run all callbacks that become ready, until a stop is requested (for
        `BaseEventLoop.run_forever`)."""
        calls = self._calls
        while not self._is_to_stop:
            if not calls:
                self._move_on()
            _, _, callback, arguments, context = calls.popleft()
            if callback is None:
                continue
            try:
                context.run(callback, *arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as in asyncio's own loop: report it and continue
                happened = {"message": f"Exception in callback {callback!r}", "exception": error}
                self.call_exception_handler(happened)
        self._is_to_stop = False

    def stop(self) -> None:
        super().stop()
        self._is_to_stop = True

    def _move_on(self) -> None:
        """Jump to the next timer that is not cancelled, and make all timers of that moment ready."""
        timers = self._timers
        while timers and timers[0][_CALLBACK] is None:
            heapq.heappop(timers)
        if not timers:
            raise NothingWillHappen("everything waits, and no timer is set")
        self._now_s = max(self._now_s, timers[0][_WHEN])
        while timers and timers[0][_WHEN] <= self._now_s:
            self._calls.append(heapq.heappop(timers))

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Create the task as usual, and pass it to ``made``."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.made(task)
        return task

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: without sockets there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: with one thread, nobody has to be woken."""


class VirtualClock:
    """`elanus.core.clock.Clock` on a virtual loop. The wall clock can be made to jump, either way."""

    def __init__(self) -> None:
        self._steps_ms = 0
        self._latest_ms = START_WALL_MS

    def step_ms(self, milliseconds: int) -> None:
        self._latest_ms = self.latest_ms()
        self._steps_ms += milliseconds

    def wall_ms(self) -> int:
        return START_WALL_MS + self._steps_ms + round(self.monotonic_s() * 1000)

    def latest_ms(self) -> int:
        """Return the latest time that this clock has shown: what expires by it has expired by then."""
        return max(self._latest_ms, self.wall_ms())

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()
