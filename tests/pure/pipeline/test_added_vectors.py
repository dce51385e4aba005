"""A nullable vector field that was added later: the rows of files that lack it have no vector."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from insert_log_files import read_vectors
from test_added_functions import OLD, lacks, rows_of, written

from elanus.api.datanode import CompactionOrder
from elanus.core.field_changes import with_added_field
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.nullable import NullableVectors
from elanus.core.schema import DataType, FieldSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.pipeline.merge import merge_segments
from elanus.querynode.vectors import VectorColumn
from elanus.storage.computed import read_field_vectors
from elanus.storage.local import LocalStore

WIDE = with_added_field(OLD, FieldSchema(FieldID(0), "w", DataType.FLOAT_VECTOR, dim=2, nullable=True))


def with_vectors(keys: list[int]) -> pa.RecordBatch:
    """Rows whose every second one has a vector."""
    batch = rows_of(OLD, keys, ["x"] * len(keys))
    column = pa.array([[k, -k] if k % 2 else None for k in keys], WIDE.field("w").arrow_type)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=WIDE.arrow_schema)


def test_files_without_the_field_and_files_with_it(tmp_path: Path) -> None:
    store, field = LocalStore(tmp_path / "files"), WIDE.field("w")
    old = written(store, tmp_path, OLD, rows_of(OLD, [1, 2], ["a", "b"]))
    new = written(store, tmp_path, WIDE, with_vectors([3, 4, 5]))
    files = (*old.insert_logs, *new.insert_logs)
    assert [lacks(store, m, WIDE, "w") for m in (old, new)] == [True, False]
    for scratch in (None, tmp_path):
        found = read_field_vectors(store, files, None, field, scratch)
        assert isinstance(found, NullableVectors)
        assert found.valid.tolist() == [False, False, True, False, True]
        assert found.vectors.tolist() == [[3, -3], [5, -5]]
    column = VectorColumn.read_once(field, None, lambda: found)
    assert column.take(np.array([4, 0, 2])).to_pylist() == [[5, -5], None, [3, -3]]
    alone = read_field_vectors(store, old, None, field)
    assert alone.valid.tolist() == [False, False]
    none = VectorColumn.read_once(field, None, lambda: alone)
    assert none.take(np.array([1, 0])).to_pylist() == [None, None]

    order = CompactionOrder(
        1,
        1,
        CollectionID(7),
        PartitionID(8),
        old.vchannel,
        SegmentID(9),
        WIDE,
        (old, new),
        (),
        Timestamp(9),
        NO_TIMESTAMP,
    )
    output = merge_segments(order, store, tmp_path, "merged")
    merged = replace(old, segment_id=SegmentID(9), insert_logs=output.insert_logs)
    assert not lacks(store, merged, WIDE, "w")
    assert read_vectors(store, merged, "w").valid.tolist() == [False, False, True, False, True]
