"""Brute force over an array: growing chunks, small segments, and the FLAT and BIN_FLAT indexes.

The index holds the caller's array, not a copy: for a growing chunk that is Arrow's own memory. Every answer
is exact, and parameters of approximate indexes have no effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elanus.core.metrics import Metric
from elanus.core.types import DataType, Space, VectorForm, vectors_in
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.binary_rows import BinaryRows
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.float_rows import FloatRows
from elanus.index.hits import Hits, RowIds, Scores
from elanus.index.masks import RowMask
from elanus.index.minhash_rows import minhash_rows
from elanus.index.narrow_rows import NarrowRows
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexKind, IndexSpec, Progress


class RawVectors(VectorIndex):
    """Exact search over ``vectors`` (n, width) in their stored form.

    ``spec`` gives metric and dimension (`elanus.index.brute_force` makes a spec for rows without an index).
    """

    def __init__(self, spec: IndexSpec, vectors: Vectors) -> None:
        super().__init__(spec, len(vectors))
        if spec.metric is Metric.MHJACCARD:
            self._exact: FloatRows | NarrowRows | BinaryRows = minhash_rows(spec, vectors)
        else:
            self._exact = exact_rows(spec.form, vectors, spec.metric_type)

    @property
    def memory_bytes(self) -> int:
        return self._exact.memory_bytes

    @property
    def has_raw_vectors(self) -> bool:
        return True

    def scores_of(self, queries: Queries, rows: RowIds) -> Scores:
        """As `VectorIndex.scores_of`, without a search."""
        wanted = None if len(rows) == self.rows else np.ascontiguousarray(rows, dtype=np.int64)
        return np.stack([self._exact.scores(query, wanted) for query in self._checked(queries)])

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        return self._exact.work_ns(queries, mask)

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, {"vectors": self._exact.stored}))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> RawVectors:
        return cls(spec, content.arrays["vectors"].view(spec.form.dtype))

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        return self._exact.nearest(queries, k, mask, threads)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._exact.within(queries, k, window, mask)

    def _reconstruct(self, rows: RowIds) -> Vectors:
        return self._exact.taken(rows)


def exact_rows(form: VectorForm, vectors: Vectors, metric: Metric) -> FloatRows | NarrowRows | BinaryRows:
    """Rows for exact comparison, used in place if their stored form is the form for comparison."""
    if form.space is Space.BITS:
        return BinaryRows(form.compared(vectors), metric)
    if form.is_compared_as_stored:
        return FloatRows.raw(form.compared(vectors), metric)
    return NarrowRows(np.ascontiguousarray(vectors, dtype=form.dtype), metric)


def _build(spec: IndexSpec, vectors: Any, progress: Progress) -> RawVectors:
    return RawVectors(spec, vectors)


FLAT = IndexKind(
    "FLAT",
    vectors_in(Space.FLOATS),
    _build,
    RawVectors.from_file,
    over_rows=RawVectors,
    withheld_from=frozenset({DataType.INT8_VECTOR}),
)
BIN_FLAT = IndexKind(
    "BIN_FLAT",
    vectors_in(Space.BITS),
    _build,
    RawVectors.from_file,
    over_rows=RawVectors,
    is_automatic=True,
    metrics=(Metric.HAMMING, Metric.JACCARD, Metric.SUBSTRUCTURE, Metric.SUPERSTRUCTURE),
)
