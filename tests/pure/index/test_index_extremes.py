"""Vectors so long or short that lengths, distances or components are beyond what floats can hold."""

from __future__ import annotations

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from elanus.core.metrics import Metric
from elanus.core.types import DataType
from elanus.index import (
    IndexSpec,
    RawVectors,
    RowMask,
    SearchParams,
    VectorIndex,
    brute_force,
    build,
    load,
    nearest_centroids,
    resolve_index,
    train_centroids,
)
from elanus.index.interim import Codebook

DIM, ROWS = 16, 600
FAR = np.arange(ROWS) % 3 == 0
PARAMS = SearchParams(ef=ROWS, nprobe=64)
KINDS = (
    ("FLAT", {}),
    ("IVF_FLAT", {"nlist": "8"}),
    ("IVF_SQ8", {"nlist": "8"}),
    ("IVF_PQ", {"nlist": "8", "m": "8"}),
    ("SCANN", {"nlist": "8"}),
    ("IVF_RABITQ", {"nlist": "8"}),
    ("HNSW", {}),
    ("HNSW_SQ", {"sq_type": "SQ8"}),
    ("HNSW_SQ", {"sq_type": "FP16"}),
    ("HNSW_PQ", {"m": "8"}),
    ("DISKANN", {}),
)
EXACT = ("FLAT", "IVF_FLAT", "SCANN", "HNSW", "DISKANN")
"""They compare the vectors as sent."""


def vectors(far: float) -> np.ndarray:
    rows = np.random.default_rng(1).normal(size=(ROWS, DIM)).clip(-3, 3).astype(np.float32)
    rows[FAR] *= np.float32(far)
    return rows


def spec_of(kind: str, metric: str, params: dict[str, str]) -> IndexSpec:
    return resolve_index({"index_type": kind, "metric_type": metric} | params, DataType.FLOAT_VECTOR, DIM)


def queries(count: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(count, DIM)).astype(np.float32)


def masks() -> list[RowMask | None]:
    shares = np.random.default_rng(3).random(ROWS)
    return [None, RowMask.from_bool(shares < 0.5), RowMask.from_bool(shares < 0.05)]


def check_hits(index: VectorIndex, far_are_hits: bool | None) -> None:
    """Every hit is a visible row with a finite score, each once. None: far rows may be hits or not."""
    for count, mask, threads in itertools.product((1, 40), masks(), (1, 2)):
        hits = index.search(queries(count), ROWS, PARAMS, mask, threads)
        visible = np.ones(ROWS, np.bool_) if mask is None else mask.to_bool()
        for rows, scores in zip(hits.rows, hits.distances, strict=True):
            found = rows[rows >= 0]
            assert len(np.unique(found)) == len(found)
            assert visible[found].all()
            assert np.isfinite(scores[: len(found)]).all()
            assert (rows[: len(found)] >= 0).all()
            if far_are_hits is not None:
                assert set(found) == set(np.flatnonzero(visible & (far_are_hits | ~FAR)))


@pytest.mark.parametrize("far", [3e19, 1e38])
@pytest.mark.parametrize("metric", ["L2", "IP"])
@pytest.mark.parametrize(("kind", "params"), KINDS)
def test_an_index_over_long_vectors_is_built(
    kind: str, params: dict[str, str], metric: str, far: float
) -> None:
    index = build(spec_of(kind, metric, params), vectors(far), 1)
    assert isinstance(index, VectorIndex)
    if metric == "L2":
        check_hits(index, False if kind in EXACT else None)


@pytest.mark.parametrize("far", [3e19, 1e38])
def test_rows_beyond_the_largest_distance_are_not_found_without_an_index(far: float) -> None:
    check_hits(RawVectors(brute_force(DataType.FLOAT_VECTOR, DIM, Metric.L2), vectors(far)), False)


def test_vectors_of_lists_come_back_however_long_they_are() -> None:
    rows = vectors(1e38)
    index = build(spec_of("IVF_FLAT", "L2", {"nlist": "8"}), rows, 1)
    assert isinstance(index, VectorIndex)
    np.testing.assert_array_equal(index.reconstruct(np.arange(ROWS)), rows)


@pytest.mark.parametrize("metric", ["L2", "IP"])
@pytest.mark.parametrize("far", [3e19, 1e38])
def test_codes_of_growing_rows_are_made_of_long_vectors(metric: str, far: float) -> None:
    rows = np.random.default_rng(4).normal(size=(2048, 64)).clip(-3, 3).astype(np.float32)
    rows[7] *= np.float32(far)
    spec = resolve_index({"index_type": "HNSW", "metric_type": metric}, DataType.FLOAT_VECTOR, 64)
    Codebook(spec).codes_of([(rows, None)])


def test_long_vectors_are_clustered() -> None:
    rows = vectors(1e38)
    centroids = train_centroids(rows, 4, seed=1)
    assert np.isfinite(centroids).all()
    assert nearest_centroids(centroids, [rows]).min() >= 0


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("metric", ["L2", "IP"])
def test_components_beyond_half_a_float_are_cut(metric: str, refine: bool) -> None:
    kind = {"refine": "true", "refine_type": "FP16"} if refine else {"sq_type": "FP16"}
    index = build(spec_of("HNSW_SQ", metric, kind), vectors(1e6), 1)
    assert isinstance(index, VectorIndex)
    check_hits(index, True)


@pytest.mark.parametrize("far", [1e-42, 1e-39, 1e-30, 1e30, 1e38])
@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.BFLOAT16_VECTOR])
@pytest.mark.parametrize("queried", [1, 40])
@pytest.mark.parametrize("kind", [None, "FLAT", "DISKANN"])
def test_the_length_of_a_vector_does_not_change_its_cosine(
    kind: str | None, queried: int, data_type: DataType, far: float, tmp_path: Path
) -> None:
    stored = np.dtype(np.float32 if data_type is DataType.FLOAT_VECTOR else ml_dtypes.bfloat16)
    rows = vectors(far).astype(stored)
    exact = rows.astype(np.float64)
    units = exact / np.maximum(np.linalg.norm(exact, axis=1), 1e-300)[:, None]
    sought = queries(queried)
    truth = (sought / np.linalg.norm(sought, axis=1)[:, None]) @ units.T
    if kind is None:
        index: VectorIndex = RawVectors(brute_force(data_type, DIM, Metric.COSINE), rows)
    else:
        spec = resolve_index({"index_type": kind, "metric_type": "COSINE"}, data_type, DIM)
        made = build(spec, rows, 1)
        made.save(tmp_path / "index")
        loaded = load(tmp_path / "index", spec)
        assert isinstance(loaded, VectorIndex)
        index = loaded
    hits = index.search(sought, ROWS, PARAMS)
    assert (hits.rows >= 0).all()
    np.testing.assert_allclose(
        hits.distances, np.take_along_axis(truth, hits.rows, axis=1), rtol=0, atol=1e-4
    )
    np.testing.assert_array_equal(
        index.reconstruct(np.arange(ROWS)).astype(np.float64), rows.astype(np.float64)
    )
