"""Shared by the index tests: seeded vectors, and numpy's own idea of every score."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from elanus.core.metrics import Metric
from elanus.core.schema import DataType
from elanus.index import IndexSpec, VectorIndex, build, resolve_index

DIM = 16
BITS = 64
ROWS = 2500
FLOAT_INDEXES = (
    "FLAT",
    "IVF_FLAT",
    "IVF_SQ8",
    "IVF_PQ",
    "IVF_RABITQ",
    "IVF_RABITQ_FASTSCAN",
    "SCANN",
    "HNSW",
    "HNSW_SQ",
    "HNSW_PQ",
    "HNSW_PRQ",
    "DISKANN",
    "AUTOINDEX",
)
BINARY_INDEXES = ("BIN_FLAT", "BIN_IVF_FLAT", "AUTOINDEX")
FLOAT_CASES = [(t, m) for t in FLOAT_INDEXES for m in ("L2", "IP", "COSINE")]
BINARY_CASES = [(t, m) for t in BINARY_INDEXES for m in ("HAMMING", "JACCARD")]
CASES = FLOAT_CASES + BINARY_CASES


def clustered(rows: int, dim: int, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 (rows, dim) around far-apart centers, and the cluster of each row."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(clusters, dim)) * 4
    labels = rng.integers(0, clusters, rows)
    return (centers[labels] + rng.normal(size=(rows, dim))).astype(np.float32), labels


@lru_cache
def vectors_for(metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows, and 12 queries near them but not among them."""
    rng = np.random.default_rng(7)
    if Metric(metric).is_binary:
        codes = rng.integers(0, 256, size=(ROWS + 12, BITS // 8), dtype=np.uint8)
        return codes[:ROWS], codes[ROWS:]
    rows, _ = clustered(ROWS + 12, DIM, 12, seed=3)
    return rows[:ROWS], rows[ROWS:]


def spec_for(index_type: str, metric: str, **params: object) -> IndexSpec:
    sent = {"index_type": index_type, "metric_type": metric} | {n: str(v) for n, v in params.items()}
    binary = Metric(metric).is_binary
    data_type = DataType.BINARY_VECTOR if binary else DataType.FLOAT_VECTOR
    return resolve_index(sent, data_type, BITS if binary else DIM)


BUILD_PARAMS: dict[str, dict[str, object]] = {
    "HNSW": {"M": 8, "efConstruction": 60},
    "IVF_FLAT": {"nlist": 16},
    "IVF_SQ8": {"nlist": 16},
    "IVF_PQ": {"nlist": 16, "m": 8, "nbits": 6, "refine": True},
    "IVF_RABITQ": {"nlist": 16, "refine": True},
    "IVF_RABITQ_FASTSCAN": {"nlist": 16, "refine": True},
    "SCANN": {"nlist": 16},
    "HNSW_SQ": {"M": 8, "efConstruction": 60, "refine": True},
    "HNSW_PQ": {"M": 8, "efConstruction": 60, "m": 8, "nbits": 6, "refine": True},
    "HNSW_PRQ": {"M": 8, "efConstruction": 60, "m": 4, "nbits": 4, "refine": True},
    "DISKANN": {},
    "BIN_IVF_FLAT": {"nlist": 16},
}
"""Few lists and a light graph. Kinds of codes are refined, so their scores are exact."""

CODED = (
    "IVF_SQ8",
    "IVF_PQ",
    "IVF_RABITQ",
    "IVF_RABITQ_FASTSCAN",
    "SCANN",
    "HNSW_SQ",
    "HNSW_PQ",
    "HNSW_PRQ",
    "DISKANN",
)
"""Kinds that choose candidates by codes, so that they may miss a neighbor."""


@lru_cache
def built(index_type: str, metric: str) -> VectorIndex:
    """One index per kind and metric."""
    spec = spec_for(index_type, metric, **BUILD_PARAMS.get(index_type, {}))
    return build(spec, vectors_for(metric)[0], threads=1)


def scores(queries: np.ndarray, rows: np.ndarray, metric: str) -> np.ndarray:
    """Every score by its definition, in float64. (nq, n)."""
    if Metric(metric).is_binary:
        q, r = (np.unpackbits(a, axis=1).astype(bool) for a in (queries, rows))
        differing = (q[:, None] ^ r[None]).sum(axis=2).astype(float)
        if metric == "HAMMING":
            return differing
        union = (q[:, None] | r[None]).sum(axis=2)
        return np.where(union == 0, 1.0, differing / np.maximum(union, 1))
    q, r = queries.astype(float), rows.astype(float)
    if metric == "L2":
        return ((q[:, None] - r[None]) ** 2).sum(axis=2)
    if metric == "COSINE":
        q, r = (a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-300) for a in (q, r))
    return q @ r.T


def best(all_scores: np.ndarray, k: int, metric: str, visible: np.ndarray | None = None) -> np.ndarray:
    """The rows of the k best scores per query, best first."""
    keys = -all_scores if Metric(metric).bigger_is_better else all_scores.copy()
    if visible is not None:
        keys = np.where(visible[None], keys, np.inf)
    return np.argsort(keys, axis=1, kind="stable")[:, :k]


def recall(rows: np.ndarray, truth: np.ndarray) -> float:
    """The share of the true rows that were found."""
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(rows, truth, strict=True)]))
