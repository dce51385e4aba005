"""Compaction compared with a plain pyarrow merge that reads, filters, sorts and writes in memory.

Both merge the same five files of rows in no order of keys, leave out the tenth that a delta log deletes, sort
by key and write one durable file with the same layout. The plain side holds everything in memory at once; the
job does not.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.pipeline.sides import Sides, in_turns
from elanus.api.datanode import CompactionOrder
from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema, DataType, FieldSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.pipeline.merge import merge_segments
from elanus.storage.binlog import (
    SegmentKey,
    insert_log_schema,
    insert_log_writer,
    with_system_columns,
)
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.objects import open_store
from elanus.storage.parquet import rows_per_group, writer_options
from elanus.storage.paths import delta_log_path, insert_log_path
from elanus.storage.port import ObjectStore

SEGMENTS = 5
_ORDERS = 1000
"""Orders that a store may have: segments of different ones have different ids."""
CID, PID, VCHANNEL = CollectionID(7), PartitionID(8), "v"


def measure(directory: Path, rows: int, dim: int, turns: int) -> Sides:
    """Take so many turns on files below the directory."""
    store = open_store((directory / "store").as_uri())
    order = make_order(store, directory, rows, dim, SEGMENTS)
    return in_turns(
        rows,
        dim,
        turns,
        lambda number: _plain(order, directory / "store", directory / f"plain-{number}"),
        lambda number: merge_segments(order, store, directory, f"a1-{number}"),
    )


def make_order(
    store: ObjectStore, scratch: Path, rows: int, dim: int, segments: int, number: int = 0
) -> CompactionOrder:
    """So many segments with keys in no order, to be merged; one row in ten is deleted.

    Orders of one store need a number each; the new segment's id is that number.
    """
    schema = docs_schema(dim)
    random = np.random.default_rng(7)
    keys = random.permutation(rows)
    inputs = []
    for position, chosen in enumerate(np.array_split(keys, segments), 1):
        key = SegmentKey(CID, PID, SegmentID(_ORDERS * position + number), VCHANNEL)
        vectors = random.standard_normal((len(chosen), dim), dtype=np.float32)
        columns = [
            pa.array(chosen),
            pa.array([f"document {n}" for n in chosen]),
            schema.field("v").vector.to_column(vectors),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
        logged = with_system_columns(batch, 0, Timestamp(10), insert_log_schema(schema, key))
        path = insert_log_path(CID, PID, key.segment_id, "a")
        with insert_log_writer(store, path, schema, key, scratch) as writer:
            writer.write(logged)
            file = writer.finish()
        inputs.append(SegmentManifest(key.segment_id, CID, PID, VCHANNEL, (file,), (), NO_TIMESTAMP))
    delta = _deletes(store, scratch, schema, keys[: rows // 10], f"{number}")
    return CompactionOrder(
        plan_id=1,
        attempt=1,
        collection_id=CID,
        partition_id=PID,
        vchannel=VCHANNEL,
        segment_id=SegmentID(number),
        schema=schema,
        inputs=tuple(inputs),
        delta_logs=(delta,),
        fold_until=Timestamp(100),
        expire_until=NO_TIMESTAMP,
    )


def docs_schema(dim: int) -> CollectionSchema:
    return CollectionSchema(
        "docs",
        (
            FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), "name", DataType.VARCHAR, max_length=50),
            FieldSchema(FieldID(102), "v", DataType.FLOAT_VECTOR, dim=dim),
        ),
    )


def _deletes(
    store: ObjectStore, scratch: Path, schema: CollectionSchema, keys: np.ndarray, name: str
) -> BinlogFile:
    of = delta_log_schema(schema.primary_field, CID, VCHANNEL)
    with delta_log_writer(store, delta_log_path(CID, VCHANNEL, name), of, scratch) as writer:
        writer.write(delete_rows(pa.array(keys), Timestamp(20), ALL_PARTITIONS, of))
        return writer.finish()


def _plain(order: CompactionOrder, root: Path, target: Path) -> None:
    """Read all, leave out, sort, write with the same options."""
    table = pa.concat_tables([pq.read_table(root / file.path) for file in order.insert_logs])
    deletes = pq.read_table(root / order.delta_logs[0].path)
    deleted = pc.is_in(table.column("id"), value_set=deletes.column(0).combine_chunks())
    keys = [("id", "ascending"), (TIMESTAMP_FIELD, "ascending")]
    table = table.filter(pc.invert(deleted)).sort_by(keys)
    group_rows = rows_per_group(order.schema.row_bytes_estimate)
    pq.write_table(table, target, row_group_size=group_rows, **writer_options(table.schema))
    with target.open("rb") as written:
        os.fsync(written.fileno())
