"""Delta logs: the deletes of one (vchannel, range), as one Parquet file.

Each row is a delete of one primary key: it applies to rows of that key whose timestamp is strictly
below the delete's. ``PartitionID`` limits it to one partition; 0 means all. An upsert writes the same
record, at the timestamp of its rows. Deletes belong to the vchannel, not to a segment: at the time of
writing it is not known which segments hold the keys, and the statistics of each segment
(`elanus.storage.stats_log`) let a reader skip the segments that cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID
from elanus.core.schema import TIMESTAMP_FIELD, FieldSchema
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.storage.parquet import ROW_GROUP_ROWS_MAX, BinlogWriter, file_metadata, opened, worth_threads
from elanus.storage.paths import DELTA_LOG
from elanus.storage.port import ObjectStore

PRIMARY_KEY_COLUMN = "PrimaryKey"
PARTITION_COLUMN = "PartitionID"


def delta_log_schema(primary_field: FieldSchema, collection_id: CollectionID, vchannel: str) -> pa.Schema:
    """Return the Arrow schema: PrimaryKey (int64 or string), Timestamp int64, PartitionID int64."""
    return pa.schema(
        [
            pa.field(PRIMARY_KEY_COLUMN, primary_field.arrow_type, nullable=False),
            pa.field(TIMESTAMP_FIELD, pa.int64(), nullable=False),
            pa.field(PARTITION_COLUMN, pa.int64(), nullable=False),
        ],
        metadata=file_metadata(DELTA_LOG, {"collection": collection_id, "vchannel": vchannel}),
    )


def delete_rows(
    primary_keys: pa.Array, ts: Timestamp, partition_id: PartitionID, file_schema: pa.Schema
) -> pa.RecordBatch:
    """Return one message's deletes as rows of a delta log."""
    count = len(primary_keys)
    timestamps = np.full(count, ts, dtype=np.int64)
    partitions = np.full(count, partition_id, dtype=np.int64)
    return pa.RecordBatch.from_arrays(
        [primary_keys, pa.array(timestamps), pa.array(partitions)], schema=file_schema
    )


def delta_log_writer(store: ObjectStore, path: str, file_schema: pa.Schema, scratch: Path) -> BinlogWriter:
    """Return a writer for one delta log, to be used as a context manager; ``scratch`` is a local
    directory."""
    return BinlogWriter(store, path, file_schema, ROW_GROUP_ROWS_MAX, scratch)


def read_delta_log(store: ObjectStore, file: BinlogFile) -> pa.Table:
    """Return the deletes of one file, in the order of their timestamps: PrimaryKey, Timestamp, PartitionID.

    All deletes of a write have its timestamp (`BinlogFile.deletes_ts`). Deletes later than the file's
    ``until`` are left out.

    Raises `ObjectMissing` and `CorruptObject` naming the file.
    """
    with opened(store, file.path, DELTA_LOG) as parquet:
        columns = [PRIMARY_KEY_COLUMN, TIMESTAMP_FIELD, PARTITION_COLUMN]
        table = parquet.read(columns=columns, use_threads=worth_threads(parquet))
    if file.deletes_ts != NO_TIMESTAMP:
        place = table.schema.get_field_index(TIMESTAMP_FIELD)
        stamps = pa.array(np.full(table.num_rows, file.deletes_ts, dtype=np.int64))
        table = table.set_column(place, table.schema.field(place), stamps)
    if file.until == NO_TIMESTAMP:
        return table
    return table.filter(pc.less_equal(table.column(TIMESTAMP_FIELD), int(file.until)))


def dead_rows(
    keys: pa.ChunkedArray,
    row_ts: npt.NDArray[np.int64],
    deletes: Sequence[pa.Table],
    partition_id: PartitionID,
    fold_until: Timestamp,
) -> npt.NDArray[np.bool_]:
    """Return which rows are deleted by a delete not later than ``fold_until``. shape (n,).

    ``deletes`` are tables as returned by `read_delta_log`. Any later delete of its key deletes a row, so the
    last delete up to ``fold_until`` decides.
    """
    if not deletes:
        return np.zeros(len(row_ts), dtype=np.bool_)
    table = pa.concat_tables(deletes)
    ts = table.column(TIMESTAMP_FIELD).to_numpy()
    partitions = table.column(PARTITION_COLUMN).to_numpy()
    concerns = (ts <= fold_until) & ((partitions == ALL_PARTITIONS) | (partitions == partition_id))
    if not concerns.any():
        return np.zeros(len(row_ts), dtype=np.bool_)
    deleted = table.column(PRIMARY_KEY_COLUMN).filter(pa.array(concerns)).combine_chunks().dictionary_encode()
    last_ts = np.full(len(deleted.dictionary), NO_TIMESTAMP, dtype=np.int64)
    np.maximum.at(last_ts, deleted.indices.to_numpy(), ts[concerns])
    places = pc.index_in(keys, value_set=deleted.dictionary)
    place = pc.fill_null(places, -1).to_numpy()
    return np.asarray((place >= 0) & (row_ts < last_ts[place]))
