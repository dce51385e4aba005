"""A segment of vectors on its way: written to files, indexed, loaded, merged, read by Spark, imported."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from insert_log_files import write_insert_log
from pyspark.sql.pandas.types import to_arrow_schema

from elanus.api.datanode import CompactionOrder
from elanus.api.querynode import LoadSegment
from elanus.core.catalog import Checkpoint
from elanus.core.given_types import check_columns
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.index import IndexSpec
from elanus.pipeline.import_columns import Place, convert
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.pipeline.merge import merge_segments
from elanus.querynode.block import Block
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.sealed import load_sealed
from elanus.spark.segment import SegmentRead, read_segment
from elanus.spark.source import as_spark, spark_schema
from elanus.storage.binlog import SegmentKey, insert_log_schema, read_columns, with_system_columns
from elanus.storage.local import LocalStore

KEY = SegmentKey(CollectionID(7), PartitionID(8), SegmentID(9), "by-dev-rootcoord-dml_0_7v0")
FIRST_ROW = 100
"""The number that an imported file's first row has in errors."""
_WRITTEN = Timestamp(5)
_READ = Timestamp(9)


def written(
    store: LocalStore,
    schema: CollectionSchema,
    rows: pa.RecordBatch,
    scratch: Path,
    cut_at: int | None = None,
) -> SegmentManifest:
    """The manifest of the rows; in two files, so that rows are joined, when ``cut_at`` is given."""
    batch = with_system_columns(rows, 0, _WRITTEN, insert_log_schema(schema, KEY))
    parts = [batch] if cut_at is None else [batch[:cut_at], batch[cut_at:]]
    files = tuple(
        write_insert_log(store, f"insert_log/{uuid.uuid4().hex}.parquet", schema, KEY, [part], scratch)
        for part in parts
    )
    return SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, files, (), NO_TIMESTAMP
    )


def index_files(
    store: LocalStore,
    schema: CollectionSchema,
    manifest: SegmentManifest,
    params: Mapping[FieldID, Mapping[str, str]],
    scratch: Path,
) -> tuple[IndexFile, ...]:
    """The files of an index over each of these fields."""

    def file(field_id: FieldID, given: Mapping[str, str]) -> IndexFile:
        build, index, field = BuildID(field_id), IndexID(field_id), schema.by_id[field_id]
        plan = IndexBuildPlan("a", build, 1, index, field, given, manifest, 1, store.url, "")
        return build_index_file(plan, store, scratch, uuid.uuid4().hex)

    return tuple(file(field_id, given) for field_id, given in params.items())


def loaded(
    store: LocalStore,
    schema: CollectionSchema,
    manifest: SegmentManifest,
    specs: Mapping[FieldID, IndexSpec],
    files: tuple[IndexFile, ...],
    scratch: Path,
) -> Block:
    """The segment as a query node holds it, with these index files."""
    load = LoadSegment(KEY.collection_id, manifest, files, (), Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0))
    segment = load_sealed(load, schema, dict(specs), store, DeltaLogs(store, 1), scratch)
    assert len(segment.index_ids) == len(files)
    (block,) = segment.blocks
    return block


def compacted(
    store: LocalStore, schema: CollectionSchema, manifest: SegmentManifest, scratch: Path
) -> pa.Table:
    """The user's columns of the segment after a compaction of it alone."""
    order = CompactionOrder(
        plan_id=1,
        attempt=1,
        collection_id=KEY.collection_id,
        partition_id=KEY.partition_id,
        vchannel=KEY.vchannel,
        segment_id=SegmentID(20),
        schema=schema,
        inputs=(manifest,),
        delta_logs=(),
        fold_until=NO_TIMESTAMP,
        expire_until=NO_TIMESTAMP,
    )
    output = merge_segments(order, store, scratch, "merged")
    return read_columns(store, output.insert_logs, schema.arrow_schema.names)


def read_by_spark(
    store: LocalStore,
    schema: CollectionSchema,
    manifest: SegmentManifest,
    names: Sequence[str],
    filter_: str = "",
) -> pa.Table:
    """The rows as a Spark program gets them."""
    read = SegmentRead(store.url, schema, manifest, (), _READ, tuple(names), filter_)
    target = to_arrow_schema(spark_schema(schema, tuple(names)), timezone="UTC")
    return pa.Table.from_batches([as_spark(b, schema, target) for b in read_segment(read, store)])


def imported(schema: CollectionSchema, columns: Mapping[str, pa.Array | Iterable[object]]) -> pa.RecordBatch:
    """The rows of a file with the primary keys 0, 1, … and these columns. Raises what imports raise."""
    arrays = {name: pa.array(values) for name, values in columns.items()}
    keys = pa.array(range(len(next(iter(arrays.values())))), pa.int64())
    batch = pa.record_batch({schema.primary_field.name: keys, **arrays})
    check_columns(schema, batch.schema, "file.parquet")
    found = convert(schema, batch, None, Place("file.parquet", 0, FIRST_ROW))
    assert found.schema.equals(schema.arrow_schema)
    return found


def of_field(schema: CollectionSchema, name: str) -> CollectionSchema:
    """The same collection with this field alone, next to its primary key."""
    return CollectionSchema(schema.name, (schema.primary_field, schema.field(name)))
