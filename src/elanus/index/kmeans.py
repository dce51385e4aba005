"""k-means over vectors: the centers of clusters, and which of them each vector is nearest to (L2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from elanus.core.types import Matrix
from elanus.index.adding import within_range
from elanus.index.library import faiss
from elanus.index.parallel import openmp_threads

_ROUNDS = 12

Numbers = npt.NDArray[np.int64]


def train_centroids(vectors: Matrix, count: int, seed: int) -> Matrix:
    """Return the centers of at most ``count`` clusters of the vectors, float32 (clusters, dim).

    ``vectors``: float32 (n, dim), all of which are used. The result depends on nothing but the arguments.
    """
    count = min(count, len(vectors))
    if not count:
        return np.empty((0, vectors.shape[1]), dtype=np.float32)
    dim = vectors.shape[1]
    clustering = faiss.Clustering(dim, count)
    clustering.niter, clustering.seed = _ROUNDS, seed & 0x7FFFFFFF
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = len(vectors)
    with openmp_threads(1):
        clustering.train(_floats(vectors), faiss.IndexFlatL2(dim))
    centroids: Matrix = faiss.vector_to_array(clustering.centroids).reshape(count, dim)
    return centroids


def nearest_centroids(centroids: Matrix, pieces: Iterable[Matrix]) -> Numbers:
    """Return the number of the nearest centroid of each vector, (n,).

    ``pieces``: the vectors, some at a time. There is at least one centroid.
    """
    index = faiss.IndexFlatL2(centroids.shape[1])
    index.add(np.ascontiguousarray(centroids))
    found = [np.empty(0, dtype=np.int64)]
    with openmp_threads(1):
        found += [index.search(_floats(p), 1)[1][:, 0] for p in pieces]
    return np.concatenate(found)


def _floats(vectors: Matrix) -> Matrix:
    floats: Matrix = within_range(np.ascontiguousarray(vectors, dtype=np.float32))
    return floats
