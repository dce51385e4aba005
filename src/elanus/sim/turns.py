"""Threads that take turns with a virtual loop: code that blocks runs unchanged, and the same way every time.

A proxy's reads block in a thread of their own. Here such a thread goes on only while the loop stands still:
it is given the turn, runs until it has to wait, says for what, and hands the turn back. Nothing ever runs
beside anything else, so a run is the same whatever the machine's threads do. Where it waits is
`elanus.proxy.waits.Waits`, of which these are the simulator's.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def _taken() -> threading.Lock:
    """Who takes it once more waits until another gives it back: a turn, for one to give and one to take."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Worker:
    """A thread, and what it and the loop hand each other with the turn. Either waits while the other runs.

    ``waits_for``: what the thread waits for; None: its work has ended, with ``result`` or ``error``.
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
        """Give it the turn, with what came of its wait; returns when it waits again or has ended."""
        self.waits_for, self.result, self.error = None, result, error
        self._its_turn.release()
        self._loops_turn.acquire()

    def end(self) -> None:
        self._work = None
        self._its_turn.release()
        self._thread.join()

    # in the thread

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Hand the turn back until it is done."""
        self.waits_for = awaitable
        self._loops_turn.release()
        self._its_turn.acquire()
        if self.error is not None:
            raise self.error
        return cast(T, self.result)

    def _serve(self) -> None:
        asyncio._set_running_loop(self._loop)  # which stands still for it: what it calls may ask for the time
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
    """Implements `elanus.proxy.waits.Signal`."""

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


async def _within(work: Awaitable[T], timeout_s: float) -> T:
    async with asyncio.timeout(timeout_s):
        return await work


class Turns:
    """Implements `elanus.proxy.waits.Waits`. Belongs to one run; `close` ends its threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Worker] = []
        self._running: _Worker | None = None
        self.now_s = self._loop.time

    async def run_thread(self, work: Callable[[], T]) -> T:
        """Carry out work that blocks, as a thread of its own. Raises what it raises.

        Who cancels this cancels what the thread waits for: it gets the `CancelledError`.
        """
        worker = self._idle.pop() if self._idle else _Worker(self._loop)
        self._turn(worker, functools.partial(worker.begin, work))
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
        """Those whose work has not ended stay where they are."""
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

    def sleep(self, seconds: float) -> None:
        self.wait(asyncio.sleep(seconds))

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        return self.wait(_within(work, timeout_s))

    def begin(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        return self._loop.create_task(work).cancel
