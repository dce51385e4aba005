"""The changes of a collection between two timestamps, from its files alone. Plain Arrow, no Spark.

Rows and deletes keep their timestamps in files, through merges and compactions, until deletes are folded in.
So the files of a snapshot at *e* hold every row and every delete later than *s*, if nothing later than *s*
has been folded in; the server refuses an earlier *s* (`SnapshotApi.take_changes`).

A change is a row of the collection's columns and of three more: ``_change_type`` is ``insert`` or ``delete``,
``_commit_ts`` its hybrid timestamp, and ``_partition_id`` the partition that it is in; 0 for a delete in all
of them. A delete has only its key, the other fields are null: it concerns the rows of that key with a lower
timestamp. So an upsert is a delete and an insert with one timestamp, and changes may be applied in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.connector import CollectionSnapshot
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.spark.segment import columns_of
from elanus.storage.binlog import hidden_after, with_commit_ts
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN, read_delta_log
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore

TYPE_COLUMN, TS_COLUMN, PARTITION_ID_COLUMN = "_change_type", "_commit_ts", "_partition_id"
INSERT, DELETE = "insert", "delete"
_OWN = (
    pa.field(TYPE_COLUMN, pa.string(), nullable=False),
    pa.field(TS_COLUMN, pa.int64(), nullable=False),
    pa.field(PARTITION_ID_COLUMN, pa.int64(), nullable=False),
)


@dataclass(frozen=True, slots=True)
class ChangeRead:
    """The changes later than ``since`` and not later than ``until`` in one segment or delta log. Pickles.

    ``columns``: the fields wanted, the primary key among them.
    """

    store_url: str
    schema: CollectionSchema
    columns: tuple[str, ...]
    since: Timestamp
    until: Timestamp
    source: SegmentManifest | DeltaLog


def change_schema(schema: CollectionSchema, columns: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema of changes: the fields, and the three columns of changes."""
    key = schema.primary_field.name
    fields = [schema.arrow_schema.field(name) for name in columns]
    return pa.schema([*(f if f.name == key else f.with_nullable(True) for f in fields), *_OWN])


def change_reads(
    snapshot: CollectionSnapshot, store_url: str, since: Timestamp, columns: tuple[str, ...]
) -> list[ChangeRead]:
    """Return what is to be read for the changes later than ``since`` up to the snapshot."""
    key = snapshot.schema.primary_field.name
    names = columns or tuple(f.name for f in snapshot.schema.fields if snapshot.schema.returns(f))
    names = names if key in names else (key, *names)
    segments = [
        manifest
        for manifest in snapshot.segments
        if any((manifest.commit_ts or file.ts_max) > since for file in manifest.insert_logs)
    ]
    deltas = [
        log
        for logs in snapshot.delta_logs.values()
        for log in logs
        if log.file.ts_max > since and log.file.ts_min <= snapshot.read_ts
    ]
    sources: list[SegmentManifest | DeltaLog] = [*segments, *deltas]
    return [
        ChangeRead(store_url, snapshot.schema, names, since, snapshot.read_ts, source) for source in sources
    ]


def read_changes(read: ChangeRead, store: ObjectStore) -> Iterator[pa.RecordBatch]:
    """Yield the changes, in batches of `change_schema`.

    Raises `ObjectMissing` for a file that is gone: the lease of the snapshot has ended.
    """
    if isinstance(read.source, DeltaLog):
        yield from _deletes(read, read.source, store)
    else:
        yield from _inserts(read, read.source, store)


def _inserts(read: ChangeRead, manifest: SegmentManifest, store: ObjectStore) -> Iterator[pa.RecordBatch]:
    for file in manifest.insert_logs:
        if (manifest.commit_ts or file.ts_max) <= read.since:
            continue
        with opened(store, file.path, INSERT_LOG) as parquet:
            for group in range(parquet.num_row_groups):
                names = [TIMESTAMP_FIELD, *read.columns]
                rows = hidden_after(columns_of(read.schema, parquet, group, names), file.until)
                rows = with_commit_ts(rows, manifest)
                ts = rows.column(TIMESTAMP_FIELD).to_numpy()
                rows = rows.filter(pa.array((ts > read.since) & (ts <= read.until)))
                if rows.num_rows:
                    yield _batch(read, rows, INSERT, np.full(rows.num_rows, manifest.partition_id))


def _deletes(read: ChangeRead, log: DeltaLog, store: ObjectStore) -> Iterator[pa.RecordBatch]:
    deletes = read_delta_log(store, log.file)
    ts = pc.field(TIMESTAMP_FIELD)
    deletes = deletes.filter((ts > int(read.since)) & (ts <= int(read.until)))
    if deletes.num_rows:
        key = read.schema.primary_field.name
        renamed = deletes.rename_columns({PRIMARY_KEY_COLUMN: key})
        yield _batch(read, renamed, DELETE, deletes.column(PARTITION_COLUMN).to_numpy())


def _batch(read: ChangeRead, rows: pa.Table, kind: str, partitions: np.ndarray) -> pa.RecordBatch:
    schema = change_schema(read.schema, read.columns)
    count, there = rows.num_rows, set(rows.schema.names)
    columns = [
        rows.column(name).combine_chunks() if name in there else pa.nulls(count, schema.field(name).type)
        for name in read.columns
    ]
    own = [
        pa.array([kind] * count),
        rows.column(TIMESTAMP_FIELD).combine_chunks(),
        pa.array(partitions.astype(np.int64)),
    ]
    return pa.RecordBatch.from_arrays([*columns, *own], schema=schema)
