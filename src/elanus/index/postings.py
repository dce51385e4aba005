"""Inverted lists: for each term the rows that have it, and what a query's terms add up to.

The index over them is `elanus.index.sparse`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.sparse import NO_INDEX, PAIR, Pairs, SparseRows, indices_of, values_of
from elanus.index.bm25 import Bm25
from elanus.index.hits import RowIds, Scores
from elanus.index.masks import RowMask

FEW_POSTINGS = 40
"""Sorting the rows of some postings costs as much as looking at this many times as many scores."""

Terms = npt.NDArray[np.uint32]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Query:
    """One query vector: ``terms`` ascending, ``weights`` not zero. Both (m,)."""

    terms: Terms
    weights: Weights

    @classmethod
    def of(cls, pairs: Pairs) -> Query:
        """From a row of a matrix of queries (`elanus.core.sparse.padded`)."""
        terms, weights = indices_of(pairs), values_of(pairs)
        present = (terms != NO_INDEX) & (weights != 0)
        return cls(terms[present], weights[present])

    def pruned(self, drop_ratio: float) -> Query:
        """Without its smallest values, about this share of them."""
        sizes = np.abs(self.weights)
        count = int(drop_ratio * len(sizes))
        if count == 0:
            return self
        kept = sizes >= np.partition(sizes, count)[count]
        return Query(self.terms[kept], self.weights[kept])


@dataclass(frozen=True, slots=True)
class Postings:
    """The rows of each term. ``terms``: (t,), ascending. Those of term i are ``starts[i]:starts[i + 1]`` of
    ``rows``, ascending, and ``weights``.
    """

    terms: Terms
    starts: RowIds
    rows: npt.NDArray[np.uint32]
    weights: Weights

    @classmethod
    def of(cls, vectors: SparseRows, drop_ratio: float = 0.0) -> Postings:
        """Sorts the pairs by their index, as numbers whose lower half is the pair's place."""
        indices, values = vectors.indices, vectors.values
        places = np.flatnonzero(_kept(values, drop_ratio))
        keys = np.sort(indices[places].astype(PAIR) << np.uint64(32) | places.astype(PAIR))
        order = (keys & np.uint64(NO_INDEX)).astype(np.int64)
        sorted_terms = (keys >> np.uint64(32)).astype(np.uint32)
        firsts = np.flatnonzero(np.diff(sorted_terms, prepend=np.uint32(NO_INDEX)))
        return cls(
            sorted_terms[firsts],
            np.append(firsts, len(keys)),
            vectors.row_of.astype(np.uint32)[order],
            values[order],
        )

    @property
    def memory_bytes(self) -> int:
        return self.terms.nbytes + self.starts.nbytes + self.rows.nbytes + self.weights.nbytes

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"terms": self.terms, "starts": self.starts, "rows": self.rows, "weights": self.weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Postings:
        return cls(arrays["terms"], arrays["starts"], arrays["rows"], arrays["weights"])

    def add(self, query: Query, scores: Scores, bm25: Bm25 | None) -> RowIds:
        """Write to ``scores``, zeros (rows,), the product of the query with each row, or its BM25 score.

        Return the rows that have one, ascending. They are found among the query's postings if these are few.
        """
        matching = self._matching(query)
        for begin, end, weight in matching:
            rows, weights = self.rows[begin:end].astype(np.intp), self.weights[begin:end]
            scores[rows] += weights * weight if bm25 is None else bm25.scores(rows, weights, weight)
        if FEW_POSTINGS * sum(end - begin for begin, end, _ in matching) >= len(scores):
            return np.flatnonzero(scores != 0)
        parts = [self.rows[begin:end] for begin, end, _ in matching]
        met: RowIds = np.sort(np.concatenate([*parts, np.empty(0, dtype=np.uint32)])).astype(np.int64)
        met = met[np.diff(met, prepend=-1) != 0]
        scored: RowIds = met[scores[met] != 0]
        return scored

    def scores_of(self, query: Query, rows: RowIds, bm25: Bm25 | None) -> Scores:
        """The scores of these rows, ascending; bit for bit those of `add`. (m,)."""
        scores = np.zeros(len(rows), dtype=np.float32)
        wanted = rows.astype(np.uint32)
        for begin, end, weight in self._matching(query):
            places = begin + np.searchsorted(self.rows[begin:end], wanted)
            held = places < end
            held[held] = self.rows[places[held]] == wanted[held]
            weights = self.weights[places[held]]
            scores[held] += weights * weight if bm25 is None else bm25.scores(rows[held], weights, weight)
        return scores

    def having(self, terms: Terms, mask: RowMask | None) -> npt.NDArray[np.int64]:
        """Return how many visible rows have each of the terms, which are ascending. int64 (terms,)."""
        counts = np.zeros(len(terms), dtype=np.int64)
        places = Query(terms, np.arange(len(terms), dtype=np.float32))
        for begin, end, place in self._matching(places):
            rows = self.rows[begin:end]
            count = end - begin if mask is None else np.count_nonzero(mask.contains(rows.astype(np.int64)))
            counts[int(place)] = count
        return counts

    def lengths(self, rows: int) -> Weights:
        """Return the sum of each row's values. (rows,)."""
        return np.bincount(self.rows, self.weights, minlength=rows).astype(np.float32)

    def _matching(self, query: Query) -> list[tuple[int, int, np.float32]]:
        """The postings of the query's terms, with its weights."""
        if not len(self.terms):
            return []
        places = np.minimum(np.searchsorted(self.terms, query.terms), len(self.terms) - 1)
        found = self.terms[places] == query.terms
        places = places[found]
        begins, ends = self.starts[places].tolist(), self.starts[places + 1].tolist()
        return list(zip(begins, ends, query.weights[found], strict=True))


def _kept(values: Weights, drop_ratio: float) -> npt.NDArray[np.bool_]:
    count = int(drop_ratio * len(values))
    kept: npt.NDArray[np.bool_] = values != 0
    if count:
        kept &= values >= np.partition(values, count)[count]
    return kept
