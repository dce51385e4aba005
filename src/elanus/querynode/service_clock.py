"""Where reads wait for a timestamp to be served.

A gRPC thread that must see timestamp T blocks here until the collection's service time has reached T. The
loop thread wakes exactly those whose timestamp has been reached. A read whose timestamp is already served
takes no lock. Reads from a query channel wait on the loop itself (`reached`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable

from elanus.core.errors import DeadlineExceeded, ElanusError
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms

_Entry = tuple[Timestamp, int, Callable[[], None]]


class ServiceClock:
    """The service time of one collection. Advanced by one thread, read and awaited by many."""

    def __init__(self) -> None:
        self._time = NO_TIMESTAMP
        self._closed: ElanusError | None = None
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self._arrivals = itertools.count()

    @property
    def time(self) -> Timestamp:
        return self._time

    def advance(self, ts: Timestamp) -> None:
        """Set the time, which must not go back, and wake everyone who waited for it."""
        assert ts >= self._time, f"service time would go back from {self._time} to {ts}"
        with self._lock:
            self._time = ts
            while self._waiting and self._waiting[0][0] <= ts:
                heapq.heappop(self._waiting)[2]()

    def close(self, error: ElanusError) -> None:
        """Stop the clock: everyone who waits, now or later, gets the error."""
        with self._lock:
            self._closed = error
            for _, _, wake in self._waiting:
                wake()
            self._waiting.clear()

    def has_reached(self, ts: Timestamp) -> bool:
        """Whether the time is at least ``ts``. Always False once the clock is closed."""
        return self._closed is None and self._time >= ts

    def wait(self, ts: Timestamp, timeout_s: float) -> None:
        """Block until the time is at least ``ts``.

        Raises `DeadlineExceeded`, and the error given to `close`.
        """
        if self._time >= ts and self._closed is None:
            return
        come = threading.Event()
        entry = self._enter(ts, come.set)
        if entry is not None and not come.wait(timeout_s):
            self._give_up(entry, come.is_set, timeout_s)
        self._check_open()

    async def reached(self, ts: Timestamp, timeout_s: float) -> None:
        """As `wait`, for a coroutine on the loop that advances the clock."""
        come = asyncio.Event()
        entry = self._enter(ts, come.set)
        if entry is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await come.wait()
            except TimeoutError:
                self._give_up(entry, come.is_set, timeout_s)
        self._check_open()

    def _enter(self, ts: Timestamp, wake: Callable[[], None]) -> _Entry | None:
        """Add a waiter. Returns None if there is nothing to wait for."""
        with self._lock:
            if self._closed is not None or self._time >= ts:
                return None
            entry = (ts, next(self._arrivals), wake)
            heapq.heappush(self._waiting, entry)
            return entry

    def _give_up(self, entry: _Entry, has_come: Callable[[], bool], timeout_s: float) -> None:
        with self._lock:
            if has_come():
                return
            self._waiting.remove(entry)
            heapq.heapify(self._waiting)
            now = self._time
        raise DeadlineExceeded(
            f"the read asks for timestamp {entry[0]} (UTC ms {physical_ms(entry[0])}), and after "
            f"{timeout_s:g} s the collection is served up to {now} (UTC ms {physical_ms(now)}); "
            "retry, or read with a weaker consistency level"
        )

    def _check_open(self) -> None:
        """Raise a fresh exception for each thread: raising one object in many would mix their tracebacks."""
        if self._closed is not None:
            raise type(self._closed)(self._closed.message)
