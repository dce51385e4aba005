"""Exact search over vectors of half precision or of bytes, which stay in their stored form."""

from __future__ import annotations

import numpy as np

from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index.decoded_rows import DecodedRows, parts
from elanus.index.exact import Block
from elanus.index.float_rows import Floats, inverse_norms
from elanus.index.hits import RowIds


class NarrowRows(DecodedRows):
    """(n, dim) of a 16-bit floating type, or int8, under L2, IP or COSINE.

    ``inverse_norms``: see `elanus.index.float_rows.FloatRows`.
    """

    def __init__(self, vectors: Matrix, metric: Metric) -> None:
        super().__init__(len(vectors), vectors.shape[1], metric)
        self.stored = vectors
        self._inverse_norms = self._norms() if metric is Metric.COSINE else None

    @property
    def memory_bytes(self) -> int:
        return self.stored.nbytes + (0 if self._inverse_norms is None else self._inverse_norms.nbytes)

    def taken(self, rows: RowIds) -> Matrix:
        return self.stored[rows]

    def compared(self, block: Block) -> Floats:
        vectors: Floats = self.stored[block].astype(np.float32)
        if self._inverse_norms is not None:
            vectors *= self._inverse_norms[block][:, None]
        return vectors

    def _norms(self) -> Floats:
        norms = np.empty(len(self.stored), dtype=np.float32)
        for part in parts(len(self.stored)):
            norms[part] = inverse_norms(self.stored[part].astype(np.float32))
        return norms
