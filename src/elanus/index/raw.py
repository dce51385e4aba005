"""Brute force over an array: growing chunks, small segments, and the FLAT and BIN_FLAT indexes.

Holds the caller's array, not a copy: for a growing chunk that is Arrow's own memory. Every answer is
exact, and parameters of approximate indexes have no effect.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.binary_rows import BinaryRows
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.float_rows import FloatRows
from elanus.index.hits import Hits, RowIds, no_hits
from elanus.index.masks import RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec


class RawVectors(VectorIndex):
    """Exact search over ``vectors``: float32 (n, dim), or uint8 (n, dim / 8) for binary metrics.

    ``spec`` gives metric and dimension (`elanus.index.brute_force` makes one without an index).
    """

    def __init__(self, spec: IndexSpec, vectors: Vectors) -> None:
        super().__init__(spec, len(vectors))
        self._exact: FloatRows | BinaryRows
        if spec.metric_type.is_binary:
            self._exact = BinaryRows(np.ascontiguousarray(vectors, dtype=np.uint8), spec.metric_type)
        else:
            self._exact = FloatRows.raw(np.ascontiguousarray(vectors, dtype=np.float32), spec.metric_type)

    @property
    def memory_bytes(self) -> int:
        return self._exact.memory_bytes

    @property
    def has_raw_vectors(self) -> bool:
        return True

    def search_rows_exact(self, queries: Queries, k: int, rows: RowIds) -> Hits:
        """The k best among these rows only: for a caller that already knows the few that matter."""
        queries = self._checked(queries)
        depth = min(k, len(rows))
        if depth == 0:
            return no_hits(len(queries), k, self.spec.metric_type)
        wanted = np.ascontiguousarray(rows, dtype=np.int64)
        return self._exact.nearest_of(queries, depth, wanted).padded(k, self.spec.metric_type)

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, {"vectors": self._exact.stored}))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> RawVectors:
        return cls(spec, content.arrays["vectors"])

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        return self._exact.nearest(queries, k, mask, threads)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._exact.within(queries, k, window, mask)

    def _reconstruct(self, rows: RowIds) -> Vectors:
        vectors: Vectors = self._exact.stored[rows]
        return vectors
