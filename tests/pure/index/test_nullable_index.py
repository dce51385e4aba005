"""Rows of which none has a vector: every search over them finds nothing, whatever the type."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.metrics import Metric
from elanus.core.nullable import NullableVectors
from elanus.core.sparse import padded
from elanus.core.types import DataType
from elanus.index import SearchParams, VectorIndex, brute_force, build, load, resolve_index
from elanus.index.resolve import over_rows

ROWS = 3
CASES = [
    (DataType.FLOAT_VECTOR, 4, Metric.L2, "HNSW"),
    (DataType.FLOAT16_VECTOR, 4, Metric.COSINE, "FLAT"),
    (DataType.INT8_VECTOR, 4, Metric.IP, "HNSW"),
    (DataType.BINARY_VECTOR, 16, Metric.HAMMING, "BIN_FLAT"),
    (DataType.SPARSE_FLOAT_VECTOR, 0, Metric.IP, "SPARSE_INVERTED_INDEX"),
    (DataType.SPARSE_FLOAT_VECTOR, 0, Metric.BM25, "SPARSE_INVERTED_INDEX"),
]


def without_vectors(data_type: DataType, dim: int, metric: Metric) -> NullableVectors:
    form = brute_force(data_type, dim, metric).form
    none = form.to_matrix(pa.array([], form.arrow_type(dim)))
    return NullableVectors(none, np.zeros(ROWS, np.bool_))


def two_queries(data_type: DataType, dim: int, metric: Metric) -> Any:
    if not dim:
        return padded([struct.pack("<If", 7, 1.0), b""])
    form = brute_force(data_type, dim, metric).form
    return form.compared(np.ones((2, form.width(dim)), form.dtype))


def assert_finds_nothing(index: VectorIndex, queries: Any) -> None:
    found = index.search(queries, ROWS, SearchParams())
    assert index.rows == ROWS
    assert found.rows.shape == (2, ROWS)
    assert (found.rows < 0).all()


@pytest.mark.parametrize(("data_type", "dim", "metric", "kind"), CASES)
def test_a_search_of_rows_without_vectors_finds_nothing(
    data_type: DataType, dim: int, metric: Metric, kind: str, tmp_path: Path
) -> None:
    vectors, queries = without_vectors(data_type, dim, metric), two_queries(data_type, dim, metric)
    assert_finds_nothing(over_rows(data_type, dim, metric, vectors), queries)
    spec = resolve_index({"index_type": kind, "metric_type": metric.value}, data_type, dim)
    built = build(spec, vectors, threads=1)
    assert isinstance(built, VectorIndex)
    assert_finds_nothing(built, queries)
    built.save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    assert isinstance(loaded, VectorIndex)
    assert_finds_nothing(loaded, queries)
