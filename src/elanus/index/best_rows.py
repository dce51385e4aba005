"""The best rows of one sparse query, without walking all postings (MaxScore; Turtle and Flood, 1995).

Each term has a bound: the most that it can add to a score (`elanus.index.term_bounds`). Terms with few
postings for their bound are walked first. Once the k-th best score so far exceeds what the remaining terms
can add together, no new row can come among the best: only the rows that still can are looked up in the
remaining postings, and they become fewer with each term.

The result is exact. Partial scores decide only which rows remain, with an allowance for rounding. The scores
of those are then added up in the order of the terms, as everywhere. Of equal scores the smaller row is first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.index.bm25 import Bm25
from elanus.index.hits import RowIds, Scores
from elanus.index.masks import RowMask
from elanus.index.postings import Lists, Postings, Query, Shown, distinct
from elanus.index.term_bounds import Bounds, TermBounds

LOOKUP_COST = 10
"""Looking up one row among a term's postings costs as much as walking this many of them."""
WALKED_ALL_MAX = 200_000
"""So few postings are all walked: that costs less than bounding and ordering the terms."""
SAVING_MIN = 100_000
"""So few postings of the remaining terms are walked as well: that costs less than looking rows up."""
CHECK_GROWTH = 3
"""It is looked at again when this many times as many are walked: all looks cost less than the walk."""
_DENSE = 4
"""All scores are scanned instead of those of the walked postings when these are more than a quarter."""
_GROUPS = 32
_SORTED_MAX = 256
"""So few scores are sorted as quickly as the best of them are selected."""
_EPSILON = 2.0**-23
_SCORE_MAX = 1e38
"""Larger sums can become infinite, and infinite scores cannot be compared."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The index and the rows of one search, for all its queries.

    ``scores``: zeros (rows,), and again afterwards.
    """

    postings: Postings
    bounds: TermBounds
    mask: RowMask | None
    bm25: Bm25 | None
    scores: Scores

    def best(self, query: Query, k: int) -> tuple[RowIds, Scores]:
        """Return the k best visible rows that have a score, best first, and their scores. Both (up to k,)."""
        lists = self.postings.lists(query)
        size, mask = lists.postings, self.mask
        if mask is not None and mask.count * len(lists.terms) * LOOKUP_COST < size:
            return self._ranked(query, mask.row_ids, k)
        if k * len(lists.terms) * LOOKUP_COST < size <= WALKED_ALL_MAX:
            return self._best_of_few(lists, k)
        if k * len(lists.terms) * LOOKUP_COST < size:
            bounds = self._bounds_of(lists)
            if bounds.min() > 0 and bounds.sum() < _SCORE_MAX:
                candidates = _Walk(self, lists, bounds, k).candidates()
                return self._ranked(query, candidates, k)
        rows, found = self.all(query)
        best = ranks(found, k)
        return rows[best], found[best]

    def all(self, query: Query) -> tuple[RowIds, Scores]:
        """Return all visible rows that have a score, ascending, and their scores."""
        met = self.postings.add(query, self.scores, self.bm25)
        rows = met if self.mask is None else met[self.mask.contains(met)]
        found = self.scores[rows]
        self.clear([met])
        return rows, found

    def _best_of_few(self, lists: Lists, k: int) -> tuple[RowIds, Scores]:
        """As `best`, for postings that are all walked, in the order of the terms: these scores are final."""
        shown = shown_by(self.mask, lists)
        parts = [self.postings.walk(part, self.scores, self.bm25, shown) for part in lists.parts()]
        met = np.concatenate(parts)
        found = self.scores.take(met)
        low = lower_bound(found, k * len(lists.terms))
        rows = distinct(met[np.flatnonzero((found != 0) & ~(found < low))])
        found = self.scores.take(rows)
        self.clear(parts)
        best = ranks(found, k)
        return rows[best], found[best]

    def clear(self, parts: list[RowIds]) -> None:
        """Make the scores zeros again, where these rows are."""
        if sum(map(len, parts)) * _DENSE > len(self.scores):
            self.scores.fill(0)
        else:
            for rows in parts:
                self.scores[rows] = 0

    def _ranked(self, query: Query, rows: RowIds, k: int) -> tuple[RowIds, Scores]:
        found = self.postings.scores_of(query, rows, self.bm25)
        scored = np.flatnonzero(found != 0)
        best = scored[ranks(found[scored], k)]
        return rows[best], found[best]

    def _bounds_of(self, lists: Lists) -> Bounds:
        """Return the most that each term can add; infinity if it may also take away. float64 (m,)."""
        bounds = np.full(len(lists.terms), np.inf)
        if (lists.weights < 0).any():
            return bounds
        spans = zip(lists.terms.tolist(), lists.begins.tolist(), lists.ends.tolist(), strict=True)
        for n, span in enumerate(spans):
            if self.bm25 is None:
                bounds[n] = self.bounds.products(*span)
            else:
                bounds[n] = self.bounds.bm25(*span, self.postings.rows, self.bm25)
        return bounds * lists.weights


