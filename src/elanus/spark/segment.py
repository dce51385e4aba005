"""One segment of a snapshot as Arrow batches: what a task of the connector does. Plain Arrow, no Spark.

Row group by row group: the key, the timestamp and the columns that the filter needs are read first; only
where rows are left, the other columns. Rows later than the snapshot, rows that have expired, and rows
that a delete up to it concerns, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.rows import absent_column
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.segments import BinlogFile, DeltaLog, SegmentManifest
from elanus.core.time_to_live import moment_us, moments_of_expiry
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.expr import BoundFilter, compile_filter
from elanus.storage.binlog import absent_fields, field_of, hidden_after, with_commit_ts
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN, read_delta_log
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore
from elanus.text import computed_column, inputs_of

Mask = npt.NDArray[np.bool_]
ReadsDeletes = Callable[[ObjectStore, BinlogFile], pa.Table]


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """The input of a task. Pickles. ``columns``: in the order wanted; ``delta_logs``: the vchannel's.

    ``filter``: in the filter language, "" for all rows. ``expired_until``: that of the snapshot.
    """

    store_url: str
    schema: CollectionSchema
    manifest: SegmentManifest
    delta_logs: tuple[DeltaLog, ...]
    read_ts: Timestamp
    columns: tuple[str, ...]
    filter: str = ""
    expired_until: Timestamp = NO_TIMESTAMP


def may_match(manifest: SegmentManifest, chosen: BoundFilter, schema: CollectionSchema) -> bool:
    """Whether the range of the clustering key leaves room for a row that matches. Reads no file."""
    cluster = manifest.cluster
    field = None if cluster is None else schema.by_id.get(cluster.field_id)
    if cluster is None or field is None or cluster.low is None or chosen.matches_all:
        return True
    return chosen.may_match({field.name: (cluster.low, cluster.high)})


def read_segment(read: SegmentRead, store: ObjectStore) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the snapshot, in the schema's Arrow types, one batch for a row group at most.

    Raises `ObjectMissing` for a file that is gone: the lease of the snapshot has ended.
    """
    chosen = compile_filter(read.filter, read.schema)
    deletes = _Deletes(read, store)
    for file in read.manifest.insert_logs:
        with opened(store, file.path, INSERT_LOG) as parquet:
            for group in range(parquet.num_row_groups):
                if not _may_match(read.schema, parquet, group, chosen):
                    continue
                batch = _row_group(read, parquet, group, chosen, deletes, file.until)
                if batch is not None:
                    yield batch


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """All rows of a segment, numbered in the order of its insert logs, as its indexes number them.

    ``keys``: the primary keys; null in the row groups that were not read. ``visible``: bool, shape (rows,).
    """

    keys: pa.ChunkedArray
    visible: Mask


def segment_rows(read: SegmentRead, store: ObjectStore, log: ReadsDeletes = read_delta_log) -> SegmentRows:
    """Return which rows `read_segment` would return, and the keys. ``log``: reads a delta log.

    Raises as `read_segment` does. Row groups whose statistics rule the filter out are not read.
    """
    chosen = compile_filter(read.filter, read.schema)
    deletes = _Deletes(read, store, log)
    key = read.schema.primary_field
    keys: list[pa.Array] = []
    masks: list[Mask] = [np.empty(0, dtype=np.bool_)]
    for file in read.manifest.insert_logs:
        with opened(store, file.path, INSERT_LOG) as parquet:
            for number in range(parquet.num_row_groups):
                if _may_match(read.schema, parquet, number, chosen):
                    first, mask = _visible(read, parquet, number, chosen, deletes, file.until)
                    keys += first.column(key.name).chunks
                    masks.append(mask)
                else:
                    rows = parquet.metadata.row_group(number).num_rows
                    keys.append(pa.nulls(rows, key.arrow_type))
                    masks.append(np.zeros(rows, dtype=np.bool_))
    return SegmentRows(pa.chunked_array(keys, key.arrow_type), np.concatenate(masks))


