"""When rows that arrive are a reason to start Spark before a job asks for it.

A program that begins to insert will most likely flush or fill a segment soon, and a start takes seconds. So
the first rows after a quiet time are taken as an announcement. Rows that keep trickling in announce nothing:
Spark would run all the time. An announcement that no job follows was wrong, and the next one needs a quiet
time twice as long.

Pure: times are passed in.
"""

from __future__ import annotations

from math import inf

QUIET_MAX_S = 3600.0


class HeadStart:
    """``quiet_s``: how long no rows may have arrived at first."""

    def __init__(self, quiet_s: float) -> None:
        self._least_s = self._quiet_s = quiet_s
        self._last_s = -inf
        self._is_open = False
        """Whether Spark was announced, and no job has come since."""

    def rows(self, now_s: float) -> bool:
        """Rows have arrived. Returns whether they announce a job."""
        quiet_s, self._last_s = now_s - self._last_s, now_s
        return quiet_s >= self._quiet_s

    def began(self) -> None:
        """Spark starts because of an announcement."""
        self._is_open = True

    def job(self) -> None:
        """A job has come."""
        self._is_open, self._quiet_s = False, self._least_s

    def slept(self) -> None:
        """Spark sleeps again."""
        if self._is_open:
            self._is_open, self._quiet_s = False, min(2 * self._quiet_s, max(QUIET_MAX_S, self._least_s))
