"""Exact search over vectors of half precision or of bytes, which stay in their stored form.

faiss's kernels compare float32. The rows are processed in blocks that fit the processor's cache, and each
block is widened just before its comparison, so that memory holds only the stored form.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index import kernels
from elanus.index.exact import Block, ExactRows
from elanus.index.float_rows import Floats, clipped, inverse_norms
from elanus.index.hits import Hits, RowIds, Scores
from elanus.index.masks import RowMask

BLOCK_ROWS = 2048


class NarrowRows(ExactRows):
    """(n, dim) of a 16-bit floating type, or int8, under L2, IP or COSINE.

    Queries under COSINE have unit length. ``inverse_norms``: see `elanus.index.float_rows.FloatRows`.
    """

    def __init__(self, vectors: Matrix, metric: Metric) -> None:
        super().__init__(vectors, metric)
        self._inner_product = metric is not Metric.L2
        self._inverse_norms = self._norms() if metric is Metric.COSINE else None

    @property
    def memory_bytes(self) -> int:
        return self.stored.nbytes + (0 if self._inverse_norms is None else self._inverse_norms.nbytes)

    def scores(self, query: Floats, rows: RowIds | None) -> Scores:
        count = len(self.stored) if rows is None else len(rows)
        scores = np.empty(count, dtype=np.float32)
        for part in _parts(count):
            block = part if rows is None else rows[part]
            scores[part] = kernels.scores(query, self._widened(block), inner_product=self._inner_product)
        return clipped(scores, self.metric)

    def _nearest_few(self, queries: Floats, k: int, mask: RowMask | None) -> Hits:
        return self._best_of_blocks(queries, k, list(self._blocks(k, len(queries), mask)))

    def _nearest_in_block(self, queries: Floats, k: int, block: Block) -> Hits:
        distances, rows = kernels.nearest(queries, self._widened(block), k, inner_product=self._inner_product)
        return Hits(clipped(distances, self.metric), rows)

    def _block_row_bytes(self, queries: int) -> int:
        return super()._block_row_bytes(queries) // self.stored.itemsize * 4  # widened

    def _widened(self, block: Block) -> Floats:
        """Return the rows of a block in the form for comparison: float32, under COSINE at unit length."""
        vectors: Floats = self.stored[block].astype(np.float32)
        if self._inverse_norms is not None:
            vectors *= self._inverse_norms[block][:, None]
        return vectors

    def _norms(self) -> Floats:
        norms = np.empty(len(self.stored), dtype=np.float32)
        for part in _parts(len(self.stored)):
            norms[part] = inverse_norms(self.stored[part].astype(np.float32))
        return norms


def _parts(rows: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK_ROWS) for start in range(0, rows, BLOCK_ROWS))
