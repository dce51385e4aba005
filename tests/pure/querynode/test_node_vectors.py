"""Vectors that only files hold are found there, row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log

from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.querynode.vectors import VectorColumn
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.local import LocalStore

KEY = SegmentKey(CollectionID(7), PartitionID(1), SegmentID(5), "by-dev-rootcoord-dml_0_7v0")


def matrix_of(field: FieldSchema, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if field.data_type is DataType.BINARY_VECTOR:
        return rng.integers(0, 256, (rows, field.dim // 8), dtype=np.uint8)
    return rng.random((rows, field.dim), dtype=np.float32)


@pytest.mark.parametrize(
    ("data_type", "dim"), [(DataType.FLOAT_VECTOR, 1024), (DataType.BINARY_VECTOR, 8192)]
)
def test_rows_come_from_the_right_file_and_row_group(data_type: DataType, dim: int, tmp_path: Path) -> None:
    field = FieldSchema(FieldID(101), "vector", data_type, dim=dim)
    schema = CollectionSchema(
        "docs", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True), field)
    )
    store = LocalStore(tmp_path / "store")
    counts = (10_000 if data_type is DataType.BINARY_VECTOR else 3000, 7)  # more than a row group, and less
    files, matrices = [], []
    for number, rows in enumerate(counts):
        matrices.append(matrix_of(field, rows, number))
        batch = pa.record_batch(
            [pa.array(np.arange(rows)), field.vector.to_column(matrices[-1])],
            schema=schema.arrow_schema,
        )
        logged = with_system_columns(batch, 0, Timestamp(number + 1), insert_log_schema(schema, KEY))
        files.append(write_insert_log(store, f"insert_log/{number}.parquet", schema, KEY, [logged], tmp_path))

    rows = np.array([counts[0] - 1, 0, counts[0] + 6, 2999, counts[0], 0, 2500])
    taken = VectorColumn.filed(field, None, store, files).take(rows)
    assert taken.equals(field.vector.to_column(np.concatenate(matrices)[rows]))
    assert taken.type == field.arrow_type


@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.BINARY_VECTOR])
def test_no_rows_are_an_empty_column(data_type: DataType) -> None:
    field = FieldSchema(FieldID(101), "vector", data_type, dim=16)
    column = field.vector.to_column(matrix_of(field, 0, 0))
    assert (len(column), column.type) == (0, field.arrow_type)
