"""Row ids and automatic primary keys: taken from a batch reserved at the root coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable

_BATCH = 10_000


class IdBatch:
    """``reserve(count)`` returns the first of ``count`` fresh ids; it blocks. Safe from any thread."""

    def __init__(self, reserve: Callable[[int], int]) -> None:
        self._reserve = reserve
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0

    def take(self, count: int) -> int:
        """Return the first of ``count`` consecutive ids."""
        if count >= _BATCH:
            return self._reserve(count)
        with self._lock:
            if self._end - self._next < count:
                self._next = self._reserve(_BATCH)
                self._end = self._next + _BATCH
            first = self._next
            self._next += count
            return first
