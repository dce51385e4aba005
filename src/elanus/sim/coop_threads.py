"""Cooperative threads on a virtual loop: blocking code runs unchanged and deterministically.

A proxy's reads block in a thread of their own. Here such a thread runs only while the loop stands still: it
receives the turn, runs until it has to wait, names the awaitable it waits for, and hands the turn back.
Nothing ever runs in parallel, so a run does not depend on how the machine schedules threads. Threads wait
through `elanus.proxy.fanout.blocking.Waits`; this module is the simulator's implementation.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def _taken() -> threading.Lock:
    """Return a lock created already held: acquiring it blocks until the other thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Worker:
    """A thread, and the values that it and the loop exchange with the turn. Each waits while the other runs.

    ``waits_for``: what the thread waits for; None when its work has ended, with ``result`` or ``error``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waits_for: Awaitable[Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._work: Callable[[], Any] | None = None
        self._its_turn = _taken()
        self._loops_turn = _taken()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # on the loop

    def begin(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.go_on(None, None)

    def go_on(self, result: Any, error: BaseException | None) -> None:
        """Give the thread the turn and the outcome of its wait. Returns when it waits again or has ended."""
        self.waits_for, self.result, self.error = None, result, error
        self._its_turn.release()
        self._loops_turn.acquire()

    def end(self) -> None:
        self._work = None
        self._its_turn.release()
        self._thread.join()

    # in the thread

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Hand the turn back until the awaitable is done, and return its result."""
        self.waits_for = awaitable
        self._loops_turn.release()
        self._its_turn.acquire()
        if self.error is not None:
            raise self.error
        return cast(T, self.result)

    def _serve(self) -> None:
        asyncio._set_running_loop(self._loop)  # stands still meanwhile, but may be asked for the time
        while True:
            self._its_turn.acquire()
            if self._work is None:
                return
            try:
                self.result, self.error = self._work(), None
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the caller's
                self.result, self.error = None, error
            self.waits_for = None
            self._loops_turn.release()


class _Signal:
    """Implements `elanus.proxy.fanout.blocking.Signal`."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._event = asyncio.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    def wait(self, timeout_s: float) -> bool:
        return self.is_set() or self._turns.wait(self._is_set_in(timeout_s))

    async def _is_set_in(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class _Lock:
    """A lock for these threads, which may wait while they hold it. A context manager."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lock = asyncio.Lock()

    def __enter__(self) -> None:
        self._turns.wait(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def _within(work: Awaitable[T], timeout_s: float) -> T:
    async with asyncio.timeout(timeout_s):
        return await work


class Turns:
    """Implements `elanus.proxy.fanout.blocking.Waits`. Belongs to one run; `close` ends its threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Worker] = []
        self._running: _Worker | None = None
        self.now_s = self._loop.time

    async def run_thread(self, work: Callable[[], T]) -> T:
        """Carry out blocking work in a thread of its own. Raises what the work raises.

        Cancelling this cancels what the thread waits for: the thread receives the `CancelledError`.
        """
        worker = self._idle.pop() if self._idle else _Worker(self._loop)
        in_context = functools.partial(contextvars.copy_context().run, work)
        self._turn(worker, functools.partial(worker.begin, in_context))
        while worker.waits_for is not None:
            try:
                result = await worker.waits_for
            except BaseException as error:  # noqa: BLE001 - it is the thread's
                self._turn(worker, functools.partial(worker.go_on, None, error))
            else:
                self._turn(worker, functools.partial(worker.go_on, result, None))
        self._idle.append(worker)
        if worker.error is not None:
            raise worker.error
        return cast(T, worker.result)

    def _turn(self, worker: _Worker, go_on: Callable[[], None]) -> None:
        self._running = worker
        go_on()
        self._running = None

    def close(self) -> None:
        """End the idle threads. Threads whose work has not ended stay blocked."""
        for worker in self._idle:
            worker.end()
        self._idle.clear()

    # for the threads

    def wait(self, awaitable: Awaitable[T]) -> T:
        worker = self._running
        assert worker is not None, "the loop may not wait for itself"
        return worker.wait(awaitable)

    def signal(self) -> _Signal:
        return _Signal(self)

    def lock(self) -> _Lock:
        return _Lock(self)

    def sleep(self, seconds: float) -> None:
        self.wait(asyncio.sleep(seconds))

    @property
    def is_in_thread(self) -> bool:
        """Whether the caller is one of the threads, which may wait. The loop may not."""
        return self._running is not None

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        return self.wait(_within(work, timeout_s))

    def begin(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        return self._loop.create_task(work).cancel
