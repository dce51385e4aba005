"""A function that was added later: jobs compute its vectors from the texts of files that lack them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import read_vectors, write_insert_log

from elanus.api.datanode import CompactionOrder
from elanus.core.errors import Internal
from elanus.core.function_changes import with_added_function, with_dropped_function
from elanus.core.functions import Function
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.sparse import SparseRows
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.pipeline.merge import merge_segments
from elanus.spark.segment import SegmentRead, read_segment
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.computed import read_field_vectors
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.local import LocalStore
from elanus.text import with_computed_columns

CID, PID, VCHANNEL = CollectionID(7), PartitionID(8), "by-dev-rootcoord-dml_0_7v0"
OLD = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(
            FieldID(101), "text", DataType.VARCHAR, max_length=64, params={"enable_analyzer": "true"}
        ),
        FieldSchema(FieldID(102), "v", DataType.FLOAT_VECTOR, dim=2),
    ),
)
TERMS = FieldSchema(FieldID(0), "terms", DataType.SPARSE_FLOAT_VECTOR)
NEAR = FieldSchema(FieldID(0), "near", DataType.BINARY_VECTOR, dim=64)
NEW = with_added_function(
    with_added_function(OLD, TERMS, Function("bm25", "BM25", ("text",), ("terms",))),
    NEAR,
    Function("minhash", "MinHash", ("text",), ("near",)),
)
BEFORE, AFTER = ["to be or not to be", "to sleep"], ["that is the question", "to die"]


def rows_of(schema: CollectionSchema, keys: list[int], texts: list[str]) -> pa.RecordBatch:
    given: dict[str, Any] = {"id": keys, "text": texts, "v": [[1.0, 2.0]] * len(keys)}
    filler = {"terms": [b""] * len(keys), "near": [bytes(8)] * len(keys)}
    columns = [pa.array((given | filler)[f.name], f.arrow_type) for f in schema.fields]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    return with_computed_columns(schema, batch)


def written(
    store: LocalStore, scratch: Path, schema: CollectionSchema, batch: pa.RecordBatch
) -> SegmentManifest:
    segment = SegmentID(int(batch.column("id")[0].as_py()))
    key = SegmentKey(CID, PID, segment, VCHANNEL)
    batches = [with_system_columns(batch, 0, Timestamp(5), insert_log_schema(schema, key))]
    file = write_insert_log(store, f"insert_log/{segment}.parquet", schema, key, batches, scratch)
    return SegmentManifest(segment, CID, PID, VCHANNEL, (file,), (), NO_TIMESTAMP)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def lacks(store: LocalStore, manifest: SegmentManifest, schema: CollectionSchema, name: str) -> bool:
    """Whether a file of the segment is older than the field."""
    with InsertLogs(store, [manifest], schema) as logs:
        logs.columns(["id"])
        return logs.lacks(schema.field(name))


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, SparseRows):
        return bool(found.to_column().equals(wanted.to_column()))
    return bool(np.array_equal(found, wanted))


@pytest.mark.parametrize("name", ["terms", "near"])
@pytest.mark.parametrize("mapped", [False, True])
def test_vectors_are_computed_where_files_lack_them(
    name: str, mapped: bool, store: LocalStore, tmp_path: Path
) -> None:
    old = written(store, tmp_path, OLD, rows_of(OLD, [1, 2], BEFORE))
    new = written(store, tmp_path, NEW, rows_of(NEW, [3, 4], AFTER))
    whole = written(store, tmp_path, NEW, rows_of(NEW, [5, 6, 7, 8], BEFORE + AFTER))
    field, files = NEW.field(name), (*old.insert_logs, *new.insert_logs)
    wanted = read_vectors(store, whole, name)
    scratch = tmp_path if mapped else None
    assert same(read_field_vectors(store, files, NEW, field, scratch), wanted)
    assert [lacks(store, m, NEW, name) for m in (old, new, whole)] == [True, False, False]
    with pytest.raises(Internal, match=f"computes field {name}"):
        read_field_vectors(store, files, None, field)


def test_vectors_of_a_function_that_was_dropped_are_those_of_another_field(
    store: LocalStore, tmp_path: Path
) -> None:
    stale = rows_of(NEW, [1, 2], BEFORE)
    place = stale.schema.get_field_index("near")
    stale = stale.set_column(
        place, stale.schema.field(place), pa.array([bytes(8)] * 2, stale.schema.types[place])
    )
    old = written(store, tmp_path, NEW, stale)
    again = with_added_function(
        with_dropped_function(NEW, "minhash", with_outputs=True), NEAR, NEW.functions[1]
    )
    assert read_field_vectors(store, old, NEW, NEW.field("near")).any() == False  # noqa: E712
    found = read_field_vectors(store, old, again, again.field("near"))
    assert same(
        found, read_vectors(store, written(store, tmp_path, NEW, rows_of(NEW, [5, 6], BEFORE)), "near")
    )


def test_compaction_writes_them(store: LocalStore, tmp_path: Path) -> None:
    old = written(store, tmp_path, OLD, rows_of(OLD, [1, 2], BEFORE))
    new = written(store, tmp_path, NEW, rows_of(NEW, [3, 4], AFTER))
    order = CompactionOrder(
        1, 1, CID, PID, VCHANNEL, SegmentID(9), NEW, (old, new), (), Timestamp(9), NO_TIMESTAMP
    )
    output = merge_segments(order, store, tmp_path, "merged")
    merged = replace(old, segment_id=SegmentID(9), insert_logs=output.insert_logs)
    whole = written(store, tmp_path, NEW, rows_of(NEW, [5, 6, 7, 8], BEFORE + AFTER))
    for name in ("terms", "near"):
        assert not lacks(store, merged, NEW, name)
        assert same(read_vectors(store, merged, name), read_vectors(store, whole, name))


def test_an_index_is_built_over_them(store: LocalStore, tmp_path: Path) -> None:
    old = written(store, tmp_path, OLD, rows_of(OLD, [1, 2], BEFORE))
    plan = IndexBuildPlan(
        attempt="a",
        build_id=BuildID(1),
        version=1,
        index_id=IndexID(1),
        field=NEW.field("terms"),
        params={"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"},
        manifest=old,
        threads=1,
        store_url="",
        scratch_dir="",
        schema=NEW,
    )
    assert build_index_file(plan, store, tmp_path, "index").rows == 2


def test_spark_reads_them(store: LocalStore, tmp_path: Path) -> None:
    old = written(store, tmp_path, OLD, rows_of(OLD, [1, 2], BEFORE))
    read = SegmentRead("", NEW, old, (), Timestamp(9), ("id", "near"))
    (batch,) = read_segment(read, store)
    assert batch.column("near").to_pylist() == rows_of(NEW, [1, 2], BEFORE).column("near").to_pylist()
