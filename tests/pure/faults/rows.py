"""Rows of the collection that the courses use, in memory and as a segment's file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from fakes import DEFAULT

from elanus.core.catalog import Collection
from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, compose
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.paths import insert_log_path
from elanus.storage.port import ObjectStore

ROWS = 30


def batch(of: Collection, first: int, count: int) -> pa.RecordBatch:
    """Rows with the keys from ``first`` on."""
    keys = list(range(first, first + count))
    item = pa.field("item", pa.float32(), nullable=False)
    flat = pa.array([float(k) for k in keys for _ in range(2)], pa.float32())
    columns = [
        pa.array(keys),
        pa.array([float(k) for k in keys]),
        pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, 2)),
    ]
    return pa.record_batch(columns, schema=of.schema.arrow_schema)


def insert_log(store: ObjectStore, of: Collection, number: int, directory: Path) -> SegmentManifest:
    """A flushed segment of `ROWS` rows, in the store."""
    key = SegmentKey(of.collection_id, DEFAULT, SegmentID(number), of.vchannels[0])
    path = insert_log_path(of.collection_id, DEFAULT, key.segment_id, "a1-rows")
    scratch = directory / f"scratch-{number}"
    scratch.mkdir()
    with insert_log_writer(store, path, of.schema, key, scratch) as writer:
        rows = batch(of, 0, ROWS)
        writer.write(with_system_columns(rows, 0, compose(5), insert_log_schema(of.schema, key)))
        file = writer.finish()
    return SegmentManifest(
        key.segment_id,
        of.collection_id,
        DEFAULT,
        of.vchannels[0],
        insert_logs=(file,),
        stats_logs=(),
        deletes_from=NO_TIMESTAMP,
    )
