"""Moments and geometries in files: imported, written, loaded, filtered, read by Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log
from pyspark.sql.pandas.types import to_arrow_schema

from elanus.api.querynode import LoadSegment
from elanus.core.catalog import Checkpoint
from elanus.core.errors import InvalidParameter
from elanus.core.geometry import texts_of
from elanus.core.given_types import check_columns
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.moments import IN_UTC
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.structs import StructSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.expr import compile_filter
from elanus.pipeline.import_columns import Place, convert
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.sealed import load_sealed
from elanus.spark.segment import SegmentRead, read_segment
from elanus.spark.source import as_spark, spark_schema
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.local import LocalStore

KEY = SegmentKey(CollectionID(7), PartitionID(8), SegmentID(9), "by-dev-rootcoord-dml_0_7v0")
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "t", DataType.TIMESTAMPTZ, nullable=True),
        FieldSchema(FieldID(102), "place", DataType.GEOMETRY, default_value="POINT (0 0)"),
        FieldSchema(FieldID(103), "v", DataType.FLOAT_VECTOR, dim=2),
    ),
)
MOMENTS = ["2025-01-01T00:00:00Z", None, "2025-06-01T12:00:00.5Z"]
PLACES = ["POINT (1 2)", "POINT (0 0)", "POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0))"]


def imported(moments: pa.Array, places: pa.Array) -> pa.RecordBatch:
    vectors = pa.array([[0.0, 1.0]] * 3, pa.list_(pa.float32()))
    batch = pa.record_batch({"id": pa.array(range(3)), "t": moments, "place": places, "v": vectors})
    check_columns(SCHEMA, batch.schema, "file.parquet")
    found = convert(SCHEMA, batch, None, Place("file.parquet", 0, 100))
    assert found.schema.equals(SCHEMA.arrow_schema)
    return found


NAIVE = [datetime(2025, 1, 1), None, datetime(2025, 6, 1, 12, 0, 0, 500_000)]
WKB = imported(pa.array(MOMENTS), pa.array(PLACES)).column("place")


@pytest.mark.parametrize(
    ("moments", "places"),
    [
        (pa.array(["2025-01-01 00:00:00", None, MOMENTS[2]]), pa.array(["POINT(1 2)", None, PLACES[2]])),
        (pa.array(NAIVE, pa.timestamp("ns")), WKB),
        (pa.array([t and t.replace(tzinfo=UTC) for t in NAIVE], pa.timestamp("us", "Asia/Tokyo")), WKB),
        (pa.array(MOMENTS, pa.large_string()), WKB.cast(pa.large_binary())),
    ],
)
def test_imports_of_every_form(moments: pa.Array, places: pa.Array) -> None:
    found = imported(moments, places)
    assert IN_UTC.texts(found.column("t")).to_pylist() == MOMENTS
    assert texts_of(found.column("place")).to_pylist() == PLACES


def test_imports_that_do_not_fit() -> None:
    with pytest.raises(InvalidParameter, match=r"row 101: field t holds no moment: .*'noon'"):
        imported(pa.array([MOMENTS[0], "noon", None]), pa.array(PLACES))
    with pytest.raises(InvalidParameter, match=r"row 102: field place holds no geometry: .*'POINT\(1'"):
        imported(pa.array(MOMENTS), pa.array(["POINT(1 2)", None, "POINT(1"]))
    with pytest.raises(InvalidParameter, match=r"row 100: field place holds no geometry: .*no geometry"):
        imported(pa.array(MOMENTS), pa.array([b"\x01\x02", None, None]))


def test_a_segment_is_filtered_and_read_by_spark(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    rows = imported(pa.array(MOMENTS), pa.array(PLACES))
    batch = with_system_columns(rows, 0, Timestamp(5), insert_log_schema(SCHEMA, KEY))
    file = write_insert_log(store, "insert_log/a.parquet", SCHEMA, KEY, [batch], tmp_path)
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, (file,), (), NO_TIMESTAMP
    )
    load = LoadSegment(KEY.collection_id, manifest, (), (), Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0))
    (block,) = load_sealed(load, SCHEMA, {}, store, DeltaLogs(store, 1), tmp_path).blocks
    text = "t >= ISO '2025-06-01T00:00:00Z' and st_contains(place, 'POINT (1 1)')"
    chosen = compile_filter(text, SCHEMA)
    assert block.evaluate(chosen).listed().tolist() == [2]
    assert block.cached_bytes >= 3 * 32
    assert block.narrow(Timestamp(9), np.arange(3), compile_filter("place is not null", SCHEMA)).size == 3
    assert not block.may_match(compile_filter("t > ISO '2025-07-01T00:00:00Z'", SCHEMA))

    read = SegmentRead(store.url, SCHEMA, manifest, (), Timestamp(9), ("id", "t", "place"), "t is not null")
    target = to_arrow_schema(spark_schema(SCHEMA, ("id", "t", "place")), timezone="UTC")
    (found,) = [as_spark(part, SCHEMA, target) for part in read_segment(read, store)]
    assert found.column("t").to_pylist() == [NAIVE[n].replace(tzinfo=UTC) for n in (0, 2)]
    assert texts_of(found.column("place")).to_pylist() == [PLACES[0], PLACES[2]]


CLIPS = CollectionSchema(
    "films",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(
            FieldID(101),
            "clips[title]",
            DataType.ARRAY,
            element_type=DataType.VARCHAR,
            max_length=9,
            max_capacity=3,
            nullable=True,
        ),
        FieldSchema(
            FieldID(102),
            "clips[seconds]",
            DataType.ARRAY,
            element_type=DataType.INT32,
            max_capacity=3,
            nullable=True,
        ),
    ),
    structs=(StructSchema(FieldID(103), "clips", nullable=True),),
)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_a_list_of_structs_is_imported_as_one_list_a_field(
    kind: Callable[[pa.DataType], pa.DataType],
) -> None:
    clip = pa.struct([("seconds", pa.int64()), ("title", pa.string())])
    values = [None, [{"title": "one", "seconds": 3}, {"title": "two", "seconds": 5}], [], [None]]
    batch = pa.record_batch({"id": pa.array(range(4), pa.int64()), "clips": pa.array(values, kind(clip))})
    check_columns(CLIPS, batch.schema, "file.parquet")
    for start in (0, 1):
        found = convert(CLIPS, batch.slice(start, 3 - start), None, Place("file.parquet", 0, 0))
        assert found.column("clips[title]").to_pylist() == [None, ["one", "two"], []][start:]
        assert found.column("clips[seconds]").to_pylist() == [None, [3, 5], []][start:]
    with pytest.raises(InvalidParameter, match=r"row 3: field clips.* holds a null at position 0"):
        convert(CLIPS, batch, None, Place("file.parquet", 0, 0))


def test_lists_of_different_lengths_are_no_structs() -> None:
    columns = {"id": pa.array([1]), "clips[title]": pa.array([["a"]]), "clips[seconds]": pa.array([[1, 2]])}
    batch = pa.record_batch(columns)
    check_columns(CLIPS, batch.schema, "file.parquet")
    with pytest.raises(InvalidParameter, match=r"inconsistent array length in .*clips, row 0"):
        convert(CLIPS, batch, None, Place("file.parquet", 0, 0))
