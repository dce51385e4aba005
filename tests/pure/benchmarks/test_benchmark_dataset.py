"""Data sets of every accepted form are read alike, and exact answers are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import dataset
from benchmarks.dataset import BUCKETS, Dataset, load


def vectors(rows: int, dimension: int = 5) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, 200, (rows, dimension)).astype(np.uint8)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_npz_of_any_number_type_becomes_float32(tmp_path: Path, dtype: type[np.generic]) -> None:
    train, test = vectors(40).astype(dtype), vectors(7).astype(dtype)
    np.savez(tmp_path / "set.npz", train=train, test=test)
    data = load(tmp_path / "set.npz", rows=30, queries=5)
    assert (data.name, data.train.dtype, data.test.dtype) == ("set", np.float32, np.float32)
    np.testing.assert_array_equal(data.train, train[:30].astype(np.float32))
    np.testing.assert_array_equal(data.test, test[:5].astype(np.float32))
    assert data.train.flags.c_contiguous


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 5), pa.large_list(pa.float64())]
)
def test_parquet_keeps_its_last_rows_as_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    monkeypatch.setattr(dataset, "PARQUET_QUERIES", 3)
    rows = vectors(10).astype(np.float32)
    table = pa.table({"id": range(10), "embedding": pa.array(rows.tolist(), kind)})
    pq.write_table(table, tmp_path / "set.parquet")
    data = load(tmp_path / "set.parquet", rows=None, queries=100)
    np.testing.assert_array_equal(data.train, rows[:7])
    np.testing.assert_array_equal(data.test, rows[7:])


def test_what_cannot_be_used_is_refused_with_a_reason(tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", other=vectors(3))
    np.savez(tmp_path / "small.npz", train=vectors(3), test=vectors(3))
    pq.write_table(pa.table({"a": [[1.0]], "b": [[2.0]]}), tmp_path / "two.parquet")
    for name, rows, reason in (
        ("odd.npz", None, "train"),
        ("small.npz", 4, "fewer than the 4"),
        ("two.parquet", None, "--vector-column"),
        ("set.csv", None, "give an"),
    ):
        with pytest.raises(ValueError, match=reason):
            load(tmp_path / name, rows, queries=10)


def test_buckets_are_uniform_and_the_same_in_every_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", train=vectors(20_000, 1), test=vectors(1, 1))
    first, again = (load(tmp_path / "set.npz", None, 1).buckets for _ in range(2))
    np.testing.assert_array_equal(first, again)
    share = np.bincount(first, minlength=BUCKETS) / len(first)
    assert len(share) == BUCKETS
    assert share.min() > 0.0002
    assert share.max() < 0.0025


@pytest.mark.parametrize("below", [10, 100, 1000])
def test_exact_answers_are_those_of_a_full_sort(below: int) -> None:
    random = np.random.default_rng(5)
    train, test = (random.random((n, 8), dtype=np.float32) for n in (300, 6))
    buckets = random.integers(0, BUCKETS, 300)
    keys = np.flatnonzero(buckets < below)
    distances = ((test[:, None] - train[None, keys]) ** 2).sum(axis=2)
    expected = keys[np.argsort(distances, axis=1)][:, :10].tolist()
    assert Dataset("random", train, test, buckets).nearest(6, 10, below) == expected


def test_a_filter_that_keeps_nothing_has_no_answers() -> None:
    data = Dataset("full", vectors(4).astype(np.float32), vectors(2).astype(np.float32), np.full(4, 50))
    assert data.nearest(2, 10, bucket_below=50) == [[], []]
