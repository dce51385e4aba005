"""Keeps the pauses of Python's cyclic collector short in a process that holds much.

A full collection looks at all objects, and nothing else runs meanwhile: a tenth of a second with a thousand
loaded collections. Full collections come again and again while such a process grows, and nearly all that they
look at has been looked at before. So what survives a long one is left out of the next ones for some minutes.
Cycles that become garbage meanwhile are found after that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

_FULL = 2
_LONG_S = 0.03
_LEFT_OUT_S = 600.0


class CollectorPauses:
    """A callback of the collector (`gc.callbacks`). ``time_s``: a monotonic clock."""

    def __init__(
        self,
        time_s: Callable[[], float] = time.monotonic,
        freeze: Callable[[], None] = gc.freeze,
        unfreeze: Callable[[], None] = gc.unfreeze,
    ) -> None:
        self._time_s = time_s
        self._freeze = freeze
        self._unfreeze = unfreeze
        self._began_s = 0.0
        self._unfreeze_at_s = float("inf")

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        now_s = self._time_s()
        if phase == "start":
            self._began_s = now_s
        elif now_s >= self._unfreeze_at_s:
            self._unfreeze_at_s = float("inf")
            self._unfreeze()  # the next full collection looks at all objects
        elif now_s - self._began_s >= _LONG_S:
            self._freeze()
            self._unfreeze_at_s = min(self._unfreeze_at_s, now_s + _LEFT_OUT_S)


def shorten_collector_pauses() -> None:
    """Apply this to the process."""
    gc.callbacks.append(CollectorPauses())
