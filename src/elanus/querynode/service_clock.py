"""Where reads wait for a timestamp to be served.

A gRPC thread that must see timestamp T blocks here until the collection's service time has reached T. The
service time follows from the tick lines of the collection's pchannels, so a tick costs a collection nothing.
The clock watches these lines only while reads wait, and the loop thread wakes exactly those whose timestamp
has been reached. A read whose timestamp is already served takes no lock. Reads from a query channel wait on
the loop itself (`reached`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable

from elanus.core.errors import DeadlineExceeded, ElanusError, Unavailable
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.rpc.serving.waiting import about_to_wait

_Entry = tuple[Timestamp, int, Callable[[], None]]


class ServiceClock:
    """The service time of one collection. Moved by one thread, read and awaited by many.

    ``now``: returns the service time, which never goes back. ``watch``: has its argument called when the
    service time may have moved next, and again as long as it returns True.
    """

    def __init__(self, now: Callable[[], Timestamp], watch: Callable[[Callable[[], bool]], None]) -> None:
        self._now = now
        self._watch = watch
        self._closed: ElanusError | None = None
        self._stopped = ""
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self._arrivals = itertools.count()
        self._is_due = False
        """Whether `rewatch` is about to be called."""

    @property
    def time(self) -> Timestamp:
        return self._now()

    def moved(self) -> bool:
        """Wake everyone whose time has come. Returns whether others still wait. For the loop thread."""
        with self._lock:
            while self._waiting and self._waiting[0][0] <= self._now():
                heapq.heappop(self._waiting)[2]()
            return bool(self._waiting)

    def rewatch(self) -> None:
        """The service time depends on other lines from now on. For the loop thread."""
        if self.moved():
            self._watch(self.moved)

    def rewatch_soon(self) -> None:
        """As `rewatch`, once for all calls of one step of the event loop, at its end. For the loop thread.

        An insert into many shards moves the tick of each, and the service time with the last of them.
        """
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._rewatch_due)

    def _rewatch_due(self) -> None:
        self._is_due = False
        self.rewatch()

    def close(self, error: ElanusError) -> None:
        """Stop the clock: everyone who waits, now or later, gets the error."""
        with self._lock:
            self._closed = error
            self._wake_all()

    @property
    def stopped(self) -> str:
        """Why the time does not move, "" if it does."""
        return self._stopped

    def stop(self, why: str) -> None:
        """Everyone who waits, now or later, gets `Unavailable` with this text, until `go_on`."""
        with self._lock:
            self._stopped = why
            self._wake_all()

    def go_on(self) -> None:
        """The time moves again."""
        self._stopped = ""

    def _wake_all(self) -> None:
        for _, _, wake in self._waiting:
            wake()
        self._waiting.clear()

    def has_reached(self, ts: Timestamp) -> bool:
        """Whether the time is at least ``ts``. Always False once the clock is closed."""
        return self._closed is None and self._now() >= ts

    def wait(self, ts: Timestamp, timeout_s: float) -> None:
        """Block until the time is at least ``ts``.

        Raises `DeadlineExceeded`, `Unavailable` when the clock is stopped, and the error given to `close`.
        """
        if self.has_reached(ts):
            return
        come = threading.Event()
        entry = self._enter(ts, come.set)
        if entry is not None:
            about_to_wait()
            if not come.wait(timeout_s):
                self._give_up(entry, come.is_set)
        self._check_reached(ts)

    async def reached(self, ts: Timestamp, timeout_s: float) -> None:
        """As `wait`, for a coroutine on the loop that advances the clock."""
        come = asyncio.Event()
        entry = self._enter(ts, come.set)
        if entry is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await come.wait()
            except TimeoutError:
                self._give_up(entry, come.is_set)
            except asyncio.CancelledError:
                self._withdraw(entry)  # the time may be years away, and each tick would look at who waits
                raise
        self._check_reached(ts)

    def _enter(self, ts: Timestamp, wake: Callable[[], None]) -> _Entry | None:
        """Add a waiter. Returns None if there is nothing to wait for."""
        with self._lock:
            if self._closed is not None or self._stopped or self._now() >= ts:
                return None
            entry = (ts, next(self._arrivals), wake)
            heapq.heappush(self._waiting, entry)
        self._watch(self.moved)
        if self._now() >= ts:  # it may have moved before it was watched
            self._withdraw(entry)
            return None
        return entry

    def _withdraw(self, entry: _Entry) -> None:
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)

    def _give_up(self, entry: _Entry, has_come: Callable[[], bool]) -> None:
        self._withdraw(entry)
        if has_come():
            return
        now = self._now()
        raise DeadlineExceeded(
            f"the read asks for timestamp {entry[0]} (UTC ms {physical_ms(entry[0])}), and when its time is "
            f"up the collection is served up to {now} (UTC ms {physical_ms(now)}); "
            "retry, or read with a weaker consistency level"
        )

    def _check_reached(self, ts: Timestamp) -> None:
        """Raise a fresh exception for each thread: raising one object in many would mix their tracebacks."""
        if self._closed is not None:
            raise type(self._closed)(self._closed.message)
        if self._stopped and self._now() < ts:
            raise Unavailable(self._stopped)
