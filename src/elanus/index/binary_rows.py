"""Exact search over bit vectors: HAMMING, JACCARD, SUBSTRUCTURE and SUPERSTRUCTURE.

One kernel serves all. With h differing bits between a and b, and |a|, |b| bits set, the union has
(|a| + |b| + h) / 2 bits and the intersection (|a| + |b| - h) / 2, so the Jaccard distance is
2h / (|a| + |b| + h). Two zero vectors have distance 1, as in the reference. All bits of a are in b if the
intersection has |a| bits, which is |a| + h = |b|. Rows that do not match have an infinite distance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.index import kernels
from elanus.index.exact import Block, ExactRows
from elanus.index.hits import Hits, RowIds, Scores, best_columns
from elanus.index.masks import RowMask

Codes = npt.NDArray[np.uint8]


class BinaryRows(ExactRows):
    """uint8 (n, dim / 8)."""

    def __init__(self, codes: Codes, metric: Metric) -> None:
        super().__init__(len(codes), codes.shape[1], metric)
        self.stored = codes
        self._bits_set = None if metric in (Metric.HAMMING, Metric.MHJACCARD) else bits_set(codes)

    @property
    def memory_bytes(self) -> int:
        return self.stored.nbytes + (0 if self._bits_set is None else self._bits_set.nbytes)

    def taken(self, rows: RowIds) -> Codes:
        return self.stored[rows]

    def scores(self, query: Codes, rows: RowIds | None) -> Scores:
        block = slice(0, self.count) if rows is None else rows
        scores: Scores = self._matrix(query[None, :], block)[0]
        return scores

    def _matrix(self, queries: Codes, block: Block) -> Scores:
        """Score every query against every row of the block. → float32 (nq, rows)."""
        differing = kernels.hamming(queries, self.stored[block]).astype(np.float32)
        if self._bits_set is None:
            return differing
        if self.metric.matches_only:
            return self._matching(queries, block, differing)
        union = bits_set(queries)[:, None] + self._bits_set[block]
        union += differing
        differing *= 2
        np.divide(differing, union, out=differing, where=union > 0)
        differing[union == 0] = 1.0
        return differing

    def _matching(self, queries: Codes, block: Block, differing: Scores) -> Scores:
        """0 where a row matches, infinity elsewhere."""
        assert self._bits_set is not None
        of_queries, of_rows = bits_set(queries)[:, None], self._bits_set[block]
        is_sub = self.metric is Metric.SUBSTRUCTURE
        matches = of_queries + differing == of_rows if is_sub else of_rows + differing == of_queries
        return np.where(matches, np.float32(0), np.float32(np.inf))

    def _nearest_few(self, queries: Codes, k: int, mask: RowMask | None) -> Hits:
        return self._best_of_blocks(queries, k, list(self._blocks(k, len(queries), mask)))

    def _nearest_in_block(self, queries: Codes, k: int, block: Block) -> Hits:
        scores = self._matrix(queries, block)
        keys = -scores if self.metric.bigger_is_better else scores
        rows = best_columns(keys, k)
        return Hits(np.take_along_axis(scores, rows, axis=1), rows)

    def _block_row_bytes(self, queries: int) -> int:
        return super()._block_row_bytes(queries) + 3 * 4 * queries


def bits_set(codes: Codes) -> npt.NDArray[np.float32]:
    """Return how many bits of each row are set. (n, b) → float32 (n,)."""
    counts: npt.NDArray[np.uint32] = np.bitwise_count(codes).sum(axis=1, dtype=np.uint32)
    return counts.astype(np.float32)