class _Walk:
    """One query over its terms, those with few postings for their bound first."""

    def __init__(self, searched: Searched, lists: Lists, bounds: Bounds, k: int) -> None:
        order = np.argsort(lists.sizes / bounds, kind="stable")
        self._lists = lists[order]
        self._sizes: list[int] = self._lists.sizes.tolist()
        self._left = np.append(np.cumsum(bounds[order][::-1])[::-1], 0.0)  # what terms n and later can add
        self._searched = searched
        self._k = k
        self._parts: list[RowIds] = []
        self._partial: list[Scores] = []  # what the rows of each part had when it was walked
        self._walked = 0
        self._slack = (len(bounds) + 8) * _EPSILON
        self._shown = shown_by(searched.mask, lists)

    def candidates(self) -> RowIds:
        """Return rows, ascending, among which the k best are."""
        try:
            return self._candidates()
        finally:
            self._searched.clear(self._parts)

    def _candidates(self) -> RowIds:
        at, last, kth = 0, len(self._sizes), 0.0
        check = 0
        while at < last:
            at = self._walk(at, check)
            remaining = sum(self._sizes[at:])
            if remaining < max(SAVING_MIN, self._walked):
                self._walk(at, self._walked + remaining)
                break
            kth = self._kth(kth, at)
            check = self._walked * CHECK_GROWTH
            low = self._low(kth, at)
            if low > 0:
                rows = self._rows_above(low)
                if len(rows) * LOOKUP_COST < remaining:
                    return self._looked_up(rows, at)
                check = self._walked
        return self._rows_above(max(self._low(self._kth(kth, last), last), 0.0))

    def _walk(self, at: int, until: int) -> int:
        """Walk the next term, and more until so many postings are walked. Return the term after them."""
        first, walked = at, self._walked
        while at < len(self._sizes) and (at == first or walked < until):
            walked += self._sizes[at]
            at += 1
        searched = self._searched
        for part in self._lists[first:at].parts():
            met = searched.postings.walk(part, searched.scores, searched.bm25, self._shown)
            self._parts.append(met)
            self._partial.append(searched.scores.take(met))
        self._walked = walked
        return at

    def _low(self, kth: float, at: int) -> float:
        """Return the smallest partial score that can become one of the k best with the terms from ``at``
        on."""
        return kth * (1 - self._slack) - float(self._left[at]) * (1 + self._slack)

    def _kth(self, known: float, terms: int) -> float:
        """Return the k-th best score so far, or something smaller. ``known``: an earlier result."""
        scores, k = self._searched.scores, self._k
        if self._is_dense:
            return max(known, lower_bound(scores, k))
        found = self._joined_partial()
        low = max(known, lower_bound(found, k * terms))  # a row is among a term's postings at most once
        rows = self._joined_rows()[np.flatnonzero(found >= np.float32(low))]
        return max(known, _largest(scores[distinct(rows)], k))

    def _rows_above(self, low: float) -> RowIds:
        """Return the walked rows with at least this score, ascending."""
        scores = self._searched.scores
        least = np.float32(low) if low > 0 else np.float32(np.nextafter(np.float32(0), np.float32(1)))
        if self._is_dense:
            return np.flatnonzero(scores >= least)
        return distinct(self._joined_rows()[np.flatnonzero(self._joined_partial() >= least)])

    def _joined_rows(self) -> RowIds:
        """Return the rows of all walked postings, each as often as it was met."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def _joined_partial(self) -> Scores:
        """Return the scores of these rows when they were met; the score of a row is the largest of its
        own."""
        if len(self._partial) > 1:
            self._partial = [np.concatenate(self._partial)]
        return self._partial[0]

    def _looked_up(self, rows: RowIds, at: int) -> RowIds:
        """Of these rows, those that can still be among the best when the terms from ``at`` on are known."""
        searched = self._searched
        partial = searched.scores[rows]
        for n in range(at, len(self._sizes)):
            if len(rows) <= 2 * self._k:
                break
            lists = self._lists
            begin, end, weight = lists.begins[n], lists.ends[n], lists.weights[n]
            searched.postings.look_up(begin, end, weight, rows, partial, searched.bm25)
            remain = partial >= np.float32(self._low(_largest(partial, self._k), n + 1))
            rows, partial = rows[remain], partial[remain]
        return rows

    @property
    def _is_dense(self) -> bool:
        return self._walked * _DENSE > len(self._searched.scores)


def shown_by(mask: RowMask | None, lists: Lists) -> Shown | None:
    """Return a function from row numbers (n,) to whether each is visible, bool (n,); None if all rows are."""
    if mask is None:
        return None
    many = lists.postings * _DENSE > mask.rows
    return mask.to_bool().take if many else mask.contains


def lower_bound(scores: Scores, k: int) -> float:
    """Return the k-th largest score or less, of many sooner than the k-th; -infinity if there are fewer."""
    if len(scores) < k:
        return -np.inf
    groups = len(scores) // _GROUPS
    if groups > k:
        scores = scores[: groups * _GROUPS].reshape(_GROUPS, groups).max(axis=0)
    return _largest(scores, k)


def _largest(scores: Scores, k: int) -> float:
    """Return the k-th largest; 0 if there are fewer."""
    if len(scores) < k:
        return 0.0
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def ranks(scores: Scores, k: int) -> npt.NDArray[np.int64]:
    """Return the places of the k largest, the largest first; of equal ones the first. (up to k,)."""
    if k >= len(scores) or len(scores) <= _SORTED_MAX:
        return np.argsort(-scores, kind="stable")[:k]
    high = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
    order: npt.NDArray[np.int64] = high[np.argsort(-scores[high], kind="stable")][:k]
    return order
