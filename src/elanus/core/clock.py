"""The clock that roles use: injected, so that a simulator can supply its own."""

from __future__ import annotations

import time
from typing import Protocol

_HAS_BOOTTIME = hasattr(time, "CLOCK_BOOTTIME")
"""True on Linux. Other systems have only the monotonic clock."""


class Clock(Protocol):
    def wall_ms(self) -> int:
        """UTC milliseconds. May jump in either direction."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences are meaningful."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def elapsed_s(self) -> float:
        """As `monotonic_s`, but also counts time that the machine sleeps: for leases that others end."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if _HAS_BOOTTIME else time.monotonic()
