"""How late the event loop of a process is: the longest time in which none of its roles did anything.

All control of a process runs on one loop. While a callback computes, nothing else does: no tick, no renewal
of a lease, no answer. A timer that fires every 50 ms shows it: its delay is the time that the loop was busy,
or that the process had no processor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

_INTERVAL_S = 0.05
_WINDOW_BEATS = 600
_WORTH_LOGGING_S = 1.0
_log = structlog.get_logger("loop")


class LoopLag:
    """Measures the loop that `keep` runs on. ``observe``: called with each delay, in seconds.

    ``clock_s``: a monotonic clock that goes on while the loop is blocked.
    """

    def __init__(self, clock_s: Callable[[], float], observe: Callable[[float], None]) -> None:
        self._clock_s = clock_s
        self._observe = observe
        self._beats = 0
        self._window_s = 0.0
        self._before_s = 0.0

    @property
    def longest_s(self) -> float:
        """The longest delay of the last 30 to 60 seconds. May be read by any thread."""
        return max(self._window_s, self._before_s)

    async def keep(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = self._clock_s() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self._note(max(0.0, self._clock_s() - due_s))

    def _note(self, late_s: float) -> None:
        self._observe(late_s)
        self._beats += 1
        if self._beats % _WINDOW_BEATS == 0:
            self._before_s, self._window_s = self._window_s, 0.0
        self._window_s = max(self._window_s, late_s)
        if late_s >= _WORTH_LOGGING_S:
            _log.warning("event loop late", late_ms=round(late_s * 1000))
