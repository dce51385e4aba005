"""Bytes that an index holds: narrow vectors stay narrow, and the vectors of DISKANN stay on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from index_data import best, recall, scores

from elanus.core.types import DataType
from elanus.index import RowMask, SearchParams, VectorIndex, build, load, resolve_index
from elanus.index.files import DamagedIndexFile, FiledArray
from elanus.index.narrow_units import NarrowUnits

ROWS, DIM, K = 400, 768, 10
RNG = np.random.default_rng(8)
FLOATS = RNG.normal(size=(ROWS, DIM)).astype(np.float32)
FLOATS /= np.linalg.norm(FLOATS, axis=1, keepdims=True)
DTYPES: dict[DataType, Any] = {
    DataType.FLOAT_VECTOR: np.float32,
    DataType.FLOAT16_VECTOR: np.float16,
    DataType.BFLOAT16_VECTOR: ml_dtypes.bfloat16,
    DataType.INT8_VECTOR: np.int8,
}


def rows_of(data_type: DataType) -> np.ndarray:
    scale = 127 / np.abs(FLOATS).max() if data_type is DataType.INT8_VECTOR else 1
    return np.asarray((FLOATS * scale).round() if scale != 1 else FLOATS).astype(DTYPES[data_type])


def index_of(kind: str, data_type: DataType, metric: str, path: Path, **params: str) -> VectorIndex:
    """The index as it is after a load."""
    sent = {"index_type": kind, "metric_type": metric} | params
    spec = resolve_index(sent, data_type, DIM)
    build(spec, rows_of(data_type), threads=1).save(path)
    index = load(path, spec)
    assert isinstance(index, VectorIndex)
    return index


KINDS = {"HNSW": {"efConstruction": "40"}, "IVF_FLAT": {"nlist": "4"}}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize(
    ("data_type", "share"),
    [(DataType.INT8_VECTOR, 0.3), (DataType.FLOAT16_VECTOR, 0.55), (DataType.BFLOAT16_VECTOR, 0.55)],
)
def test_narrow_vectors_stay_narrow(
    data_type: DataType, share: float, metric: str, kind: str, tmp_path: Path
) -> None:
    narrow = index_of(kind, data_type, metric, tmp_path / "a", **KINDS[kind])
    floats = index_of(kind, DataType.FLOAT_VECTOR, metric, tmp_path / "b", **KINDS[kind])
    assert narrow.memory_bytes <= share * floats.memory_bytes
    assert (tmp_path / "a").stat().st_size <= share * (tmp_path / "b").stat().st_size
    rows = rows_of(data_type)
    queries = rows[:20].astype(np.float32) + 1 / 3
    truth = scores(queries, rows.astype(np.float64), metric)
    hits = narrow.search(queries, K, SearchParams(ef=64))
    assert recall(hits.rows, best(truth, K, metric)) >= 0.98
    np.testing.assert_allclose(
        hits.distances, np.take_along_axis(truth, hits.rows, axis=1), rtol=1e-4, atol=1e-5
    )
    assert narrow.has_raw_vectors
    assert narrow.reconstruct(np.arange(ROWS)).tobytes() == rows.tobytes()


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("spread", [1.0, 3.0, 1e3])
@pytest.mark.parametrize("data_type", list(DTYPES)[1:])
def test_narrow_vectors_of_different_lengths_under_cosine(
    data_type: DataType, spread: float, kind: str, tmp_path: Path
) -> None:
    """Whether the index holds rounded unit vectors or not, what was sent comes back, and scores are exact."""
    lengths = RNG.uniform(1 / spread, 1, ROWS)[:, None]
    rows = (rows_of(data_type)[:, :40].astype(np.float32) * lengths).astype(DTYPES[data_type])
    rows[7] = 0
    rows[8, 1:] = 0
    spec = resolve_index({"index_type": kind, "metric_type": "COSINE", **KINDS[kind]}, data_type, 40)
    build(spec, rows, threads=1).save(tmp_path / "index")
    index = load(tmp_path / "index", spec)
    assert isinstance(index, VectorIndex)
    assert index.reconstruct(np.arange(ROWS)).tobytes() == rows.tobytes()
    queries = rows[20:30].astype(np.float32)
    hits = index.search(queries, ROWS, SearchParams(ef=ROWS))
    truth = scores(queries, rows.astype(np.float64), "COSINE")
    np.testing.assert_allclose(
        hits.distances, np.take_along_axis(truth, hits.rows, axis=1), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(("data_type", "bits"), [(DataType.INT8_VECTOR, 1), (DataType.FLOAT16_VECTOR, 2)])
def test_rounded_unit_vectors_take_a_bit_or_two_for_the_way_back(data_type: DataType, bits: int) -> None:
    rows = rows_of(data_type)
    units = NarrowUnits.of(rows if data_type is DataType.INT8_VECTOR else rows * np.float16(3.7))
    assert units is not None
    assert units.memory_bytes == ROWS * (4 + bits * DIM // 8)


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.BFLOAT16_VECTOR])
def test_the_vectors_of_diskann_stay_on_disk(
    data_type: DataType, metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of("DISKANN", data_type, metric, tmp_path / "index")
    rows = rows_of(data_type)
    assert index.disk_bytes == rows.nbytes
    table_bytes = DIM * 16 * 4  # the codewords, which do not grow with the rows
    assert index.memory_bytes <= (tmp_path / "index").stat().st_size - index.disk_bytes + ROWS * 4
    assert index.memory_bytes - table_bytes <= ROWS * (DIM // 4 + 4 * 2 * 16 + 40)
    assert index.memory_bytes - table_bytes <= 0.15 * ROWS * DIM * 4
    (tmp_path / "index").unlink()  # as the load of a segment does
    read: list[int] = []
    whole = FiledArray.read

    def counting(array: FiledArray, wanted: Any) -> np.ndarray:
        found = whole(array, wanted)
        read.append(len(found))
        return found

    monkeypatch.setattr(FiledArray, "read", counting)
    queries = rows[:1].astype(np.float32) + 0.01
    truth = scores(queries, rows.astype(np.float64), metric)
    hits = index.search(queries, K, SearchParams(search_list=60))
    assert recall(hits.rows, best(truth, K, metric)) >= 0.8
    assert read == [60], "as many rows are read as the search list holds"
    visible = RNG.random(ROWS) < 0.05
    hits = index.search(queries, K, SearchParams(search_list=60), RowMask.from_bool(visible))
    assert np.array_equal(hits.rows, best(truth, K, metric, visible)), "few visible rows are all compared"
    assert sum(read) <= 60 + ROWS
    wanted = np.array([399, 3, 4, 5, 0])
    assert index.reconstruct(wanted).tobytes() == rows[wanted].tobytes()


def test_consecutive_rows_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "array"
    values = np.arange(60, dtype=np.int32).reshape(20, 3)
    path.write_bytes(b"12345678" + values.tobytes())
    array = FiledArray(path, {"shape": [20, 3], "dtype": "<i4", "offset": 8})
    calls: list[tuple[str, int, int]] = []
    read, ahead = os.preadv, os.posix_fadvise

    def reading(file: int, into: Any, offset: int) -> int:
        calls.append(("read", offset, len(into[0])))
        return read(file, into, offset)

    def reading_ahead(file: int, offset: int, size: int, advice: int) -> None:
        calls.append(("ahead", offset, size))
        ahead(file, offset, size, advice)

    monkeypatch.setattr(os, "preadv", reading)
    monkeypatch.setattr(os, "posix_fadvise", reading_ahead)
    wanted = np.array([7, 2, 3, 19, 8, 4])
    assert np.array_equal(array.read(wanted), values[wanted])
    runs = [(8 + 2 * 12, 36), (8 + 7 * 12, 24), (8 + 19 * 12, 12)]
    assert calls == [(what, *run) for what in ("ahead", "read") for run in runs], "all are asked for first"
    os.truncate(path, 20)
    with pytest.raises(DamagedIndexFile, match="truncated"):
        array.read(np.array([0, 3]))
    path.write_bytes(b"12345678" + values.tobytes())
    assert np.array_equal(array.read(slice(5, 9)), values[5:9])
