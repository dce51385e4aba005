"""Collections and rows for the storage tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.storage.binlog import SegmentKey

KEY = SegmentKey(CollectionID(7), PartitionID(8), SegmentID(9), "by-dev-rootcoord-dml_0_7v0")
DIM = 4

EVERY_TYPE = CollectionSchema(
    "every",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "flag", DataType.BOOL),
        FieldSchema(FieldID(102), "i8", DataType.INT8),
        FieldSchema(FieldID(103), "i16", DataType.INT16),
        FieldSchema(FieldID(104), "i32", DataType.INT32),
        FieldSchema(FieldID(105), "f32", DataType.FLOAT),
        FieldSchema(FieldID(106), "f64", DataType.DOUBLE),
        FieldSchema(FieldID(107), "name", DataType.VARCHAR, max_length=100, nullable=True),
        FieldSchema(FieldID(108), "vector", DataType.FLOAT_VECTOR, dim=DIM),
        FieldSchema(FieldID(109), "bits", DataType.BINARY_VECTOR, dim=16),
        FieldSchema(FieldID(110), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)


def vector_column(matrix: np.ndarray) -> pa.Array:
    """A float matrix (rows, dim) as a column of vectors."""
    item = pa.field("item", pa.float32(), nullable=False)
    flat = pa.array(np.ascontiguousarray(matrix, dtype=np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, matrix.shape[1]))


def rows_of_every_type(count: int, first: int = 0) -> pa.RecordBatch:
    """Rows first … first + count - 1; each value names its row."""
    numbers = np.arange(first, first + count)
    return pa.record_batch(
        [
            pa.array(numbers, pa.int64()),
            pa.array(numbers % 2 == 0),
            pa.array((numbers % 100).astype(np.int8)),
            pa.array((numbers % 30_000).astype(np.int16)),
            pa.array(numbers.astype(np.int32)),
            pa.array(numbers.astype(np.float32) / 2),
            pa.array(numbers.astype(np.float64) / 4),
            pa.array([None if n % 3 == 0 else f"näme {n}" for n in numbers], pa.string()),
            vector_column(numbers[:, None] + np.arange(DIM) / 8),
            pa.array([int(n % 65_536).to_bytes(2, "big") for n in numbers], pa.binary(2)),
            pa.array([f'{{"n":{n}}}' for n in numbers], pa.string()),
        ],
        schema=EVERY_TYPE.arrow_schema,
    )
