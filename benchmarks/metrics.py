"""Figures computed from raw observations: recall, percentiles, and the smallest width that suffices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


def recall(found: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> float:
    """Share of the exact neighbors that were found, over all queries together.

    Args:
        found: keys returned per query.
        truth: exact keys per query; a query without any is left out.

    Raises:
        ValueError: not one answer per query, or no query with a neighbor.
    """
    wanted = sum(len(keys) for keys in truth)
    if not wanted:
        raise ValueError("recall needs at least one exact neighbor")
    hits = sum(len(set(got) & set(exact)) for got, exact in zip(found, truth, strict=True))
    return hits / wanted


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear-interpolated percentile, `percent` in 0..100.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


def median(values: Sequence[float]) -> float:
    """The 50th percentile."""
    return percentile(values, 50)


@dataclass(frozen=True)
class Choice:
    """A search width and the recall that it reached."""

    ef: int
    recall: float


def smallest_ef(grid: Sequence[int], recall_at: Callable[[int], float], wanted: float) -> Choice:
    """The smallest ef of an ascending `grid` whose recall is at least `wanted`.

    Recall rises with ef, so a binary search finds it in a few sweeps over the queries. When even the widest
    search falls short, that one is returned, with its recall for the reader to see.

    Raises:
        ValueError: an empty grid.
    """
    if not grid:
        raise ValueError("an empty grid of ef")
    seen: dict[int, float] = {}
    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        seen[grid[middle]] = recall_at(grid[middle])
        if seen[grid[middle]] >= wanted:
            high = middle
        else:
            low = middle + 1
    ef = grid[low]
    return Choice(ef, seen[ef] if ef in seen else recall_at(ef))


@dataclass(frozen=True)
class Latencies:
    """One timed run of searches, over one or several clients.

    Attributes:
        p50_ms: median time of a call, seen by the client.
        p99_ms: 99th percentile.
        calls_per_s: finished calls of all clients per second of their clocks.
        calls: how many were made.
    """

    p50_ms: float
    p99_ms: float
    calls_per_s: float
    calls: int

    @classmethod
    def of(cls, latency_us: Sequence[Sequence[int]], seconds: Sequence[float]) -> Latencies:
        """Join the observations of several clients.

        Args:
            latency_us: per client, one latency per call.
            seconds: per client, the time that its calls took together.
        """
        together = [one for client in latency_us for one in client]
        rate = sum(len(calls) / spent for calls, spent in zip(latency_us, seconds, strict=True))
        return cls(percentile(together, 50) / 1e3, percentile(together, 99) / 1e3, rate, len(together))

    @classmethod
    def median_of(cls, repeats: Sequence[Latencies]) -> Latencies:
        """The median of each figure over repeats of the same run."""
        return cls(
            median([one.p50_ms for one in repeats]),
            median([one.p99_ms for one in repeats]),
            median([one.calls_per_s for one in repeats]),
            sum(one.calls for one in repeats),
        )
