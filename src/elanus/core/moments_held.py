"""Moments that are being looked at: compaction folds in no delete later than the earliest of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp


class MomentsHeld:
    """For one thread. A compaction that was planned before a moment was taken folds in earlier deletes
    only."""

    def __init__(self) -> None:
        self._held: Counter[Timestamp] = Counter()

    @contextmanager
    def hold(self, moment: Timestamp) -> Iterator[None]:
        self._held[moment] += 1
        try:
            yield
        finally:
            self._held[moment] -= 1
            if not self._held[moment]:
                del self._held[moment]

    def earliest(self) -> Timestamp:
        """Return the earliest moment that is held, `MAX_TIMESTAMP` if none is."""
        return min(self._held, default=MAX_TIMESTAMP)
