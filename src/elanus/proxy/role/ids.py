"""Row ids and automatic primary keys: taken from a batch reserved at the root coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from elanus.core.errors import ElanusError

_BATCH = 10_000


class IdBatch:
    """``reserve(count)`` returns the first of ``count`` fresh ids; it blocks. Safe from any thread."""

    def __init__(self, reserve: Callable[[int], int]) -> None:
        self._reserve = reserve
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0
        self._reserving: Future[None] | None = None

    def take(self, count: int) -> int:
        """Return the first of ``count`` consecutive ids. Raises what ``reserve`` raises.

        Threads that need a new batch share one call of ``reserve``, and its failure.
        """
        if count >= _BATCH:
            return self._reserve(count)
        while True:
            with self._lock:
                if self._end - self._next >= count:
                    first = self._next
                    self._next += count
                    return first
                shared = self._reserving
                if shared is None:
                    own = self._reserving = Future()
            if shared is None:
                self._refill(own)
            else:
                _wait(shared)

    def _refill(self, own: Future[None]) -> None:
        """Reserve the next batch, outside the lock: the call may take as long as its timeout."""
        try:
            first = self._reserve(_BATCH)
        except BaseException as error:
            with self._lock:
                self._reserving = None
            own.set_exception(error)
            raise
        with self._lock:
            self._next, self._end = first, first + _BATCH
            self._reserving = None
        own.set_result(None)


def _wait(shared: Future[None]) -> None:
    error = shared.exception()
    if isinstance(error, ElanusError):
        raise type(error)(error.message)  # each thread needs an error of its own: raising one changes it
    if error is not None:
        raise error
