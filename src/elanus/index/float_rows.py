"""Exact search over float vectors: faiss's kernels, and cosine over vectors of any length."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.index import kernels
from elanus.index.exact import KEPT_SHARE, SPARSE_SHARE, Block, ExactRows
from elanus.index.hits import Hits, RowIds, Scores, best_of, best_of_parts, no_hits
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out
from elanus.index.unit import norms_of

Floats = npt.NDArray[np.float32]
_RANGE_STEP = 64
"""Ranges of rows begin at multiples of it: whole bytes of a mask, and whole blocks of faiss's kernels."""


class FloatRows(ExactRows):
    """float32 (n, dim) under L2, IP or COSINE. Queries under COSINE have length one.

    The rows of a COSINE collection have unit length inside an index, and any length in a growing chunk.
    ``inverse_norms`` (float32 (n,), 0 for a zero vector) make the rows of a growing chunk comparable without
    a copy: the score is the inner product times the row's inverse norm.
    """

    def __init__(self, vectors: Floats, metric: Metric, inverse_norms: Floats | None = None) -> None:
        super().__init__(len(vectors), vectors.itemsize * vectors.shape[1], metric)
        self.stored = vectors
        self._inverse_norms = inverse_norms
        self._inner_product = metric is not Metric.L2

    @classmethod
    def raw(cls, vectors: Floats, metric: Metric) -> FloatRows:
        """Over vectors as the client sent them."""
        return cls(vectors, metric, inverse_norms(vectors) if metric is Metric.COSINE else None)

    @property
    def memory_bytes(self) -> int:
        return self.stored.nbytes + (0 if self._inverse_norms is None else self._inverse_norms.nbytes)

    def taken(self, rows: RowIds) -> Floats:
        return self.stored[rows]

    def scores(self, query: Floats, rows: RowIds | None) -> Scores:
        if rows is None:
            scores = kernels.scores(query, self.stored, inner_product=self._inner_product)
        else:
            scores = kernels.scores_of(query, self.stored, rows, inner_product=self._inner_product)
        if self._inverse_norms is not None:
            scores *= self._inverse_norms if rows is None else self._inverse_norms[rows]
        return clipped(scores, self.metric)

    def _nearest_few(self, queries: Floats, k: int, mask: RowMask | None) -> Hits:
        if mask is not None and self._by_number(mask):
            return self._nearest_among(queries, k, _numbers(mask))
        return self._nearest_in_range(queries, k, mask, slice(0, self.count))

    def _nearest_divided(
        self, queries: Floats, k: int, mask: RowMask | None, shares: int, threads: int
    ) -> Hits:
        """As `_nearest_few`, with the same kernels: each share is a range of the rows, in place."""
        if mask is not None and self._by_number(mask):
            among = [rows for rows in np.array_split(_numbers(mask), shares) if len(rows)]
            parts = fan_out(
                lambda rows: self._nearest_among(queries, min(k, len(rows)), rows), among, threads
            )
        else:
            starts = np.unique(np.arange(shares) * self.count // shares // _RANGE_STEP * _RANGE_STEP)
            ranges = [slice(start, stop) for start, stop in pairwise([*starts.tolist(), self.count])]
            parts = fan_out(lambda rows: self._nearest_in_range(queries, k, mask, rows), ranges, threads)
        return best_of_parts(parts, k, self.metric)

    def _by_number(self, mask: RowMask) -> bool:
        return self._inverse_norms is not None or mask.selectivity < SPARSE_SHARE

    def _nearest_among(self, queries: Floats, k: int, rows: RowIds) -> Hits:
        """Return the k best among these rows; k is at most their number."""
        if self._inverse_norms is not None:
            return self.nearest_of(queries, k, rows)
        found = kernels.nearest_of(queries, self.stored, rows, k, inner_product=self._inner_product)
        return Hits(clipped(found[0], self.metric), found[1])

    def _nearest_in_range(self, queries: Floats, k: int, mask: RowMask | None, rows: slice) -> Hits:
        """Return the k best visible rows of the range, or as many as there are. It begins at a multiple of
        8."""
        is_whole = rows.stop - rows.start == self.count
        inside = mask if mask is None or is_whole else mask.part(rows.start, rows.stop)
        k = min(k, rows.stop - rows.start if inside is None else inside.count)
        if not k:
            return no_hits(len(queries), 0, self.metric)
        if self._inverse_norms is not None:
            return self._nearest_scaled(queries, k, rows)
        found = kernels.nearest(
            queries,
            self.stored[rows],
            k,
            inner_product=self._inner_product,
            selector=None if inside is None else inside.selector,
        )
        return Hits(clipped(found[0], self.metric), found[1] + rows.start)

    def _nearest_scaled(self, queries: Floats, k: int, rows: slice) -> Hits:
        assert self._inverse_norms is not None
        hits = no_hits(len(queries), k, self.metric)
        for i, query in enumerate(queries):
            scores = kernels.scores(query, self.stored[rows], inner_product=self._inner_product)
            scores *= self._inverse_norms[rows]
            best, places = best_of(clipped(scores, self.metric), k, self.metric)
            hits.distances[i], hits.rows[i] = best, places + rows.start
        return hits

    def _nearest_in_block(self, queries: Floats, k: int, block: Block) -> Hits:
        vectors = self.stored[block] if isinstance(block, slice) else self.stored.take(block, axis=0)
        if self._inverse_norms is not None:
            vectors = vectors * self._inverse_norms[block][:, None]
        distances, rows = kernels.nearest(queries, vectors, k, inner_product=self._inner_product)
        return Hits(clipped(distances, self.metric), rows)


def _numbers(mask: RowMask) -> RowIds:
    """Return the visible rows, in any order."""
    return mask.numbers if mask.selectivity < KEPT_SHARE else mask.listed()


def inverse_norms(vectors: Floats) -> Floats:
    """1 / length of each row, 0 for zero vectors. (n, d) → float32 (n,)."""
    norms = norms_of(vectors)
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def clipped(scores: Scores, metric: Metric) -> Scores:
    """Clip cosines to [-1, 1], in place: rounding may carry one slightly beyond."""
    if metric is Metric.COSINE:
        np.clip(scores, -1.0, 1.0, out=scores)
    return scores
