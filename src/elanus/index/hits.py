"""The result of a search, and the merging of several results for the same queries.

Row i of both arrays answers query i: hits best first, then padding where there are fewer than k
(row -1, and the metric's worst score).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.index.library import faiss

Scores = npt.NDArray[np.float32]
RowIds = npt.NDArray[np.int64]
NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Hits:
    """``distances``: float32 (nq, k), in the metric's own terms. ``rows``: int64 (nq, k), -1 padded."""

    distances: Scores
    rows: RowIds

    def padded(self, k: int, metric: Metric) -> Hits:
        """Return the same hits padded to k columns; k is at least the current number of columns."""
        queries, width = self.rows.shape
        if width == k:
            return self
        hits = no_hits(queries, k, metric)
        hits.distances[:, :width] = self.distances
        hits.rows[:, :width] = self.rows
        return hits


def no_hits(queries: int, k: int, metric: Metric) -> Hits:
    """Return hits that are all padding, (queries, k)."""
    return Hits(
        np.full((queries, k), metric.worst_score, dtype=np.float32),
        np.full((queries, k), NO_ROW, dtype=np.int64),
    )


def only_found(hits: Hits, found: RowIds, metric: Metric) -> Hits:
    """Return hits with new row numbers, as padding where ``found``, their former numbers, has no row.

    faiss finds no row that is infinitely far away, and pads with the largest float.
    """
    missing = found < 0
    if missing.any():
        hits.distances[missing], hits.rows[missing] = metric.worst_score, NO_ROW
    return hits


def best_of(scores: Scores, k: int, metric: Metric) -> tuple[Scores, RowIds]:
    """Return the k best of one query's scores, best first, and their positions. (n,) → (k,), (k,), k ≤ n.

    Of equal scores the first are the best, so that the k best begin the k + 1 best.
    """
    keys = -scores if metric.bigger_is_better else scores
    order = _smallest(keys, k)
    order = order[np.argsort(keys[order], kind="stable")]
    return scores[order], order


def _smallest(keys: Scores, k: int) -> RowIds:
    """Return the positions of the k smallest; of equal ones the first, ascending."""
    if k < len(keys):
        kth = np.partition(keys, k - 1)[k - 1]
        smaller = np.flatnonzero(keys < kth)
        tied = np.flatnonzero(keys == kth)[: k - len(smaller)]
        if len(smaller) + len(tied) == k:
            return np.concatenate((smaller, tied))
    return np.argsort(keys, kind="stable")[:k]  # there are NaN


def best_columns(keys: Scores, k: int) -> RowIds:
    """Return the columns of the k smallest keys of each row, the smallest first: (nq, n) → (nq, k), k ≤ n.

    Of equal keys the first columns are the smallest. There are no NaN.
    """
    kth = np.partition(keys, k - 1, axis=1)[:, k - 1 : k]
    kept = keys < kth
    tied = keys == kth
    left = k - kept.sum(axis=1, dtype=np.int32, keepdims=True)
    kept |= tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= left)
    columns = np.nonzero(kept)[1].reshape(len(keys), k)
    order = np.argsort(np.take_along_axis(keys, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def stacked(parts: Sequence[Hits]) -> Hits:
    """Stack the hits of consecutive queries. Parts of (nq_i, k) → (sum of nq_i, k)."""
    if len(parts) == 1:
        return parts[0]
    return Hits(np.concatenate([p.distances for p in parts]), np.concatenate([p.rows for p in parts]))


def merge(parts: Iterable[Hits], queries: int, k: int, metric: Metric) -> Hits:
    """Return the k best of hit lists of disjoint rows for the same queries, (queries, k).

    Each part has at most k columns. Without parts, all hits are padding.
    """
    merged = no_hits(queries, k, metric)
    for part in parts:
        wide = part.padded(k, metric)
        distances, rows = faiss.merge_knn_results(
            np.stack((merged.distances, wide.distances)),
            np.stack((merged.rows, wide.rows)),
            keep_max=metric.bigger_is_better,
        )
        merged = Hits(distances, rows)
    return merged


def best_of_parts(parts: Sequence[Hits], k: int, metric: Metric) -> Hits:
    """As `merge`, for a few parts at once. Parts of (nq, k_i) → (nq, k).

    Together they have at least k hits of each query, and no padding. Among equal scores the earlier part
    wins.
    """
    scores = np.concatenate([part.distances for part in parts], axis=1)
    order = np.argsort(-scores if metric.bigger_is_better else scores, axis=1, kind="stable")[:, :k]
    rows = np.concatenate([part.rows for part in parts], axis=1)
    return Hits(np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1))


def without(found: RowIds, rows: RowIds) -> RowIds:
    """Return the hits of each query except its own row: (nq, k), own rows (nq,) → (nq, k - 1).

    If a query did not find its own row, its last hit is left out.
    """
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    others: RowIds = found[~own].reshape(len(rows), found.shape[1] - 1)
    return others
