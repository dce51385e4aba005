"""Recall curves: how much effort a search of one index needs for a recall, as measured when it was built.

The effort is the parameter of the kind that sets how many rows a search looks at: ``ef``, ``search_list`` or
``nprobe``. A curve has the recall of a few efforts at a few *depths*, which are numbers of hits. Between
efforts, the logarithm of the missed share is taken as linear in the logarithm of the effort, and between
depths the logarithm of the effort in that of the depth. Beyond the largest depth the effort grows with it.

**Filters.** A filter that leaves the share s of the rows puts the k best of them among the k / s best of all,
if it is independent of the vectors. So the search needs the effort of depth k / s. The indexes widen the
effort of a filtered search themselves (`elanus.index.plan`): what they are given is less by as much.

**Live searches** may be harder or easier than the queries of the measurement. ``miss_factor`` is how many
times as many hits they miss; the curve then looks for a target that is as many times nearer to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.target_recall import EFFORTS
from elanus.index.spec import IndexKind

MISSES_MIN = 1e-4
"""A measurement without a miss does not show that there are fewer."""
_DEPTHS, _EFFORTS, _RECALLS = "curve.depths", "curve.efforts", "curve.recalls"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def effort_name(kind: IndexKind) -> str:
    """Return the search parameter that sets the effort, "" if the kind has none."""
    return next((name for name in EFFORTS if name in kind.search_params), "")


@dataclass(frozen=True, slots=True, eq=False)
class RecallCurve:
    """``depths`` (d,) and ``efforts`` (e,) ascend. ``recalls``: (d, e), growing with the effort."""

    depths: Ints
    efforts: Ints
    recalls: Floats

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the arrays of an index file."""
        return {_DEPTHS: self.depths, _EFFORTS: self.efforts, _RECALLS: self.recalls}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> RecallCurve | None:
        """Return the curve of an index file; None if it has none."""
        if _DEPTHS not in arrays:
            return None
        return cls(np.array(arrays[_DEPTHS]), np.array(arrays[_EFFORTS]), np.array(arrays[_RECALLS]))

    def effort(self, target: float, k: int, share: float, miss_factor: float = 1.0) -> int | None:
        """Return the least effort that reaches the target, as the index spends it under the filter.

        ``share``: of the rows that the search may choose from. None: no effort that was measured reaches it.
        """
        at = self._at(target, k, share, miss_factor)
        return None if at is None else max(1, math.ceil(at))

    def lists(self, target: float, k: int, share: float, miss_factor: float = 1.0) -> float | None:
        """As `effort`, of lists, before the index widens it: fractions count, as it rounds up later."""
        at = self._at(target, k, share, miss_factor)
        return None if at is None else max(1, math.ceil(at)) * share

    def _at(self, target: float, k: int, share: float, miss_factor: float) -> float | None:
        """Return the effort at the depth of a search, which a filter makes deeper."""
        misses = (1.0 - target) / miss_factor
        needed = [self._needed(recalls, misses) for recalls in self.recalls]
        return _interpolated(self.depths, needed, k / share)

    def enough(self, k: int, share: float) -> int:
        """Return the least effort beyond which nothing more was found, before the index widens it."""
        row = self._row(k, share)
        at = int(np.argmax(self.recalls[row] >= self.recalls[row, -1]))
        return max(1, math.ceil(int(self.efforts[at]) * share))

    def best(self, k: int, share: float) -> float:
        """Return the highest recall that was measured at the depth nearest to that of the search."""
        return float(self.recalls[self._row(k, share), -1])

    def _row(self, k: int, share: float) -> int:
        return int(np.argmin(np.abs(np.log(self.depths) - math.log(k / share))))

    def _needed(self, recalls: Floats, misses: float) -> float | None:
        """Return the effort that misses this share of the hits, at one depth."""
        missed = np.maximum(1.0 - recalls, MISSES_MIN)
        wanted = max(misses, MISSES_MIN)
        reached = np.flatnonzero(missed <= wanted)
        if not len(reached):
            return None
        after = int(reached[0])
        if after == 0:
            return float(self.efforts[0])
        low, high = math.log(missed[after - 1]), math.log(missed[after])
        part = (low - math.log(wanted)) / (low - high)
        start, end = math.log(self.efforts[after - 1]), math.log(self.efforts[after])
        return math.exp(start + part * (end - start))


def _interpolated(depths: Ints, needed: list[float | None], depth: float) -> float | None:
    """Return the effort at any depth, from those of the measured depths."""
    last = len(depths) - 1
    if depth <= depths[0]:
        return needed[0]
    if depth >= depths[last]:
        end = needed[last]
        return None if end is None else end * depth / float(depths[last])
    after = int(np.searchsorted(depths, depth))
    low, high = needed[after - 1], needed[after]
    if low is None or high is None:
        return None
    part = math.log(depth / depths[after - 1]) / math.log(depths[after] / depths[after - 1])
    return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
