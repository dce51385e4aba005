"""Run by `test_adding` on sources with two more data types: a row with both goes from client to client."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from elanus.api.querynode import LoadSegment
from elanus.core.catalog import Checkpoint
from elanus.core.given_types import check_columns
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.expr import compile_filter
from elanus.index import resolve_index, resolve_search
from elanus.log.codec import decode, encode
from elanus.log.port import LogEntry, Position
from elanus.pipeline.import_columns import Place, convert
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.results import encode_column
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.schemas import decode_schema
from elanus.proxy.wire.stubs import common_pb2, schema_pb2
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.querynode.sealed import load_sealed
from elanus.spark.segment import SegmentRead, read_segment
from elanus.spark.source import as_spark, spark_schema
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.objects import open_store

ROWS, DIM = 100, 4
KEY = SegmentKey(CollectionID(1), PartitionID(2), SegmentID(3), "c_1v0")
WHEN = np.arange(ROWS) * 1000 - 5000
VECTORS = np.zeros((ROWS, DIM), np.int8)
VECTORS[:, 0] = np.arange(ROWS) - 50
FILTER = "at < 0"
"""True for the first five rows."""


def declared() -> CollectionSchema:
    """The schema as a client sends it, with the ids that the root coordinator assigns."""
    message = schema_pb2.CollectionSchema(
        name="docs",
        fields=[
            schema_pb2.FieldSchema(name="id", data_type=schema_pb2.Int64, is_primary_key=True),
            schema_pb2.FieldSchema(name="at", data_type=schema_pb2.Date),
            schema_pb2.FieldSchema(
                name="v",
                data_type=int(DataType.TERNARY_VECTOR),
                type_params=[common_pb2.KeyValuePair(key="dim", value=str(DIM))],
            ),
        ],
    )
    schema = decode_schema(message.SerializeToString(), "docs")
    fields = [
        FieldSchema(FieldID(100 + n), f.name, f.data_type, dim=f.dim, is_primary=f.is_primary)
        for n, f in enumerate(schema.fields)
    ]
    assert [f.data_type for f in fields[1:]] == [DataType.DATE, DataType.TERNARY_VECTOR]
    return CollectionSchema("docs", tuple(fields))


def inserted(schema: CollectionSchema) -> pa.RecordBatch:
    """The rows of an insert, through the log's codec."""
    keys = schema_pb2.FieldData(field_name="id", type=schema_pb2.Int64)
    keys.scalars.long_data.data.extend(range(ROWS))
    when = schema_pb2.FieldData(field_name="at", type=schema_pb2.Date)
    when.scalars.date_data.data.extend(WHEN.tolist())
    vectors = schema_pb2.FieldData(field_name="v", type=int(DataType.TERNARY_VECTOR))
    vectors.vectors.dim = DIM
    vectors.vectors.int8_vector = VECTORS.tobytes()
    rows = decode_rows(schema, [keys, when, vectors], ROWS, with_auto_key=False)
    new = encode(
        InsertMessage(
            Timestamp(5), KEY.vchannel, KEY.collection_id, KEY.partition_id, KEY.segment_id, 0, rows
        )
    )
    data = b"".join(new.payload)
    message = decode(LogEntry(Position(0), Position(8), new.header, memoryview(data), len(data)))
    assert isinstance(message, InsertMessage)
    assert message.rows.equals(rows)
    return message.rows


def check_answers(schema: CollectionSchema, rows: pa.RecordBatch) -> None:
    for name, member in (("at", "scalars"), ("v", "vectors")):
        answer = schema_pb2.FieldData()
        encode_column(answer, name, schema.field(name), rows.column(name))
        assert answer.type == int(schema.field(name).data_type)
        if member == "scalars":
            assert list(answer.scalars.date_data.data) == WHEN.tolist()
        else:
            assert answer.vectors.int8_vector == VECTORS.tobytes()


def check_growing(schema: CollectionSchema, rows: pa.RecordBatch) -> None:
    segment = GrowingSegment(KEY.segment_id, KEY.partition_id, schema, {})
    segment.append([NewRows(rows, np.full(ROWS, 5, np.uint64))])
    chosen = compile_filter(FILTER, schema)
    assert segment.blocks[0].select(MAX_TIMESTAMP, chosen).count == 5


def check_files(schema: CollectionSchema, rows: pa.RecordBatch, directory: Path) -> None:
    """Flush, build, load, search, filter, and the read of Spark."""
    store = open_store(f"file://{directory / 'objects'}")
    batch = with_system_columns(rows, 0, Timestamp(5), insert_log_schema(schema, KEY))
    with insert_log_writer(store, "insert_log/a", schema, KEY, directory) as writer:
        writer.write(batch)
        file = writer.finish()
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, (file,), (), NO_TIMESTAMP
    )
    field, params = schema.field("v"), {"index_type": "FLAT", "metric_type": "L2"}
    plan = IndexBuildPlan("a", BuildID(1), 1, IndexID(1), field, params, manifest, 1, store.url, "")
    index = build_index_file(plan, store, directory, "b")
    spec = resolve_index(params, field.data_type, DIM)
    load = LoadSegment(
        KEY.collection_id, manifest, (index,), (), Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0)
    )
    segment = load_sealed(load, schema, {field.field_id: spec}, store, DeltaLogs(store, 1), directory)
    assert segment.blocks[0].select(MAX_TIMESTAMP, compile_filter(FILTER, schema)).count == 5
    placeholder = common_pb2.PlaceholderValue(
        tag="$0", type=common_pb2.Int8Vector, values=[VECTORS[7].tobytes()]
    )
    group = common_pb2.PlaceholderGroup(placeholders=[placeholder]).SerializeToString()
    queries = decode_queries(group, 1, field)
    hits = segment.blocks[0].vectors[field.field_id].index.search(queries, 3, resolve_search(spec, {}, 3))
    assert hits.rows[0, 0] == 7
    assert set(hits.rows[0].tolist()) == {6, 7, 8}
    read = SegmentRead(store.url, schema, manifest, (), Timestamp(9), ("id", "at", "v"), FILTER)
    target = to_arrow_schema(spark_schema(schema), timezone="UTC")
    table = pa.Table.from_batches([as_spark(b, schema, target) for b in read_segment(read, store)])
    assert table.column("at").to_pylist() == WHEN[:5].tolist()
    assert table.column("v").to_pylist() == VECTORS[:5].astype(float).tolist()


def check_import(schema: CollectionSchema) -> None:
    given = pa.record_batch(
        {"id": pa.array(range(ROWS)), "at": pa.array(WHEN), "v": pa.array([v.tobytes() for v in VECTORS])}
    )
    check_columns(schema, given.schema, "file.parquet")
    found = convert(schema, given, None, Place("file.parquet", 0, 0))
    assert found.column("at").to_pylist() == WHEN.tolist()
    assert np.array_equal(schema.field("v").vector.to_matrix(found.column("v")), VECTORS)


def main() -> None:
    schema = declared()
    rows = inserted(schema)
    check_answers(schema, rows)
    check_growing(schema, rows)
    check_import(schema)
    check_files(schema, rows, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
