"""Keeps the pauses of Python's cyclic collector short in a process that holds much.

A full collection looks at all objects, and nothing else runs meanwhile: more than half a second with twenty
thousand segments. Full collections come again and again while such a process grows, and nearly all that they
look at has been looked at before. So what survives a long one is left out of the next ones.

Cycles among the objects left out are not found when they become garbage. Large things are not in cycles when
they are released: they are freed at once, so fewer objects are left out. A look at all objects is due when
three quarters of these are gone: what is left takes a quarter of the time. Otherwise it is due once a day, at
a time when the process has little to do, or after two days at the latest.

A loaded segment has about forty objects; the libraries have 220,000.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

_FULL = 2
_LONG_S = 0.015
_LOOK_S = 60.0
"""How often it is counted how many of the objects left out there still are: that takes some milliseconds."""
_LEFT_OUT_S = 86_400.0
_LEFT_SHARE = 0.25
_QUIET_SHARE = 0.2
"""A process that takes less of a core has little to do."""
_MIDDLE_COLLECTIONS = 5
"""How many collections of the middle generation there are for one full collection; Python's default is 10."""


class CollectorPauses:
    """A callback of the collector (`gc.callbacks`). ``time_s``: a monotonic clock. ``cpu_s``: the processor
    time that the process has taken."""

    def __init__(
        self,
        time_s: Callable[[], float] = time.monotonic,
        freeze: Callable[[], None] = gc.freeze,
        unfreeze: Callable[[], None] = gc.unfreeze,
        count: Callable[[], int] = gc.get_freeze_count,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._time_s = time_s
        self._freeze = freeze
        self._unfreeze = unfreeze
        self._count = count
        self._cpu_s = cpu_s
        self._looked = (time_s(), cpu_s())
        self._began_s = 0.0
        self._look_at_s = self._unfreeze_at_s = float("inf")
        self._most = 0
        """How many objects were left out at most, as far as they were counted."""

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        now_s = self._time_s()
        if phase == "start":
            self._began_s = now_s
        elif now_s >= self._look_at_s and self._is_due(now_s):
            self._look_at_s = self._unfreeze_at_s = float("inf")
            self._most = 0
            self._unfreeze()  # the next full collection looks at all objects
        elif now_s - self._began_s >= _LONG_S:
            self._freeze()
            self._look_at_s = min(self._look_at_s, now_s + _LOOK_S)
            self._unfreeze_at_s = min(self._unfreeze_at_s, now_s + _LEFT_OUT_S)

    def _is_due(self, now_s: float) -> bool:
        """Whether all objects are to be looked at again."""
        self._look_at_s = now_s + _LOOK_S
        left = self._count()
        self._most = max(self._most, left)
        (before_s, before_cpu_s), self._looked = self._looked, (now_s, self._cpu_s())
        is_quiet = self._looked[1] - before_cpu_s < _QUIET_SHARE * (now_s - before_s)
        is_old = now_s >= self._unfreeze_at_s + (0 if is_quiet else _LEFT_OUT_S)
        return left < _LEFT_SHARE * self._most or is_old


def shorten_collector_pauses() -> None:
    """Apply this to the process."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _MIDDLE_COLLECTIONS)
    gc.callbacks.append(CollectorPauses())