def _row_group(
    read: SegmentRead,
    parquet: pq.ParquetFile,
    group: int,
    chosen: BoundFilter,
    deletes: _Deletes,
    until: Timestamp,
) -> pa.RecordBatch | None:
    first, mask = _visible(read, parquet, group, chosen, deletes, until)
    if not mask.any():
        return None
    needed = first.column_names
    rest = [name for name in read.columns if name not in needed]
    table = columns_of(read.schema, parquet, group, rest) if rest else None
    columns = [
        (first if name in needed else table).column(name).combine_chunks()  # type: ignore[union-attr]
        for name in read.columns
    ]
    fields = [read.schema.arrow_schema.field(name) for name in read.columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return batch if mask.all() else batch.filter(pa.array(mask))


def _visible(
    read: SegmentRead,
    parquet: pq.ParquetFile,
    group: int,
    chosen: BoundFilter,
    deletes: _Deletes,
    until: Timestamp,
) -> tuple[pa.Table, Mask]:
    """Return the columns that decide about the rows of a row group, and which rows are visible."""
    key = read.schema.primary_field.name
    ttl_field = read.schema.ttl_field
    needed = {key, TIMESTAMP_FIELD, *([ttl_field] if ttl_field else [])} | chosen.field_names
    first = hidden_after(columns_of(read.schema, parquet, group, sorted(needed)), until)
    first = with_commit_ts(first, read.manifest)
    row_ts = first.column(TIMESTAMP_FIELD).to_numpy()
    mask = row_ts <= read.read_ts
    if read.expired_until != NO_TIMESTAMP:
        mask &= row_ts > read.expired_until
    if ttl_field:
        mask &= moments_of_expiry(first.column(ttl_field).combine_chunks()) > moment_us(read.read_ts)
    mask &= ~deletes.concern(first.column(key), row_ts)
    mask &= chosen.evaluate({name: first.column(name) for name in chosen.field_names}, first.num_rows)
    return first, mask


def columns_of(schema: CollectionSchema, parquet: pq.ParquetFile, group: int, names: list[str]) -> pa.Table:
    """Return columns of a row group; fields added since the file was written hold defaults or nulls, or
    what their functions compute."""
    absent = absent_fields(parquet.schema_arrow, names, schema.added_fields)
    table = parquet.read_row_group(group, columns=[name for name in names if name not in absent])
    rows = parquet.metadata.row_group(group).num_rows
    for field in absent.values():
        function = schema.function_of(field) if field.is_function_output else None
        if function is None:
            column = absent_column(field, rows)
        else:
            texts = parquet.read_row_group(group, columns=inputs_of(schema, function)).combine_chunks()
            column = computed_column(schema, function, texts)
        table = table.append_column(field_of(field), column)
    return table


def _may_match(schema: CollectionSchema, parquet: pq.ParquetFile, group: int, chosen: BoundFilter) -> bool:
    """Whether the statistics of the row group leave room for a row that matches."""
    if chosen.matches_all:
        return True
    absent = absent_fields(parquet.schema_arrow, sorted(chosen.field_names), schema.added_fields)
    bounds: dict[str, tuple[object, object]] = {}
    found = parquet.metadata.row_group(group)
    for number in range(found.num_columns):
        column = found.column(number)
        if column.path_in_schema in absent:
            continue  # a dropped field had this name
        stats = column.statistics if column.is_stats_set else None
        if stats is None or not stats.has_min_max or isinstance(stats.min, float):
            continue  # the bounds of floats say nothing of NaN
        bounds[column.path_in_schema] = (stats.min, stats.max)
    return chosen.may_match(bounds)


class _Deletes:
    """Of each key the latest delete up to the snapshot: it concerns every older row of the key."""

    def __init__(self, read: SegmentRead, store: ObjectStore, log: ReadsDeletes = read_delta_log) -> None:
        after, until = read.manifest.deletes_from, read.read_ts
        files = [d.file for d in read.delta_logs if d.file.ts_max > after and d.file.ts_min <= until]
        self._keys: pa.ChunkedArray | None = None
        if not files:
            return
        table = pa.concat_tables([log(store, file) for file in files])
        ts, partition = pc.field(TIMESTAMP_FIELD), pc.field(PARTITION_COLUMN)
        wanted = partition.isin([ALL_PARTITIONS, read.manifest.partition_id])
        table = table.filter((ts > int(after)) & (ts <= int(until)) & wanted)
        latest = table.group_by(PRIMARY_KEY_COLUMN).aggregate([(TIMESTAMP_FIELD, "max")])
        if latest.num_rows:
            self._keys = latest.column(PRIMARY_KEY_COLUMN).combine_chunks()
            self._ts = latest.column(f"{TIMESTAMP_FIELD}_max").to_numpy()

    def concern(self, keys: pa.ChunkedArray, row_ts: npt.NDArray[np.int64]) -> Mask:
        """Return which rows are deleted. shape (n,)"""
        if self._keys is None:
            return np.zeros(len(row_ts), dtype=np.bool_)
        places = pc.index_in(keys, self._keys)
        found = pc.is_valid(places).to_numpy()
        at = pc.fill_null(places, 0).to_numpy()
        dead: Mask = found & (row_ts < self._ts[at])
        return dead
