"""The most that one posting of a term can add to a score.

For any average length, ``tf / (tf + base + slope · length)`` is at most
``1 / (1 + base / largest tf + slope · smallest length / tf)``. So two numbers per term bound its scores under
BM25, and the largest weight bounds its products. They are computed when a term is first searched for: that
reads its postings once, as the search itself would. No file holds them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elanus.index.bm25 import Bm25
from elanus.index.hits import Scores

Bounds = npt.NDArray[np.float64]


class TermBounds:
    """The bounds of an index's terms. Two threads may compute one at the same time: they are equal."""

    __slots__ = ("_peaks", "_ratios", "_weights")

    def __init__(self, terms: int, weights: Scores) -> None:
        """``weights``: of all postings, (postings,)."""
        self._weights = weights
        self._peaks = np.full(terms, np.nan, dtype=np.float32)
        self._ratios: Scores | None = None

    def products(self, term: int, begin: int, end: int) -> float:
        """Return the largest weight among the postings; infinity if one is negative."""
        peak = self._peaks[term]
        if np.isnan(peak):
            weights = self._weights[begin:end]
            peak = weights.max() if weights.min() >= 0 else np.float32(np.inf)
            self._peaks[term] = peak
        return float(peak)

    def bm25(self, term: int, begin: int, end: int, rows: npt.NDArray[np.uint32], bm25: Bm25) -> float:
        """Return the largest score that a posting has, at a query's weight of 1. ``rows``: of all
        postings."""
        ratios = self._ratios
        if ratios is None:
            ratios = self._ratios = np.full(len(self._peaks), np.nan, dtype=np.float32)
        peak = self.products(term, begin, end)
        if np.isnan(ratios[term]):
            ratios[term] = (bm25.lengths[rows[begin:end]] / self._weights[begin:end]).min()
        return 1.0 / (1.0 + bm25.base / peak + bm25.slope * float(ratios[term]))
