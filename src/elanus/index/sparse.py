"""Sparse vectors: an inverted index under the inner product, exact unless the client drops values.

For each term (an index that occurs) the index holds the rows that have it, and their values. A score is the
sum of the products term by term, in the order of the terms, in float32. A search finds the rows with the best
scores by MaxScore (`elanus.index.best_rows`), which leaves out postings that cannot matter. All names of the
reference's algorithms are accepted; they change no result.

A row without a term in common with the query is no hit, as in the reference. The order of additions is the
same over growing rows and in a built index, so a row's score does not change when its segment is indexed.

``drop_ratio_build`` leaves the smallest values out of the index, and scores are then those of what is left.
``drop_ratio_search`` leaves the query's smallest values out when candidates are chosen, ten for each hit;
their scores are computed with the whole query.

Under BM25 the values are the occurrences of terms in texts, and a search adds up `elanus.index.bm25` instead
of products. Nothing is dropped then when the index is built.

Eight bytes for each value. An index does not hold vectors row by row: they are read from the segment's files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from elanus.core.errors import InvalidDimension
from elanus.core.metrics import Metric
from elanus.core.sparse import PAIR, SparseRows
from elanus.core.term_statistics import TermStatistics
from elanus.core.trail import current
from elanus.core.types import Space, vectors_in
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.best_rows import Searched, ranks
from elanus.index.bm25 import AVERAGE_KEY, B_KEY, K1_KEY, PARAMS, Bm25, TextLengths
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.hits import Hits, RowIds, Scores, no_hits, stacked
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out, shares_of
from elanus.index.postings import Postings, Query, Terms
from elanus.index.scratch import SCRATCH
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import ChoiceParam, IndexKind, IndexSpec, Progress, RatioParam
from elanus.index.term_bounds import TermBounds

ALGORITHMS = ("TAAT_NAIVE", "DAAT_WAND", "DAAT_MAXSCORE", "DAAT_BLOCKMAX_WAND", "DAAT_BLOCKMAX_MAXSCORE")
DROP_BUILD_KEY = "drop_ratio_build"
DROP_SEARCH_KEY = "drop_ratio_search"
ALGORITHM_KEY = "inverted_index_algo"
CANDIDATES_PER_HIT = 10


class TermIndex(VectorIndex):
    """Searches postings. A subclass provides them."""

    def __init__(self, spec: IndexSpec, rows: int) -> None:
        super().__init__(spec, rows)
        self._made_lengths: TextLengths | None = None
        self._made_bounds: TermBounds | None = None

    @property
    @abstractmethod
    def _postings(self) -> Postings: ...

    def _checked(self, queries: Queries) -> Queries:
        if queries.ndim != 2 or queries.dtype != PAIR:
            raise InvalidDimension(f"query vectors of type {queries.dtype} on a field of sparse vectors")
        return queries

    @property
    def _lengths(self) -> TextLengths:
        """Made for the first search. Two threads may both make them."""
        made = self._made_lengths
        if made is None:
            made = self._made_lengths = TextLengths(self._postings.lengths(self.rows))
        return made

    @property
    def _bounds(self) -> TermBounds:
        """Made for the first search. Two threads may both make them."""
        made = self._made_bounds
        if made is None:
            made = self._made_bounds = TermBounds(len(self._postings.terms), self._postings.weights)
        return made

    def statistics(self, terms: Terms, mask: RowMask | None) -> TermStatistics:
        """Return the statistics of the visible rows. ``terms``: ascending."""
        visible = self.rows if mask is None else mask.count
        if visible == self.rows:
            mask = None
        return TermStatistics(visible, self._lengths.visible(mask), self._postings.having(terms, mask))

    def _bm25(self, params: SearchParams) -> Bm25 | None:
        if self.spec.metric_type is not Metric.BM25:
            return None
        k1, b = (params.ratio(key, PARAMS[key].default) for key in (K1_KEY, B_KEY))
        return Bm25(self._lengths.of_rows, k1, b, params.ratio(AVERAGE_KEY, 1.0))

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        bm25 = self._bm25(params)
        drop_ratio = params.ratio(DROP_SEARCH_KEY, 0.0)

        def find(share: Queries) -> Hits:
            hits = no_hits(len(share), k, self.spec.metric_type)
            with self._searched(mask, bm25) as searched:
                for i, pairs in enumerate(share):
                    rows, found = _best(searched, Query.of(pairs), k, drop_ratio)
                    hits.distances[i, : len(rows)] = found
                    hits.rows[i, : len(rows)] = rows
            return hits

        trail = current()
        if trail is not None:
            visible = self.rows if mask is None else mask.count
            trail.method("terms", visible * len(queries), is_estimate=True, drop_ratio=drop_ratio)
        return stacked(fan_out(find, shares_of(queries, threads)))

    @contextmanager
    def _searched(self, mask: RowMask | None, bm25: Bm25 | None) -> Iterator[Searched]:
        with SCRATCH.zeros(self.rows) as scores:
            yield Searched(self._postings, self._bounds, mask, bm25, scores)

    def _in_range(
        self,
        queries: Queries,
        depth: int,
        params: SearchParams,
        mask: RowMask | None,
        threads: int,
        window: Window,
    ) -> Hits:
        bm25 = self._bm25(params)
        if bm25 is None:
            return super()._in_range(queries, depth, params, mask, threads, window)
        return self._inside(queries, depth, window, mask, bm25)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._inside(queries, k, window, mask, None)

    def _inside(
        self, queries: Queries, k: int, window: Window, mask: RowMask | None, bm25: Bm25 | None
    ) -> Hits:
        hits = no_hits(len(queries), k, self.spec.metric_type)
        with self._searched(mask, bm25) as searched:
            for i, pairs in enumerate(queries):
                rows, found = searched.all(Query.of(pairs))
                inside = np.flatnonzero(window.holds(found))
                best = inside[ranks(found[inside], k)]
                hits.distances[i, : len(best)] = found[best]
                hits.rows[i, : len(best)] = rows[best]
        return hits


class SparseIndex(TermIndex):
    """A built index."""

    def __init__(self, spec: IndexSpec, rows: int, postings: Postings) -> None:
        super().__init__(spec, rows)
        self._built = postings

    @property
    def _postings(self) -> Postings:
        return self._built

    @property
    def memory_bytes(self) -> int:
        return self._built.memory_bytes

    @property
    def has_raw_vectors(self) -> bool:
        return False

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, self._built.arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> SparseIndex:
        return cls(spec, content.rows, Postings.from_arrays(content.arrays))

    def _reconstruct(self, rows: RowIds) -> Vectors:
        raise NotImplementedError("a sparse index does not hold its vectors")


class RawSparse(TermIndex):
    """Rows without an index: growing blocks, small segments. Holds the caller's rows, not a copy.

    Postings are made for the first search, 25 ms for a million values. Two threads may both make them.
    """

    def __init__(self, spec: IndexSpec, vectors: SparseRows) -> None:
        super().__init__(spec, len(vectors))
        self._vectors = vectors
        self._made: Postings | None = None

    @property
    def _postings(self) -> Postings:
        made = self._made
        if made is None:
            made = self._made = Postings.of(self._vectors)
        return made

    @property
    def memory_bytes(self) -> int:
        return self._vectors.nbytes + (0 if self._made is None else self._made.memory_bytes)

    @property
    def has_raw_vectors(self) -> bool:
        return True

    def save(self, path: Path) -> None:
        SparseIndex(self.spec, self.rows, self._postings).save(path)

    def reconstruct(self, rows: RowIds) -> Any:
        return self._vectors[rows]

    def _reconstruct(self, rows: RowIds) -> Any:
        return self._vectors[rows]


def _best(searched: Searched, query: Query, k: int, drop_ratio: float) -> tuple[RowIds, Scores]:
    """Return the best rows of a query, chosen without its smallest values."""
    pruned = query.pruned(drop_ratio)
    if len(pruned.terms) == len(query.terms):
        return searched.best(query, k)
    rows, _ = searched.best(pruned, k * CANDIDATES_PER_HIT)
    if len(rows) < k:
        return searched.best(query, k)
    rows = np.sort(rows)
    found = searched.postings.scores_of(query, rows, searched.bm25)
    best = ranks(found, k)
    return rows[best], found[best]


def _build(spec: IndexSpec, vectors: Any, progress: Progress) -> SparseIndex:
    drop_ratio = 0.0 if spec.metric is Metric.BM25 else spec.params[DROP_BUILD_KEY]
    return SparseIndex(spec, len(vectors), Postings.of(vectors, drop_ratio))


def _kind(name: str, *, is_automatic: bool = False) -> IndexKind:
    return IndexKind(
        name,
        vectors_in(Space.SPARSE),
        _build,
        SparseIndex.from_file,
        build_params={
            DROP_BUILD_KEY: RatioParam(0.0),
            ALGORITHM_KEY: ChoiceParam("sparse inverted index algo", ALGORITHMS, "DAAT_MAXSCORE"),
            **PARAMS,
        },
        search_params={DROP_SEARCH_KEY: RatioParam(0.0), **PARAMS},
        over_rows=RawSparse,
        is_automatic=is_automatic,
    )


SPARSE_INVERTED_INDEX = _kind("SPARSE_INVERTED_INDEX", is_automatic=True)
SPARSE_WAND = _kind("SPARSE_WAND")
