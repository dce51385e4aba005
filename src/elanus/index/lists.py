"""Indexes of lists of vectors: the vectors of all rows are one index, and offsets say which row has which.

The index proper numbers the vectors of all rows from 0; these are the *elements*. The metric of the
field's index says what is searched:

`ElementIndex`, with a metric of vectors
    Each element is a candidate of its own. Hits, and masks, are of elements.
`MaxSimIndex`, with a metric of lists (``MAX_SIM_COSINE`` …)
    A query is a list of vectors. A row's score is the sum, over the query's vectors, of the score of the
    row's best element. Hits, and masks, are of rows; a row without elements is never a hit.

An index of lists is searched in two steps, as late interaction is elsewhere: each vector of the query finds
the nearest elements, and the rows of these are scored with all their elements. With an exact kind, or few
visible elements, all rows are scored. The file is that of the index proper with one array more, `OFFSETS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.vector_lists import Offsets, is_packed, unpacked
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.files import IndexFileContent, add_arrays, write_index_file
from elanus.index.hits import Hits, RowIds, Scores, best_of, no_hits
from elanus.index.masks import Bools, RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec

OFFSETS = "lists.offsets"
"""The array of an index file with the offsets of `VectorLists`, int64."""
CANDIDATES_PER_HIT = 4
"""Elements that each vector of a query finds, per wanted row."""
CANDIDATES_MIN = 64
EXACT_ELEMENTS_MAX = 4096
"""Up to so many visible elements all rows are scored: it costs no more than the graph."""
_SCORES_MAX = 4_000_000
"""Scores of elements that are in memory at a time."""
_MASKS_KEPT = 4


class _ListIndex(VectorIndex):
    """``elements``: the index of all vectors, None if there are none. ``is_view``: of memory of others."""

    def __init__(
        self, spec: IndexSpec, elements: VectorIndex | None, offsets: Offsets, *, is_view: bool = False
    ) -> None:
        super().__init__(spec, len(offsets) - 1)
        self._elements = elements
        self._offsets = offsets
        self._lengths = np.diff(offsets)
        self._masks: tuple[tuple[RowMask | None, Bools | None, RowMask], ...] = ()
        self.is_view = is_view

    @property
    def memory_bytes(self) -> int:
        own = self._offsets.nbytes + self._lengths.nbytes
        return own + (0 if self._elements is None else self._elements.memory_bytes)

    @property
    def has_raw_vectors(self) -> bool:
        return False  # of rows: the segment's column has the lists

    @property
    def disk_bytes(self) -> int:
        return 0 if self._elements is None else self._elements.disk_bytes

    def save(self, path: Path) -> None:
        if self._elements is None:
            write_index_file(path, IndexFileContent(of_elements(self.spec), 0, None, {}))
        else:
            self._elements.save(path)
        add_arrays(path, {OFFSETS: self._offsets})

    def element_mask(self, mask: RowMask | None, chosen: Bools | None) -> RowMask:
        """Return the elements of the rows in ``mask`` (None: all) that are ``chosen`` (None: all)."""
        for rows, flags, known in self._masks:
            if rows is mask and flags is chosen:
                return known
        if mask is not None and mask.rows != self.rows:
            raise ValueError(f"a mask of {mask.rows} rows over an index of {self.rows}")
        visible = np.ones(self.rows, np.bool_) if mask is None else mask.to_bool()
        elements: Bools = np.repeat(visible, self._lengths)
        made = RowMask.from_bool(elements if chosen is None else elements & chosen)
        # Two threads may both write: each leaves entries that belong together.
        self._masks = ((mask, chosen, made), *self._masks)[:_MASKS_KEPT]
        return made

    def _rows_of(self, elements: RowIds) -> RowIds:
        rows: RowIds = np.searchsorted(self._offsets, elements, side="right") - 1
        return rows

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        return self.search(queries, k, params, mask, threads)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        raise NotImplementedError("a search within a window is one of the index of elements")

    def _reconstruct(self, rows: RowIds) -> Vectors:
        raise NotImplementedError("the segment's column has the lists")


class ElementIndex(_ListIndex):
    """Each element is a candidate of its own: rows of hits are numbers of elements."""

    def search(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None = None, threads: int = 1
    ) -> Hits:
        """As `VectorIndex.search`, of elements; ``mask`` is one of `element_mask`.

        Raises `InvalidParameter` for queries that are lists.
        """
        if is_packed(queries):
            raise InvalidParameter(
                f"a list of vectors needs an index with metric MAX_SIM_{self.spec.metric_type}, but the "
                f"field has metric {self.spec.metric_type}: search with single vectors"
            )
        if self._elements is None:
            return no_hits(len(queries), k, self.spec.metric_type)
        return self._elements.search(queries, k, params, mask, threads)

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        """As `VectorIndex.work_ns`; ``mask`` is one of `element_mask`."""
        return 0.0 if self._elements is None else self._elements.work_ns(queries, params, mask)

    @property
    def elements(self) -> int:
        """The number of elements of all rows."""
        return int(self._offsets[-1])

    def places(self, elements: RowIds) -> tuple[RowIds, RowIds]:
        """Return the rows of hits and the elements' places in these; -1 for padding. Any shape."""
        found = elements >= 0
        rows = np.where(found, self._rows_of(elements), -1)
        return rows, np.where(found, elements - self._offsets[rows], -1)


