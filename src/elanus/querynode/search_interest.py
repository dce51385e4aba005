"""Whether a collection was searched lately: what only searches need is not made for others.

A search notes itself, which is one look at a flag. The question is asked on the loop thread; if the answer
was no, the next search wakes the loop.
"""

from __future__ import annotations

from collections.abc import Callable

LATELY_S = 600.0
"""A search counts for this long, and for up to twice as long if more follow."""


class SearchInterest:
    """``wake``: called after the first search since `is_recent` returned False, in that search's thread."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._is_noted = False
        self._is_awaited = False
        self._until_s = float("-inf")

    def note(self) -> None:
        """The collection is searched. May be called by any thread."""
        if not self._is_noted:
            self._is_noted = True
            if self._is_awaited:
                self._is_awaited = False
                self._wake()

    def is_recent(self, now_s: float) -> bool:
        """Whether there was a search lately. ``now_s``: by a clock that never goes back."""
        if now_s < self._until_s:
            return True
        self._is_awaited = True  # before the look at the flag, so that no search is missed
        if not self._is_noted:
            return False
        self._is_noted = self._is_awaited = False
        self._until_s = now_s + LATELY_S
        return True
