"""Inverted lists: for each term the rows that have it, and what a query's terms add up to.

The index over them is `elanus.index.sparse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

_TOGETHER = 16_384
"""Postings of several terms that are added in one call: less than the call itself takes for each term."""
_CHUNK = 1 << 20

Terms = npt.NDArray[np.uint32]
Shown = Callable[[RowIds], npt.NDArray[np.bool_]]
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
class Lists:
    """Where the postings of some terms are. All (m,): ``terms``, the places of the terms; ``begins`` and
    ``ends``, those of the postings; ``weights``, those of the query.
    """

    terms: RowIds
    begins: RowIds
    ends: RowIds
    weights: Weights

    @property
    def sizes(self) -> RowIds:
        return self.ends - self.begins

    @property
    def postings(self) -> int:
        return int(self.sizes.sum())

    def __getitem__(self, chosen: slice | RowIds) -> Lists:
        return Lists(self.terms[chosen], self.begins[chosen], self.ends[chosen], self.weights[chosen])

    def parts(self) -> Iterator[Lists]:
        """In their order, as many at once as are short together, and at least one."""
        first, size = 0, 0
        for n, of_term in enumerate(self.sizes.tolist()):
            if n > first and size + of_term > _TOGETHER:
                yield self[first:n]
                first, size = n, 0
            size += of_term
        if first < len(self.terms):
            yield self[first:]


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
        lists = self.lists(query)
        parts = [self.walk(part, scores, bm25, None) for part in lists.parts()]
        if FEW_POSTINGS * lists.postings >= len(scores):
            return np.flatnonzero(scores != 0)
        met = distinct(np.concatenate([*parts, np.empty(0, dtype=np.int64)]))
        scored: RowIds = met[scores[met] != 0]
        return scored

    def walk(self, lists: Lists, scores: Scores, bm25: Bm25 | None, shown: Shown | None) -> RowIds:
        """Add what these terms add to the scores of their rows, in the order of the lists. Return the rows of
        the postings, each as often as it was met.

        ``shown``: says which rows may be met; None: all.
        """
        spans = [slice(begin, end) for begin, end in zip(lists.begins, lists.ends, strict=True)]
        if len(spans) == 1:
            rows, held, weights = self.rows[spans[0]], self.weights[spans[0]], lists.weights[0]
        else:
            rows = np.concatenate([self.rows[span] for span in spans])
            held = np.concatenate([self.weights[span] for span in spans])
            weights = np.repeat(lists.weights, lists.sizes)
        met: RowIds = rows.astype(np.int64)
        if shown is not None:
            chosen = np.flatnonzero(shown(met))
            met, held = met[chosen], held[chosen]
            weights = weights if len(spans) == 1 else weights[chosen]
        # As fast as adding to distinct places, and in the order of the lists where a row is met again.
        np.add.at(scores, met, held * weights if bm25 is None else bm25.scores(met, held, weights))
        return met

    def scores_of(self, query: Query, rows: RowIds, bm25: Bm25 | None) -> Scores:
        """Return the scores of these rows, ascending; bit for bit those of `add`. (m,)."""
        scores = np.zeros(len(rows), dtype=np.float32)
        lists = self.lists(query)
        for begin, end, weight in zip(lists.begins, lists.ends, lists.weights, strict=True):
            self.look_up(begin, end, weight, rows, scores, bm25)
        return scores

    def look_up(
        self, begin: int, end: int, weight: np.float32, rows: RowIds, scores: Scores, bm25: Bm25 | None
    ) -> None:
        """Add what the postings from ``begin`` to ``end`` add to the scores of these rows. Both (m,), the
        rows ascending."""
        wanted = rows.astype(np.uint32)
        places = begin + np.searchsorted(self.rows[begin:end], wanted)
        held = np.flatnonzero(self.rows[np.minimum(places, end - 1)] == wanted)
        weights = self.weights[places[held]]
        scores[held] += weights * weight if bm25 is None else bm25.scores(rows[held], weights, weight)

    def having(self, terms: Terms, mask: RowMask | None) -> npt.NDArray[np.int64]:
        """Return how many visible rows have each of the terms, which are ascending. int64 (terms,)."""
        counts = np.zeros(len(terms), dtype=np.int64)
        lists = self.lists(Query(terms, np.arange(len(terms), dtype=np.float32)))
        for begin, end, place in zip(lists.begins, lists.ends, lists.weights, strict=True):
            rows = self.rows[begin:end]
            count = end - begin if mask is None else np.count_nonzero(mask.contains(rows.astype(np.int64)))
            counts[int(place)] = count
        return counts

    def lengths(self, rows: int) -> Weights:
        """Return the sum of each row's values, of which BM25 has whole numbers. (rows,)."""
        lengths = np.zeros(rows, dtype=np.float32)
        for begin in range(0, len(self.rows), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            np.add.at(lengths, self.rows[part].astype(np.int64), self.weights[part])
        return lengths

    def lists(self, query: Query) -> Lists:
        """Return the postings of the query's terms, with its weights, in the order of the terms."""
        if not len(self.terms):
            none = np.empty(0, dtype=np.int64)
            return Lists(none, none, none, query.weights[:0])
        places = np.minimum(np.searchsorted(self.terms, query.terms), len(self.terms) - 1)
        found = self.terms[places] == query.terms
        places = places[found]
        return Lists(places, self.starts[places], self.starts[places + 1], query.weights[found])


def distinct(rows: RowIds) -> RowIds:
    """Return the rows in ascending order without repetitions. Faster than ``np.unique``, which hashes."""
    ordered = np.sort(rows)
    return np.concatenate((ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]))


def _kept(values: Weights, drop_ratio: float) -> npt.NDArray[np.bool_]:
    count = int(drop_ratio * len(values))
    kept: npt.NDArray[np.bool_] = values != 0
    if count:
        kept &= values >= np.partition(values, count)[count]
    return kept
