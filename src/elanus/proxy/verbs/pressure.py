"""Back-pressure: writes are slowed, then refused, before memory or disk run out.

While the pipeline is down, nothing leaves the growing segments and the log. Between the soft and the hard
limit of growing data each write is delayed, longer the closer the data is to the hard limit. Above the hard
limit, or when the write would use the disk's reserve, it is refused with an error that says so. Reads and
deletes continue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elanus.core.errors import DiskFull, MemoryFull
from elanus.proxy.role.measures import Measures

_DELAY_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class PressureLimits:
    growing_soft_bytes: int
    growing_hard_bytes: int
    disk_reserve_bytes: int


def write_delay_s(growing_bytes: int, limits: PressureLimits) -> float:
    """Return how long a write has to wait: 0 up to the soft limit, rising to one second at the hard limit."""
    if growing_bytes <= limits.growing_soft_bytes:
        return 0.0
    room = max(1, limits.growing_hard_bytes - limits.growing_soft_bytes)
    return _DELAY_MAX_S * min(1.0, (growing_bytes - limits.growing_soft_bytes) / room)


class Pressure:
    """``growing_bytes`` and ``disk_free_bytes`` are read at each write; they must be cheap."""

    def __init__(
        self,
        limits: PressureLimits,
        growing_bytes: Callable[[], int],
        disk_free_bytes: Callable[[], int],
        sleep: Callable[[float], None],
        measures: Measures,
    ) -> None:
        self._limits = limits
        self._growing_bytes = growing_bytes
        self._disk_free_bytes = disk_free_bytes
        self._sleep = sleep
        self._measures = measures

    def before_write(self, size_bytes: int) -> None:
        """Block until a write of that size may proceed. Raises `MemoryFull`, `DiskFull`."""
        try:
            delay_s = self._allowed_after_s(size_bytes)
        except (DiskFull, MemoryFull):
            self._measures.held_back("refused")
            raise
        if delay_s:
            self._measures.held_back("slowed")
            self._sleep(delay_s)

    def _allowed_after_s(self, size_bytes: int) -> float:
        free = self._disk_free_bytes() - size_bytes
        if free < self._limits.disk_reserve_bytes:
            raise DiskFull(
                f"disk quota exceeded: {free} bytes would be left, backpressure.disk_reserve_mb keeps "
                f"{self._limits.disk_reserve_bytes}: free space on the data directory's disk"
            )
        growing = self._growing_bytes() + size_bytes
        if growing > self._limits.growing_hard_bytes:
            raise MemoryFull(
                f"memory quota exceeded: {growing} bytes of growing data, backpressure.growing_hard_mb "
                f"allows {self._limits.growing_hard_bytes}: wait for the pipeline to flush, then retry"
            )
        return write_delay_s(growing, self._limits)
