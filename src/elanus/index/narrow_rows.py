"""Exact search over vectors of half precision or of bytes, which stay in their stored form."""

from __future__ import annotations

import numpy as np

from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index import kernels
from elanus.index.decoded_rows import DecodedRows, parts
from elanus.index.exact import Block
from elanus.index.float_rows import Floats, clipped, scaled_rows
from elanus.index.hits import Hits, RowIds, Scores, best_of


class NarrowRows(DecodedRows):
    """(n, dim) of a 16-bit floating type, or int8, under L2, IP or COSINE.

    faiss decodes halves in registers while it compares them, much faster than numpy makes floats of them.
    Bytes become floats first.

    ``inverse_norms``: see `elanus.index.float_rows.FloatRows`.
    """

    def __init__(self, vectors: Matrix, metric: Metric) -> None:
        super().__init__(len(vectors), vectors.shape[1], metric)
        self.stored = vectors
        self._are_halves = vectors.dtype.name in kernels.HALVES
        self._compared = vectors
        self._inverse_norms: Floats | None = None
        if metric is Metric.COSINE:
            self._compared, self._inverse_norms = scaled_rows(vectors)

    @property
    def memory_bytes(self) -> int:
        copied = 0 if self._compared is self.stored else self._compared.nbytes
        return (
            self.stored.nbytes + copied + (0 if self._inverse_norms is None else self._inverse_norms.nbytes)
        )

    def taken(self, rows: RowIds) -> Matrix:
        return self.stored[rows]

    def compared(self, block: Block) -> Floats:
        vectors: Floats = self._compared[block].astype(np.float32)
        if self._inverse_norms is not None:
            vectors *= self._inverse_norms[block][:, None]
        return vectors

    def scores(self, query: Floats, rows: RowIds | None) -> Scores:
        if not self._are_halves:
            return super().scores(query, rows)
        count = self.count if rows is None else len(rows)
        scores = np.empty(count, dtype=np.float32)
        for part in parts(count):
            scores[part] = self._scores_in(query, part if rows is None else rows[part])
        return clipped(scores, self.metric)

    def _nearest_in_block(self, queries: Floats, k: int, block: Block) -> Hits:
        if not self._are_halves:
            return super()._nearest_in_block(queries, k, block)
        if self._inverse_norms is None:
            vectors = self._compared[block]
            found = kernels.nearest_halves(queries, vectors, k, inner_product=self._inner_product)
            if (found[1] >= 0).all():
                return Hits(*found)
        best = [best_of(self._scores_in(query, block), k, self.metric) for query in queries]
        distances, rows = (np.stack(parts) for parts in zip(*best, strict=True))
        return Hits(clipped(distances, self.metric), rows)

    def _scores_in(self, query: Floats, block: Block) -> Scores:
        found = kernels.scores_of_halves(query, self._compared[block], inner_product=self._inner_product)
        if self._inverse_norms is not None:
            found *= self._inverse_norms[block]
        return found
