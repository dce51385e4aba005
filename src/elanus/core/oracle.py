"""The timestamp oracle's arithmetic: timestamps never go back and never pass the persisted bound.

The oracle hands out timestamps whose physical part stays below a *bound* that was persisted before.
After a restart it begins at the bound, so no timestamp can be handed out twice, whatever the clock did
meanwhile. While the oracle runs, the physical part follows the wall clock forward and never
moves back (`Pace` defines how it advances after the clock has stepped back); when the logical counter is used
up within one millisecond, it advances by one. If the clock steps ahead of the bound (or the process was
asleep), the oracle follows only as far as the bound, so that requests need not wait until the next bound is
persisted.

Pure: no clock, no storage. `elanus.rootcoord.tso` supplies both.
"""

from __future__ import annotations

from elanus.core.timestamps import LOGICAL_BITS, LOGICAL_MASK, Timestamp, compose

ALLOCATION_MAX = 1 << (LOGICAL_BITS - 2)
"""The most timestamps one request may ask for."""


class Pace:
    """An oracle's time, which always advances: the wall clock, or half speed while the wall clock is behind.

    Otherwise, correcting a clock that was ahead would stop time until the clock has caught up, perhaps for a
    day, and nothing that waits for a moment to pass (an allocation's expiry, a segment's age) would end.
    ``floor_ms``: the time reached before; time continues from there.
    """

    def __init__(self, floor_ms: int, monotonic_s: float) -> None:
        self._now_ms = float(floor_ms)
        self._looked_s = monotonic_s

    def now_ms(self, wall_ms: int, monotonic_s: float) -> int:
        """UTC milliseconds; never back."""
        passed_ms = 1000 * (monotonic_s - self._looked_s)
        self._looked_s = monotonic_s
        self._now_ms = max(float(wall_ms), self._now_ms + passed_ms / 2)
        return int(self._now_ms)


class Oracle:
    """State of one oracle. ``bound_ms`` is the persisted bound: exclusive, in UTC milliseconds."""

    def __init__(self, saved_bound_ms: int) -> None:
        self._physical_ms = saved_bound_ms
        self._logical = 0
        self._bound_ms = saved_bound_ms

    def bound_wanted_ms(self, wall_ms: int, window_ms: int) -> int | None:
        """Return the bound to persist next, or None while more than half of the window is left."""
        ahead_of = max(wall_ms, self._physical_ms)
        if self._bound_ms - ahead_of > window_ms // 2:
            return None
        return ahead_of + window_ms

    def bound_persisted(self, bound_ms: int) -> None:
        """Record that the bound is on stable storage. Bounds only grow."""
        self._bound_ms = max(self._bound_ms, bound_ms)

    def allocate(self, count: int, wall_ms: int) -> Timestamp | None:
        """Return the first of ``count`` consecutive timestamps, or None when all below the bound are used up.

        Raises `ValueError` for a count outside [1, `ALLOCATION_MAX`].
        """
        if not 1 <= count <= ALLOCATION_MAX:
            raise ValueError(f"count {count} is outside [1, {ALLOCATION_MAX}]")
        physical_ms, logical = self._physical_ms, self._logical
        reachable_ms = min(wall_ms, self._bound_ms - 1)
        if reachable_ms > physical_ms:
            physical_ms, logical = reachable_ms, 0
        if logical + count > LOGICAL_MASK:
            physical_ms, logical = physical_ms + 1, 0
        if physical_ms >= self._bound_ms:
            return None
        self._physical_ms, self._logical = physical_ms, logical + count
        return compose(physical_ms, logical)
