"""Spheres around vectors: from a few numbers, how good the score of any vector inside can be at most.

A segment that a compaction by a vector made is described by spheres: the centroids of its clusters, and how
far its rows are from them. By the triangle inequality a query far from all spheres is far from every row, so
a search that has better hits already need not look into the segment. This is exact: no hit is lost by it.

Each sphere has two radii, since the metric of the search is not known when it is made: a distance, for L2 and
IP, and an angle, for COSINE. All bounds leave room for the rounding of scores in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

BOUNDED = (Metric.L2, Metric.IP, Metric.COSINE)
"""The metrics for which spheres bound the scores."""
_ROUNDING = 1e-5
"""How much scores and bounds may differ by rounding, relative to the lengths of the vectors."""


@dataclass(frozen=True, slots=True, eq=False)
class Spheres:
    """``centroids``: float32 (n, dim). ``radii``: float64 (n,), the distance of the furthest row; ``angles``:
    float64 (n,), the largest angle to a row, π if a row or the centroid has no direction. No spheres at all:
    no row has a vector."""

    centroids: Vectors
    radii: Floats
    angles: Floats

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def nbytes(self) -> int:
        return self.centroids.nbytes + self.radii.nbytes + self.angles.nbytes

    def best_scores(self, queries: Vectors, metric: Metric) -> Floats:
        """Return for each query a score that no row inside is better than. (nq, dim) → (nq,)

        In the terms of the metric, one of `BOUNDED`. Without spheres it is the metric's worst score.
        """
        if not len(self):
            return np.full(len(queries), metric.worst_score)
        asked, centroids = queries.astype(np.float64), self.centroids.astype(np.float64)
        if metric is Metric.COSINE:
            apart = np.maximum(0.0, _angles(asked, centroids) - self.angles)
            best: Floats = np.cos(apart).max(axis=1) + _ROUNDING
            return best
        lengths = np.linalg.norm(asked, axis=1)[:, None]
        reach = np.linalg.norm(centroids, axis=1) + self.radii
        if metric is Metric.IP:
            inside = asked @ centroids.T + lengths * self.radii
            return np.asarray((inside + _ROUNDING * lengths * reach).max(axis=1))
        apart = np.maximum(0.0, _distances(asked, centroids) - self.radii)
        squares = apart**2 - _ROUNDING * (lengths + reach) ** 2
        return np.asarray(np.maximum(0.0, squares).min(axis=1))

    def centroid_scores(self, queries: Vectors, metric: Metric) -> Floats:
        """Return the score of each query with its best centroid. (nq, dim) → (nq,)

        This is no bound: rows may be nearer. Without spheres it is the metric's worst score.
        """
        if not len(self):
            return np.full(len(queries), metric.worst_score)
        asked, centroids = queries.astype(np.float64), self.centroids.astype(np.float64)
        if metric is Metric.L2:
            nearest: Floats = _distances(asked, centroids).min(axis=1) ** 2
            return nearest
        if metric is Metric.COSINE:
            asked, centroids = _units(asked), _units(centroids)
        best: Floats = (asked @ centroids.T).max(axis=1)
        return best


def spheres_around(centroids: Vectors, pieces: Iterable[Vectors], of: Numbers) -> Spheres:
    """Return the smallest spheres around some vectors: row ``i`` is in the sphere of ``centroids[of[i]]``.

    ``centroids``: (clusters, dim). ``pieces``: the vectors, (some rows, dim) each. ``of``: the centroid's
    number for each row, (rows,). Centroids without rows have no sphere.
    """
    radii, angles, first = np.full(len(centroids), -1.0), np.zeros(len(centroids)), 0
    for piece in pieces:
        numbers = of[first : first + len(piece)]
        rows, own = piece.astype(np.float64), centroids[numbers].astype(np.float64)
        np.maximum.at(radii, numbers, np.linalg.norm(rows - own, axis=1))
        np.maximum.at(angles, numbers, _angles_in_pairs(rows, own))
        first += len(piece)
    used = radii >= 0
    return Spheres(np.ascontiguousarray(centroids[used], np.float32), radii[used], angles[used])


def grouped(centroids: Vectors, rows: Numbers, groups: int) -> Iterator[Numbers]:
    """Yield centroids, by number, in at most ``groups`` groups of near ones with about equally many rows.

    ``centroids``: (clusters, dim). ``rows``: how many each has, (clusters,). Halves are cut across the
    direction in which the centroids vary most, where the rows are even. Neighboring groups are near each
    other, and so are neighbors within a group.
    """
    yield from _cut(centroids.astype(np.float64), rows, np.arange(len(centroids)), groups)


def _cut(centroids: Floats, rows: Numbers, members: Numbers, groups: int) -> Iterator[Numbers]:
    if not len(members):
        return
    around = centroids[members] - centroids[members].mean(axis=0)
    _, _, directions = np.linalg.svd(around, full_matrices=False)
    members = members[np.argsort(around @ directions[0], kind="stable")]
    if groups == 1 or len(members) == 1:
        yield members
        return
    left = groups // 2
    sums = np.cumsum(rows[members])
    wanted = sums[-1] * left / groups
    first = int(np.argmin(np.abs(sums[:-1] - wanted))) + 1
    yield from _cut(centroids, rows, members[:first], left)
    yield from _cut(centroids, rows, members[first:], groups - left)


def _distances(left: Floats, right: Floats) -> Floats:
    """(n, dim), (m, dim) → (n, m). The digits that float64 loses here are far below `_ROUNDING`."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * (left @ right.T)
    found: Floats = np.sqrt(np.maximum(0.0, squares))
    return found


def _units(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Floats = vectors / np.where(lengths > 0, lengths, 1.0)
    return found


def _angles(left: Floats, right: Floats) -> Floats:
    """(n, dim), (m, dim) → (n, m)"""
    found: Floats = np.arccos(np.clip(_units(left) @ _units(right).T, -1.0, 1.0))
    return found


def _angles_in_pairs(left: Floats, right: Floats) -> Floats:
    """(n, dim), (n, dim) → (n,); π where one has no direction."""
    cosines = np.clip((_units(left) * _units(right)).sum(axis=1), -1.0, 1.0)
    directed = left.any(axis=1) & right.any(axis=1)
    # near zero the arc cosine loses half of the digits: half a millionth of a right angle is added
    return np.where(directed, np.minimum(np.pi, np.arccos(cosines) + 1e-6), np.pi)
