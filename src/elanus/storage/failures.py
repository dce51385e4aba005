"""The failures of a store's requests since the last one that was answered.

They show in the status of the process that has the store. Otherwise a store that is down would show only in
the errors of whatever needs it at the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elanus.storage.port import StoreFailures

_TEXT_MAX = 400
"""Characters kept of an error: some stores answer with pages."""


class FailureRecord:
    """Safe to use from many threads; a success after a success costs nothing."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._count = 0
        self._first_s = self._last_s = 0.0
        self._text = ""

    def failed(self, text: str) -> None:
        with self._lock:
            self._last_s = self._monotonic_s()
            if not self._count:
                self._first_s = self._last_s
            self._count += 1
            self._text = text[:_TEXT_MAX]

    def answered(self) -> None:
        if self._count:
            with self._lock:
                self._count = 0

    def found(self) -> StoreFailures | None:
        """Return the failures since the last answer, if there are any."""
        with self._lock:
            now_s = self._monotonic_s()
            if not self._count:
                return None
            return StoreFailures(self._count, now_s - self._first_s, now_s - self._last_s, self._text)
