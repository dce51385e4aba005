"""Exact search over rows that are not kept as float32: each block is decoded just before its comparison.

faiss's kernels compare float32. The rows are processed in blocks that fit the processor's cache, so memory
holds only the form in which the rows are kept: half precision, bytes, codes of a quantizer, or a file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from elanus.core.metrics import Metric
from elanus.index import kernels
from elanus.index.exact import Block, ExactRows
from elanus.index.float_rows import Floats, clipped
from elanus.index.hits import Hits, RowIds, Scores
from elanus.index.masks import RowMask

BLOCK_ROWS = 2048


class DecodedRows(ExactRows):
    """Rows under L2, IP or COSINE. Queries under COSINE have unit length."""

    def __init__(self, count: int, dim: int, metric: Metric) -> None:
        super().__init__(count, 4 * dim, metric)  # decoded
        self.dim = dim
        self._inner_product = metric is not Metric.L2

    @abstractmethod
    def compared(self, block: Block) -> Floats:
        """Return the rows of a block in the form for comparison: float32, under COSINE at unit length."""

    def scores(self, query: Floats, rows: RowIds | None) -> Scores:
        count = self.count if rows is None else len(rows)
        scores = np.empty(count, dtype=np.float32)
        for part in parts(count):
            block = part if rows is None else rows[part]
            scores[part] = kernels.scores(query, self.compared(block), inner_product=self._inner_product)
        return clipped(scores, self.metric)

    def _nearest_few(self, queries: Floats, k: int, mask: RowMask | None) -> Hits:
        return self._best_of_blocks(queries, k, list(self._blocks(k, len(queries), mask)))

    def _nearest_in_block(self, queries: Floats, k: int, block: Block) -> Hits:
        distances, rows = kernels.nearest(queries, self.compared(block), k, inner_product=self._inner_product)
        return Hits(clipped(distances, self.metric), rows)


def parts(rows: int) -> Iterator[slice]:
    """Return the places of this many rows, block by block."""
    return (slice(start, min(start + BLOCK_ROWS, rows)) for start in range(0, rows, BLOCK_ROWS))
