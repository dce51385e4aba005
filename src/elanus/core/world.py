"""The clock, as the roles see it: handed in, so that a simulator can bring its own."""

from __future__ import annotations

import time
from typing import Protocol

_HAS_BOOTTIME = hasattr(time, "CLOCK_BOOTTIME")
"""On Linux. Elsewhere the monotonic clock is what there is."""


class Clock(Protocol):
    def wall_ms(self) -> int:
        """UTC milliseconds. May jump either way."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def elapsed_s(self) -> float:
        """As `monotonic_s`, and the time that the machine sleeps passes too: for leases that others end."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if _HAS_BOOTTIME else time.monotonic()
