"""Merging segments into one file. Plain Arrow: no Spark here.

Rows that a delete within the fold concerns are left out, and expired ones; the rest are sorted by primary
key, and rows of the same key by their timestamps. Row ids and timestamps stay what they were.

Memory: the scalar columns of all rows, the deletes, and one row group. Vectors, the bulk of most segments,
go through a mapped file in the scratch directory, from where they are taken in the new order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.schema import ROW_ID_FIELD, TIMESTAMP_FIELD
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.rpc.datacoord import SegmentOutput
from elanus.rpc.datanode import CompactionOrder
from elanus.storage.binlog import (
    Matrix,
    SegmentKey,
    insert_log_schema,
    insert_log_writer,
    read_columns,
    read_vectors,
    vector_array,
)
from elanus.storage.delta_log import dead_rows, read_delta_log
from elanus.storage.parquet import rows_per_group
from elanus.storage.paths import insert_log_path, stats_log_path
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log

Rows = npt.NDArray[np.int64]


def merge_segments(
    order: CompactionOrder,
    store: ObjectStore,
    scratch: Path,
    name: str,
    progress: Callable[[float, int], None] | None = None,
) -> SegmentOutput:
    """Write the new segment's files, called ``name``, which no other attempt may use; none if no row lives.

    ``scratch`` is a local directory; ``progress`` hears of the share of rows written, and their number.
    Raises `DiskFull`, and `ObjectMissing` and `CorruptObject` naming a file. After an error the store may
    hold one of the files, which nothing names.
    """
    schema, files = order.schema, order.insert_logs
    key = SegmentKey(order.collection_id, order.partition_id, order.segment_id, order.vchannel)
    scalars = [ROW_ID_FIELD, TIMESTAMP_FIELD, *(field.name for field in schema.scalar_fields)]
    table = pa.concat_tables([read_columns(store, m, scalars) for m in order.inputs if m.insert_logs])
    table = table.combine_chunks()
    rows = _in_order(table, schema.primary_field.name, _living(order, table, store))
    if not len(rows):
        return SegmentOutput(key.segment_id, (), ())
    vectors = {f.name: read_vectors(store, files, f.name, scratch) for f in schema.vector_fields}
    path = insert_log_path(key.collection_id, key.partition_id, key.segment_id, name)
    stats_path = stats_log_path(key.collection_id, key.partition_id, key.segment_id, name)
    file_schema, stats = insert_log_schema(schema, key), KeyStatsBuilder()
    group_rows = rows_per_group(schema.row_bytes_estimate)
    with insert_log_writer(store, path, schema, key, scratch, by_time=False) as writer:
        for start in range(0, len(rows), group_rows):
            batch = _take(table, vectors, rows[start : start + group_rows], file_schema)
            stats.add(batch.column(schema.primary_field.name))
            writer.write(batch)
            if progress is not None:
                written = start + batch.num_rows
                progress(written / len(rows), written)
        file = writer.finish()
    write_stats_log(store, stats_path, stats.finish())
    return SegmentOutput(key.segment_id, (file,), (stats_path,))


def _living(order: CompactionOrder, table: pa.Table, store: ObjectStore) -> Rows:
    keys = table.column(order.schema.primary_field.name)
    row_ts = table.column(TIMESTAMP_FIELD).to_numpy()
    deletes = [read_delta_log(store, file) for file in order.delta_logs]
    dead = dead_rows(keys, row_ts, deletes, order.partition_id, order.fold_until)
    if order.expire_until > NO_TIMESTAMP:
        dead |= row_ts <= order.expire_until
    return np.flatnonzero(~dead)


def _in_order(table: pa.Table, primary_key: str, rows: Rows) -> Rows:
    """The rows' numbers, by primary key and then by timestamp."""
    wanted = pa.array(rows)
    keys = table.select([primary_key, TIMESTAMP_FIELD]).take(wanted)
    order = pc.sort_indices(keys, sort_keys=[(primary_key, "ascending"), (TIMESTAMP_FIELD, "ascending")])
    sorted_rows: Rows = rows[order.to_numpy()]
    return sorted_rows


def _take(table: pa.Table, vectors: dict[str, Matrix], rows: Rows, file_schema: pa.Schema) -> pa.RecordBatch:
    scalars = table.take(pa.array(rows))
    columns = [
        vector_array(vectors[field.name][rows], field.type)
        if field.name in vectors
        else scalars.column(field.name).combine_chunks()
        for field in file_schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=file_schema)
