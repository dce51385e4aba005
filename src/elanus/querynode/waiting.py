"""Where reads wait for a timestamp to be served.

A gRPC thread that must see timestamp T blocks here until the collection's service time has reached T;
the loop thread wakes exactly those whose time has come. A read whose time has come already takes no
lock.
"""

from __future__ import annotations

import heapq
import itertools
import threading

from elanus.core.errors import DeadlineExceeded, ElanusError
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms


class ServiceClock:
    """The service time of one collection. Advanced by one thread, read and awaited by many."""

    def __init__(self) -> None:
        self._time = NO_TIMESTAMP
        self._closed: ElanusError | None = None
        self._lock = threading.Lock()
        self._waiting: list[tuple[Timestamp, int, threading.Event]] = []
        self._arrivals = itertools.count()

    @property
    def time(self) -> Timestamp:
        return self._time

    def advance(self, ts: Timestamp) -> None:
        """Set the time, which may not go back, and wake who waited for it."""
        assert ts >= self._time, f"service time would go back from {self._time} to {ts}"
        with self._lock:
            self._time = ts
            while self._waiting and self._waiting[0][0] <= ts:
                heapq.heappop(self._waiting)[2].set()

    def close(self, error: ElanusError) -> None:
        """No time will be reached any more: everybody who waits, or comes to wait, gets the error."""
        with self._lock:
            self._closed = error
            for _, _, come in self._waiting:
                come.set()
            self._waiting.clear()

    def wait(self, ts: Timestamp, timeout_s: float) -> None:
        """Block until the time is at least ``ts``.

        Raises `DeadlineExceeded`, and the error given to `close`.
        """
        if self._time >= ts and self._closed is None:
            return
        with self._lock:
            if self._closed is not None:
                raise self._refusal(self._closed)
            if self._time >= ts:
                return
            entry = (ts, next(self._arrivals), threading.Event())
            heapq.heappush(self._waiting, entry)
        if not entry[2].wait(timeout_s):
            self._give_up(entry, timeout_s)
        if self._closed is not None:
            raise self._refusal(self._closed)

    def _give_up(self, entry: tuple[Timestamp, int, threading.Event], timeout_s: float) -> None:
        with self._lock:
            if entry[2].is_set():
                return
            self._waiting.remove(entry)
            heapq.heapify(self._waiting)
            now = self._time
        raise DeadlineExceeded(
            f"the read asks for timestamp {entry[0]} (UTC ms {physical_ms(entry[0])}), and after "
            f"{timeout_s:g} s the collection is served up to {now} (UTC ms {physical_ms(now)}); "
            "retry, or read with a weaker consistency level"
        )

    @staticmethod
    def _refusal(error: ElanusError) -> ElanusError:
        """A fresh exception for each thread: raising one object in many would mix their tracebacks."""
        return type(error)(error.message)