class MaxSimIndex(_ListIndex):
    """A row's score is the sum, over the query's vectors, of that of its best element."""

    def search(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None = None, threads: int = 1
    ) -> Hits:
        """As `VectorIndex.search`; ``queries``: see `elanus.core.vector_lists.packed`.

        Raises `InvalidParameter` for other queries, and for a range search.
        """
        metric = self.spec.metric_type
        if not is_packed(queries):
            raise InvalidParameter(
                f"the metric {metric} compares lists of vectors: search with an EmbeddingList, or create the "
                f"index with metric {metric.of_vectors} to search single elements"
            )
        if params.window is not None:
            raise InvalidParameter(
                f"range search is not supported with metric {metric}: leave radius and range_filter out"
            )
        hits = no_hits(len(queries), k, metric)
        elements = None if self._elements is None else self.element_mask(mask, None)
        if elements is None or not elements.count:
            return hits
        for number, query in enumerate(unpacked(self.spec.form, self.spec.dim, queries)):
            scores, rows = self._best(query, k, params, elements, threads)
            hits.distances[number, : len(rows)] = scores
            hits.rows[number, : len(rows)] = rows
        return hits

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        """As `VectorIndex.work_ns`. ``queries``: the vectors of all lists."""
        if self._elements is None:
            return 0.0
        elements = None if mask is None else self.element_mask(mask, None)
        return self._elements.work_ns(queries, params, elements)

    def _best(
        self, query: Vectors, k: int, params: SearchParams, visible: RowMask, threads: int
    ) -> tuple[Scores, RowIds]:
        """Return the k best rows for one list, best first; ``visible``: elements, at least one."""
        rows = self._candidates(query, k, params, visible, threads)
        scores = self._scores(query, rows)
        best, order = best_of(scores, min(k, len(rows)), self.spec.metric_type)
        return best, rows[order]

    def _candidates(
        self, query: Vectors, k: int, params: SearchParams, visible: RowMask, threads: int
    ) -> RowIds:
        """Return the rows to score, ascending: all visible ones, or those of the elements nearest to the
        query."""
        assert self._elements is not None
        depth = max(CANDIDATES_PER_HIT * k, CANDIDATES_MIN)
        exact = self._elements.spec.kind.over_rows is not None
        while not exact and visible.count > max(EXACT_ELEMENTS_MAX, 2 * depth):
            found = self._elements.search(query, depth, params, visible, threads).rows
            rows = np.unique(self._rows_of(found[found >= 0]))
            if len(rows) >= k:
                return rows
            depth *= 4
        return np.unique(self._rows_of(visible.row_ids))

    def _scores(self, query: Vectors, rows: RowIds) -> Scores:
        """Return the scores of these rows, which all have elements, for one list. (rows,)"""
        sizes = self._lengths[rows]
        ends = np.cumsum(sizes)
        step = max(1, _SCORES_MAX // max(1, len(query)))
        scores = np.empty(len(rows), dtype=np.float32)
        start = 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + step, side="right")))
            scores[start:stop] = self._scores_of_some(query, rows[start:stop], sizes[start:stop])
            start = stop
        return scores

    def _scores_of_some(self, query: Vectors, rows: RowIds, sizes: RowIds) -> Scores:
        assert self._elements is not None
        starts = np.cumsum(sizes) - sizes
        elements = np.arange(int(sizes.sum())) + np.repeat(self._offsets[rows] - starts, sizes)
        found = self._elements.scores_of(query, elements)
        best: Callable[..., npt.NDArray[Any]] = (
            np.maximum.reduceat if self.spec.metric_type.bigger_is_better else np.minimum.reduceat
        )
        of_rows: Scores = best(found, starts, axis=1).sum(axis=0, dtype=np.float64).astype(np.float32)
        return of_rows


def of_elements(spec: IndexSpec) -> IndexSpec:
    """Return the spec of the index over all vectors."""
    return spec if spec.metric is None else replace(spec, metric=spec.metric.of_vectors)


def list_index(
    spec: IndexSpec, elements: VectorIndex | None, offsets: Offsets, *, is_view: bool = False
) -> _ListIndex:
    """Return the index of lists that the spec's metric asks for."""
    kind = MaxSimIndex if spec.metric_type.compares_lists else ElementIndex
    return kind(spec, elements, offsets, is_view=is_view)


def offsets_in(content: IndexFileContent) -> Offsets | None:
    """Return the offsets of an index file of lists; None for other files."""
    if OFFSETS not in content.arrays:
        return None
    return np.array(content.arrays[OFFSETS], dtype=np.int64)
