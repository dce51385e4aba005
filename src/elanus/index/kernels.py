"""faiss's distance kernels over plain numpy arrays, typed.

They take pointers, so this module ensures that the arrays behind them are C-contiguous, of the right type,
and alive during the call. The calls release the interpreter lock.

Deliberately not used: the kernels based on BLAS. ``|x|² + |y|² - 2xy`` loses small distances,
and a row's score would differ between a batch of 200 queries and a single query. faiss switches to BLAS from
`blas_threshold` floats of queries on, so batches are passed in slices below it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.index.library import faiss

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
RowIds = npt.NDArray[np.int64]
Nearest = tuple[Floats, RowIds]

HALVES = {"float16": "QT_fp16", "bfloat16": "QT_bf16"}
"""The names of numpy's types of half precision, and faiss's names for codes of the same bytes."""


@cache
def blas_threshold() -> int:
    """Return how many floats of queries make faiss use BLAS."""
    return int(faiss.cvar.distance_compute_blas_threshold)


def nearest(
    queries: Floats, vectors: Floats, k: int, *, inner_product: bool, selector: Any = None
) -> Nearest:
    """Return the k nearest vectors to each query that the selector admits: (distances, rows), best first.

    (nq, d), (n, d) → float32 (nq, k), int64 (nq, k), padded with row -1.
    """
    count, dim = queries.shape
    distances = np.empty((count, k), dtype=np.float32)
    rows = np.empty((count, k), dtype=np.int64)
    knn = faiss.knn_inner_product if inner_product else faiss.knn_L2sqr
    step = max(1, (blas_threshold() - 1) // dim)
    for start in range(0, count, step):
        part = slice(start, start + step)
        pointers = [faiss.swig_ptr(a) for a in (queries[part], vectors, distances[part], rows[part])]
        q, v, d, r = pointers
        if inner_product:
            knn(q, v, dim, len(queries[part]), len(vectors), k, d, r, selector)
        else:
            knn(q, v, dim, len(queries[part]), len(vectors), k, d, r, None, selector)
    return distances, rows


def nearest_of(queries: Floats, vectors: Floats, among: RowIds, k: int, *, inner_product: bool) -> Nearest:
    """As `nearest`, among the rows ``among``, int64 (m,), k ≤ m; reads their vectors in place."""
    count, dim = queries.shape
    distances = np.empty((count, k), dtype=np.float32)
    rows = np.empty((count, k), dtype=np.int64)
    knn = faiss.knn_inner_products_by_idx if inner_product else faiss.knn_L2sqr_by_idx
    q, v, a, d, r = (faiss.swig_ptr(array) for array in (queries, vectors, among, distances, rows))
    knn(q, v, a, dim, count, len(vectors), len(among), k, d, r, 0)  # 0: one list of rows for all queries
    return distances, rows


def scores(query: Floats, vectors: Floats, *, inner_product: bool) -> Floats:
    """Return the distance (or inner product) of one query to every vector. (d,), (n, d) → (n,)."""
    out = np.empty(len(vectors), dtype=np.float32)
    kernel = faiss.fvec_inner_products_ny if inner_product else faiss.fvec_L2sqr_ny
    kernel(faiss.swig_ptr(out), faiss.swig_ptr(query), faiss.swig_ptr(vectors), len(query), len(vectors))
    return out


def scores_of(query: Floats, vectors: Floats, among: RowIds, *, inner_product: bool) -> Floats:
    """As `scores`, for the vectors of these rows. → (len(among),)."""
    out = np.empty(len(among), dtype=np.float32)
    kernel = faiss.fvec_inner_products_by_idx if inner_product else faiss.fvec_L2sqr_by_idx
    o, q, v, a = (faiss.swig_ptr(array) for array in (out, query, vectors, among))
    kernel(o, q, v, a, len(query), 1, len(among))
    return out


def nearest_halves(queries: Floats, vectors: npt.NDArray[Any], k: int, *, inner_product: bool) -> Nearest:
    """As `nearest`, over vectors (n, d) of one of the dtypes in `HALVES`, which are decoded in registers."""
    found: Nearest = _in_place(vectors, inner_product=inner_product).search(queries, k)
    return found


def scores_of_halves(query: Floats, vectors: npt.NDArray[Any], *, inner_product: bool) -> Floats:
    """As `scores`, over vectors of one of `HALVES`: bit for bit the distances of `nearest_halves`.

    (d,), (n, d) → float32 (n,). It searches for n hits: faiss has no kernel that returns them in their order.
    """
    distances, rows = nearest_halves(query[None], vectors, len(vectors), inner_product=inner_product)
    out = np.full(len(vectors), -np.inf if inner_product else np.inf, dtype=np.float32)
    is_hit = rows >= 0  # what is infinitely far is none
    out[rows[is_hit]] = distances[is_hit]
    return out


def _in_place(vectors: npt.NDArray[Any], *, inner_product: bool) -> Any:
    """Return a faiss index that reads these vectors where they are. It is valid as long as the array."""
    metric = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    codec = getattr(faiss.ScalarQuantizer, HALVES[vectors.dtype.name])
    index = faiss.IndexScalarQuantizer(vectors.shape[1], codec, metric)
    codes, index.ntotal = index.codes, len(vectors)
    codes.is_owned = False
    codes.view_data = codes.c_ptr = faiss.swig_ptr(vectors.view(np.uint8))
    codes.view_size = codes.c_size = vectors.nbytes
    return index


def nearest_codes(codewords: Any, queries: Floats, codes: Bytes, k: int, *, inner_product: bool) -> Nearest:
    """As `nearest`, over codes (n, parts) of a ``faiss.ProductQuantizer``, by tables of each query."""
    distances = np.empty((len(queries), k), dtype=np.float32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    heaps = faiss.float_minheap_array_t() if inner_product else faiss.float_maxheap_array_t()
    heaps.nh, heaps.k = len(queries), k
    heaps.val, heaps.ids = faiss.swig_ptr(distances), faiss.swig_ptr(rows)
    search = codewords.search_ip if inner_product else codewords.search
    search(faiss.swig_ptr(queries), len(queries), faiss.swig_ptr(codes), len(codes), heaps)
    return distances, rows


def hamming(queries: Bytes, codes: Bytes) -> npt.NDArray[np.int32]:
    """Differing bits of every query and code. (nq, b), (n, b) → int32 (nq, n)."""
    out = np.empty((len(queries), len(codes)), dtype=np.int32)
    q, c, o = (faiss.swig_ptr(array) for array in (queries, codes, out))
    faiss.hammings(q, c, len(queries), len(codes), codes.shape[1], o)
    return out
