"""Vectors of half precision in files: imported, written, merged, read by rows, read by Spark."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from insert_log_files import read_vectors
from vector_files import compacted, imported, of_field, read_by_spark, written

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.querynode.vectors import VectorColumn
from elanus.storage.local import LocalStore
from elanus.storage.parquet import data_type_of

DIM, ROWS = 4, 300
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "half", DataType.FLOAT16_VECTOR, dim=DIM),
        FieldSchema(FieldID(102), "brain", DataType.BFLOAT16_VECTOR, dim=DIM),
        FieldSchema(FieldID(103), "bits", DataType.BINARY_VECTOR, dim=2 * 8 * DIM),
    ),
)
FLOATS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
MATRICES = {
    "half": FLOATS.astype(np.float16),
    "brain": FLOATS.astype(ml_dtypes.bfloat16),
    "bits": np.random.default_rng(1).integers(0, 256, (ROWS, 2 * DIM), np.uint8),
}


def rows() -> pa.RecordBatch:
    columns = [pa.array(range(ROWS)), *(SCHEMA.field(n).vector.to_column(m) for n, m in MATRICES.items())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def manifest(store: LocalStore, tmp_path: Path) -> SegmentManifest:
    return written(store, SCHEMA, rows(), tmp_path)


def test_a_file_distinguishes_types_of_one_arrow_type(store: LocalStore, manifest: SegmentManifest) -> None:
    with pq.ParquetFile(store.open(manifest.insert_logs[0].path)) as parquet:
        schema = parquet.schema_arrow
    assert len({schema.field(name).type for name in MATRICES}) == 1
    for name in MATRICES:
        assert data_type_of(schema.field(name)) is SCHEMA.field(name).data_type


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("mapped", [False, True])
def test_vectors_are_read_as_they_were_written(
    name: str, mapped: bool, store: LocalStore, manifest: SegmentManifest, tmp_path: Path
) -> None:
    found = read_vectors(store, manifest, name, tmp_path if mapped else None)
    assert found.dtype == MATRICES[name].dtype
    assert found.tobytes() == MATRICES[name].tobytes()
    wanted = np.array([7, 299, 0])
    taken = VectorColumn.filed(SCHEMA.field(name), None, store, manifest.insert_logs).take(wanted)
    assert taken.equals(SCHEMA.field(name).vector.to_column(MATRICES[name][wanted]))


def test_compaction_keeps_them(store: LocalStore, manifest: SegmentManifest, tmp_path: Path) -> None:
    assert compacted(store, SCHEMA, manifest, tmp_path).equals(pa.Table.from_batches([rows()]))


def test_spark_reads_lists_of_floats(store: LocalStore, manifest: SegmentManifest) -> None:
    table = read_by_spark(store, SCHEMA, manifest, ("id", *MATRICES))
    assert table.schema.field("half").type.value_type == pa.float32()
    for name in ("half", "brain"):
        found = table.column(name).combine_chunks().flatten().to_numpy().reshape(ROWS, DIM)
        assert np.array_equal(found, MATRICES[name].astype(np.float32))


def taken_in(name: str, values: pa.Array) -> bytes:
    part = of_field(SCHEMA, name)
    return bytes(part.field(name).vector.to_matrix(imported(part, {name: values})[name]).tobytes())


@pytest.mark.parametrize("name", ["half", "brain"])
@pytest.mark.parametrize(
    "form",
    [
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float32(), DIM),
        pa.binary(),
        pa.large_binary(),
        pa.binary(2 * DIM),
        pa.list_(pa.uint8()),
    ],
)
def test_imports_of_every_form(name: str, form: pa.DataType) -> None:
    matrix = MATRICES[name]
    if pa.types.is_nested(form) and pa.types.is_floating(form.value_type):
        values = pa.array(matrix.astype(np.float32).tolist(), form)
    elif pa.types.is_nested(form):
        values = pa.array([list(row.tobytes()) for row in matrix], form)
    else:
        values = pa.array([row.tobytes() for row in matrix], form)
    assert taken_in(name, values) == matrix.tobytes()


def test_imports_that_do_not_fit() -> None:
    assert taken_in("brain", pa.array([[7e4] * DIM])) == np.full(DIM, 7e4, ml_dtypes.bfloat16).tobytes()
    with pytest.raises(InvalidParameter, match=r"row 100: field half holds 70000.0 at position 1.*float16"):
        taken_in("half", pa.array([[1.0, 7e4, 1.0, 1.0]]))
    infinite = np.array([1, 2, np.inf, 4], ml_dtypes.bfloat16).tobytes()
    with pytest.raises(InvalidParameter, match=r"row 101: field brain holds inf at position 2.*bfloat16"):
        taken_in("brain", pa.array([bytes(2 * DIM), infinite]))
    with pytest.raises(InvalidParameter, match="has 7 bytes, its dimension asks for 8"):
        taken_in("half", pa.array([bytes(7)]))
    with pytest.raises(InvalidParameter, match="does not fit field half of type FLOAT16_VECTOR with dim 4"):
        taken_in("half", pa.array(["text"]))
