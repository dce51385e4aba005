"""Vectors of signed bytes: compared exactly, kept in one byte a value, given back as they were sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from index_data import best, recall, scores

from elanus.core.metrics import Metric
from elanus.core.schema import DataType
from elanus.index import (
    IndexSpec,
    RowMask,
    SearchParams,
    VectorIndex,
    build,
    load,
    over_rows,
    resolve_index,
    resolve_search,
)

DIM, ROWS = 24, 2500
METRICS = ("L2", "IP", "COSINE")
RNG = np.random.default_rng(4)
MATRIX = RNG.integers(-128, 128, (ROWS, DIM)).astype(np.int8)
QUERIES = RNG.integers(-128, 128, (12, DIM)).astype(np.float32)
PARAMS = SearchParams(ef=300, nprobe=16)


def spec_of(kind: str, metric: str) -> IndexSpec:
    lists = {"nlist": "16"} if kind.startswith("IVF") else {}
    return resolve_index({"index_type": kind, "metric_type": metric} | lists, DataType.INT8_VECTOR, DIM)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("queries", [1, 12])
@pytest.mark.parametrize("share", [None, 0.02, 0.5])
def test_growing_rows_are_compared_exactly_where_they_are(
    metric: str, queries: int, share: float | None
) -> None:
    visible = None if share is None else RNG.random(ROWS) < share
    index = over_rows(DataType.INT8_VECTOR, DIM, Metric(metric), MATRIX)
    assert index.memory_bytes <= ROWS * (DIM + (4 if metric == "COSINE" else 0))
    mask = None if visible is None else RowMask.from_bool(visible)
    hits = index.search(QUERIES[:queries], 7, SearchParams(), mask)
    truth = scores(QUERIES[:queries], MATRIX.astype(np.float64), metric)
    assert recall(hits.rows, best(truth, 7, metric, visible)) >= 0.98  # of equal scores either row is right
    found = np.take_along_axis(truth, hits.rows, axis=1)
    if metric == "COSINE":
        np.testing.assert_allclose(hits.distances, found, rtol=1e-5, atol=1e-6)
    else:
        assert np.array_equal(hits.distances, found), "whole numbers are exact"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["FLAT", "HNSW", "IVF_FLAT", "IVF_SQ8", "AUTOINDEX"])
def test_every_kind_is_built_saved_and_gives_its_vectors_back(metric: str, kind: str, tmp_path: Path) -> None:
    spec = spec_of(kind, metric)
    build(spec, MATRIX, threads=1).save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    assert isinstance(loaded, VectorIndex)
    truth = best(scores(QUERIES, MATRIX.astype(np.float64), metric), 10, metric)
    assert recall(loaded.search(QUERIES, 10, PARAMS).rows, truth) >= (0.85 if kind == "IVF_SQ8" else 0.97)
    assert loaded.has_raw_vectors == (kind != "IVF_SQ8")
    if loaded.has_raw_vectors:
        wanted = np.array([7, 3, ROWS - 1])
        again = loaded.reconstruct(wanted)
        assert again.dtype == np.int8
        assert np.array_equal(again, MATRIX[wanted])
    if kind == "FLAT":
        assert (tmp_path / "index").stat().st_size < MATRIX.nbytes + 2000


def test_a_range_of_whole_distances() -> None:
    index = over_rows(DataType.INT8_VECTOR, DIM, Metric.L2, MATRIX)
    spec = spec_of("FLAT", "L2")
    truth = np.sort(scores(QUERIES, MATRIX.astype(np.float64), "L2"), axis=1)
    radius = float(truth[:, 40].max())
    hits = index.search(QUERIES, 100, resolve_search(spec, {"radius": radius}, 100))
    for found, all_scores in zip(hits.distances, truth, strict=True):
        assert found[np.isfinite(found)].tolist() == all_scores[all_scores < radius][:100].tolist()
