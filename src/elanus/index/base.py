"""What every vector index offers, and what they share: checks, padding, range search.

An index answers over the rows of one segment, numbered from 0 in the order they were built from. It is
immutable once built or loaded, so any number of threads may search it at once; the work is done in faiss
and numpy with the interpreter lock released.

What a subclass owes is two questions: the k nearest visible rows (`_nearest`), and the k nearest visible
rows within a window of scores (`_within`). Neither may return fewer hits than there are: where an
approximate way finds too few, the subclass falls back to an exact one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elanus.core.errors import Internal, InvalidDimension
from elanus.core.metrics import Metric
from elanus.index.hits import NO_ROW, Hits, RowIds, no_hits
from elanus.index.masks import RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec
from elanus.index.unit import unit

Queries = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
Vectors = npt.NDArray[np.float32] | npt.NDArray[np.uint8]


class VectorIndex(ABC):
    """Vectors of one segment that can be searched. ``rows``: how many."""

    def __init__(self, spec: IndexSpec, rows: int) -> None:
        self.spec = spec
        self.rows = rows

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes of vectors, graph and tables, in memory or mapped."""

    @property
    @abstractmethod
    def has_raw_vectors(self) -> bool:
        """Whether `reconstruct` gives back exactly what was built from."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the index to one file, which `elanus.index.load` reads."""

    def search(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None = None, threads: int = 1
    ) -> Hits:
        """The k best visible rows for each query; with a radius in ``params``, those within it.

        ``queries``: float32 (nq, dim), or uint8 (nq, dim / 8) for binary vectors. Returns k columns,
        padded where fewer rows are visible (or in range). ``mask`` None: all rows are visible.
        ``threads``: cores that a large batch may use. Raises `InvalidDimension`.
        """
        queries = self._checked(queries)
        if mask is not None and mask.rows != self.rows:
            raise ValueError(f"a mask of {mask.rows} rows over an index of {self.rows}")
        visible = self.rows if mask is None else mask.count
        if visible == self.rows:
            mask = None
        depth = min(k, visible)
        if depth == 0 or len(queries) == 0:
            return no_hits(len(queries), k, self.spec.metric_type)
        if params.window is None:
            hits = self._nearest(queries, depth, params, mask, threads)
        else:
            hits = self._in_range(queries, depth, params, mask, threads, params.window)
        return hits.padded(k, self.spec.metric_type)

    def range_search(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None = None, threads: int = 1
    ) -> Hits:
        """The k best visible rows between ``radius`` and ``range_filter`` of ``params``."""
        if params.window is None:
            raise ValueError("a range search needs a radius")
        return self.search(queries, k, params, mask, threads)

    def reconstruct(self, rows: RowIds) -> Vectors:
        """The vectors of these rows as they were built from: float32 (m, dim), or uint8 (m, dim / 8).

        Raises `Internal` where the index does not hold them (`has_raw_vectors`).
        """
        if not self.has_raw_vectors:
            raise Internal(f"an index of type {self.spec.index_type} does not hold its vectors")
        return self._reconstruct(np.ascontiguousarray(rows, dtype=np.int64))

    @abstractmethod
    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        """k columns, no padding: 1 ≤ k ≤ visible rows. ``queries`` are checked (unit length for COSINE)."""

    @abstractmethod
    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        """k columns: the best visible rows whose score lies in the window, padded; exact."""

    @abstractmethod
    def _reconstruct(self, rows: RowIds) -> Vectors: ...

    def _checked(self, queries: Queries) -> Queries:
        binary = self.spec.metric_type.is_binary
        width = self.spec.dim // 8 if binary else self.spec.dim
        if queries.ndim != 2 or queries.shape[1] != width:
            raise InvalidDimension(
                f"vector dimension mismatch, expected vector size(byte) {self.spec.row_bytes}, "
                f"actual {queries.nbytes // max(1, len(queries))}"
            )
        if binary:
            return np.ascontiguousarray(queries, dtype=np.uint8)
        floats = np.ascontiguousarray(queries, dtype=np.float32)
        return unit(floats) if self.spec.metric_type is Metric.COSINE else floats

    def _in_range(
        self,
        queries: Queries,
        depth: int,
        params: SearchParams,
        mask: RowMask | None,
        threads: int,
        window: Window,
    ) -> Hits:
        """Range search as a search that is cut off at the radius.

        The k nearest rows hold the k nearest within the radius. Only where ``range_filter`` hides some
        of them, and the radius lies further out than the last, must more rows be looked at.
        """
        found = self._nearest(queries, depth, params, mask, threads)
        inside = window.holds(found.distances)
        hits = _compacted(found, inside, self.spec.metric_type)
        visible = self.rows if mask is None else mask.count
        if window.range_filter is not None and depth < visible:
            open_ended = ~window.beyond(found.distances[:, -1]) & ~inside.all(axis=1)
            if open_ended.any():
                rest = self._within(queries[open_ended], depth, window, mask)
                hits.distances[open_ended] = rest.distances
                hits.rows[open_ended] = rest.rows
        return hits


def _compacted(hits: Hits, keep: npt.NDArray[np.bool_], metric: Metric) -> Hits:
    """The kept hits of each query moved to the front in their order, the rest padding."""
    order = np.argsort(~keep, axis=1, kind="stable")
    kept = np.take_along_axis(keep, order, axis=1)
    return Hits(
        np.where(kept, np.take_along_axis(hits.distances, order, axis=1), np.float32(metric.worst_score)),
        np.where(kept, np.take_along_axis(hits.rows, order, axis=1), NO_ROW),
    )
