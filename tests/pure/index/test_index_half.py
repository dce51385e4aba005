"""Vectors of half precision: searched as their float32 values, kept and given back as they were sent."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from index_data import DIM, best, clustered, recall, scores

from elanus.core.metrics import Metric
from elanus.core.schema import DataType
from elanus.index import (
    IndexSpec,
    RawVectors,
    RowMask,
    SearchParams,
    VectorIndex,
    brute_force,
    build,
    load,
    resolve_index,
)

TYPES = {
    DataType.FLOAT16_VECTOR: np.dtype(np.float16),
    DataType.BFLOAT16_VECTOR: np.dtype(ml_dtypes.bfloat16),
}
METRICS = ("L2", "IP", "COSINE")
ROWS = 2500
PARAMS = SearchParams(ef=200, nprobe=16)


def rows_of(data_type: DataType) -> tuple[np.ndarray, np.ndarray]:
    """The rows in their stored form, and 12 queries in float32."""
    rows, _ = clustered(ROWS + 12, DIM, 12, seed=3)
    return rows[:ROWS].astype(TYPES[data_type]), rows[ROWS:].astype(TYPES[data_type]).astype(np.float32)


def spec_of(kind: str, metric: str, data_type: DataType) -> IndexSpec:
    lists = {"nlist": "16"} if kind.startswith("IVF") else {}
    return resolve_index({"index_type": kind, "metric_type": metric} | lists, data_type, DIM)


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("queries", [1, 12])
@pytest.mark.parametrize("share", [None, 0.02, 0.5])
def test_brute_force_is_exact(data_type: DataType, metric: str, queries: int, share: float | None) -> None:
    rows, sought = rows_of(data_type)
    visible = None if share is None else np.random.default_rng(5).random(ROWS) < share
    index = RawVectors(brute_force(data_type, DIM, Metric(metric)), rows)
    mask = None if visible is None else RowMask.from_bool(visible)
    hits = index.search(sought[:queries], 7, SearchParams(), mask)
    truth = scores(sought[:queries], rows.astype(np.float64), metric)
    assert recall(hits.rows, best(truth, 7, metric, visible)) >= 0.98  # of equal scores either row is right
    np.testing.assert_allclose(
        hits.distances, np.take_along_axis(truth, hits.rows, axis=1), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("data_type", TYPES)
def test_growing_rows_stay_where_they_are(data_type: DataType) -> None:
    rows, _ = rows_of(data_type)
    index = RawVectors(brute_force(data_type, DIM, Metric.L2), rows)
    assert index.memory_bytes == rows.nbytes == ROWS * DIM * 2
    assert np.shares_memory(index._exact.stored, rows)


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["FLAT", "HNSW", "IVF_FLAT", "IVF_SQ8", "AUTOINDEX"])
def test_every_kind_is_built_saved_and_gives_its_vectors_back(
    data_type: DataType, metric: str, kind: str, tmp_path: Path
) -> None:
    rows, sought = rows_of(data_type)
    spec = spec_of(kind, metric, data_type)
    index = build(spec, rows, threads=1)
    index.save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    assert isinstance(loaded, VectorIndex)
    hits = loaded.search(sought, 10, PARAMS)
    assert np.array_equal(hits.rows, index.search(sought, 10, PARAMS).rows)  # type: ignore[attr-defined]
    truth = best(scores(sought, rows.astype(np.float64), metric), 10, metric)
    assert recall(hits.rows, truth) >= (0.85 if kind == "IVF_SQ8" else 0.97)
    assert loaded.has_raw_vectors == (kind != "IVF_SQ8")
    if loaded.has_raw_vectors:
        numbers = np.array([7, 3, ROWS - 1])
        again = loaded.reconstruct(numbers)
        assert again.dtype == TYPES[data_type]
        assert again.tobytes() == rows[numbers].tobytes()


@pytest.mark.parametrize("data_type", TYPES)
def test_a_flat_file_holds_two_bytes_a_value(data_type: DataType, tmp_path: Path) -> None:
    rows, _ = rows_of(data_type)
    build(spec_of("FLAT", "L2", data_type), rows, threads=1).save(tmp_path / "index")
    assert (tmp_path / "index").stat().st_size < rows.nbytes + 2000
