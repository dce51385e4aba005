"""Two ways of doing the same work, timed in turns."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from functools import partial

import msgspec


class Sides(msgspec.Struct, frozen=True):
    """Seconds of every turn. ``plain_s``: the same work without Elanus; ``ours_s``: the job's task.

    Attributes:
        rows: how many rows one turn works on.
        dim: floats in each row's vector.
    """

    rows: int
    dim: int
    plain_s: list[float]
    ours_s: list[float]

    @property
    def speed(self) -> float:
        """The job's speed as a share of the plain side's: 1 is as fast."""
        return statistics.median(self.plain_s) / statistics.median(self.ours_s)

    @property
    def speed_at_best(self) -> float:
        """As `speed`, of the fastest turn of each side."""
        return min(self.plain_s) / min(self.ours_s)

    @property
    def cost(self) -> float:
        """How many times as long as the plain side the job takes."""
        return 1 / self.speed


def in_turns(
    rows: int,
    dim: int,
    turns: int,
    plain: Callable[[int], object],
    ours: Callable[[int], object],
    warms_up: bool = True,
) -> Sides:
    """One unmeasured turn (number 0), then so many measured ones, the two sides alternating.

    Both are given the turn's number, for the names of what they write. ``warms_up``: False leaves the
    unmeasured turn out, which is right only where a turn takes minutes.
    """
    if warms_up:
        plain(0)
        ours(0)
    plain_s, ours_s = [], []
    for turn in range(1, turns + 1):
        plain_s.append(timed_s(partial(plain, turn)))
        ours_s.append(timed_s(partial(ours, turn)))
    return Sides(rows, dim, plain_s, ours_s)


def timed_s(work: Callable[[], object]) -> float:
    """Seconds that one call takes, with what the calls before left behind collected first."""
    gc.collect()
    began_s = time.perf_counter()
    work()
    return round(time.perf_counter() - began_s, 4)
