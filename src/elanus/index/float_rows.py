"""Exact search over float vectors: faiss's kernels, and cosine over vectors of any length."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index import kernels
from elanus.index.exact import KEPT_SHARE, SPARSE_SHARE, Block, ExactRows
from elanus.index.hits import Hits, RowIds, Scores, best_of, best_of_parts, no_hits, only_found
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out
from elanus.index.unit import norms_of

Floats = npt.NDArray[np.float32]
_SHORT, _LONG = 2.0**-100, 2.0**100
_SCALED_ROWS = 2048
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
        self._compared = vectors
        self._inverse_norms = inverse_norms
        self._inner_product = metric is not Metric.L2

    @classmethod
    def raw(cls, vectors: Floats, metric: Metric) -> FloatRows:
        """Over vectors as the client sent them."""
        if metric is not Metric.COSINE:
            return cls(vectors, metric)
        scaled, inverse_norms = scaled_rows(vectors)
        rows = cls(vectors, metric, inverse_norms)
        rows._compared = scaled
        return rows

    @property
    def memory_bytes(self) -> int:
        copied = 0 if self._compared is self.stored else self._compared.nbytes
        return (
            self.stored.nbytes + copied + (0 if self._inverse_norms is None else self._inverse_norms.nbytes)
        )

    def taken(self, rows: RowIds) -> Floats:
        return self.stored[rows]

    def scores(self, query: Floats, rows: RowIds | None) -> Scores:
        if rows is None:
            scores = kernels.scores(query, self._compared, inner_product=self._inner_product)
        else:
            scores = kernels.scores_of(query, self._compared, rows, inner_product=self._inner_product)
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
        found = kernels.nearest_of(queries, self._compared, rows, k, inner_product=self._inner_product)
        return only_found(Hits(clipped(found[0], self.metric), found[1]), found[1], self.metric)

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
            self._compared[rows],
            k,
            inner_product=self._inner_product,
            selector=None if inside is None else inside.selector,
        )
        hits = Hits(clipped(found[0], self.metric), found[1] + rows.start)
        return only_found(hits, found[1], self.metric)

    def _nearest_scaled(self, queries: Floats, k: int, rows: slice) -> Hits:
        assert self._inverse_norms is not None
        hits = no_hits(len(queries), k, self.metric)
        for i, query in enumerate(queries):
            scores = kernels.scores(query, self._compared[rows], inner_product=self._inner_product)
            scores *= self._inverse_norms[rows]
            best, places = best_of(clipped(scores, self.metric), k, self.metric)
            hits.distances[i], hits.rows[i] = best, places + rows.start
        return hits

    def _nearest_in_block(self, queries: Floats, k: int, block: Block) -> Hits:
        vectors = self._compared[block] if isinstance(block, slice) else self._compared.take(block, axis=0)
        if self._inverse_norms is not None:
            vectors = vectors * self._inverse_norms[block][:, None]
        distances, rows = kernels.nearest(queries, vectors, k, inner_product=self._inner_product)
        return Hits(clipped(distances, self.metric), rows)


def _numbers(mask: RowMask) -> RowIds:
    """Return the visible rows, in any order."""
    return mask.numbers if mask.selectivity < KEPT_SHARE else mask.listed()


def inverse_norms(vectors: Floats) -> Floats:
    """1 / length of each row, 0 for zero vectors, infinite where it is beyond float32. (n, d) → (n,)."""
    norms = norms_of(vectors)
    with np.errstate(over="ignore"):
        return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def scaled_rows(vectors: Matrix) -> tuple[Matrix, Floats]:
    """Return what COSINE compares in place of the vectors (n, d), and 1 / length of each, 0 for zero vectors.

    Rows that are so short or long that this, or an inner product, is beyond float32 are multiplied by a power
    of two. If there are none, the same array is returned. The lengths are float32 (n,).
    """
    scaled, inverse_norms = vectors, np.empty(len(vectors), dtype=np.float32)
    for start in range(0, len(vectors), _SCALED_ROWS):
        part = slice(start, min(start + _SCALED_ROWS, len(vectors)))
        norms = norms_of(vectors[part].astype(np.float32, copy=False))
        extreme = np.flatnonzero((norms > 0) & ((norms < _SHORT) | (norms > _LONG)))
        if len(extreme):
            exponents = -np.frexp(norms[extreme])[1]
            norms[extreme] = np.ldexp(norms[extreme], exponents)
            scaled = vectors.copy() if scaled is vectors else scaled
            rows = extreme + start
            scaled[rows] = np.ldexp(vectors[rows].astype(np.float64), exponents[:, None])
        inverse_norms[part] = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return scaled, inverse_norms


def clipped(scores: Scores, metric: Metric) -> Scores:
    """Clip cosines to [-1, 1], in place: rounding may carry one slightly beyond."""
    if metric is Metric.COSINE:
        np.clip(scores, -1.0, 1.0, out=scores)
    return scores
