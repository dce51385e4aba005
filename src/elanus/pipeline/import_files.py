"""Reading users' files and writing their rows as segments. Plain Arrow: no Spark here.

Rows stream in batch by batch, are checked, and wait in memory by shard. When a task holds as much as it may,
and at its end, each shard's rows are sorted by primary key and become one segment: an insert log and a
stats log. Where rows go by a partition key, a shard's rows become one segment for each of their partitions.
Memory: the rows held, and one shard's once more while they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.imports import ImportedSegment
from elanus.core.channels import shard_of_keys
from elanus.core.errors import InvalidParameter
from elanus.core.given_types import check_columns
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.imports import Duplicates
from elanus.core.partition_keys import rows_of_partitions
from elanus.core.schema import CollectionSchema
from elanus.pipeline.import_columns import Place, convert
from elanus.pipeline.import_plan import FileRows, ImportPlan, RowGroup
from elanus.pipeline.import_rejects import Rejects
from elanus.pipeline.import_sources import Source, opened, pinned
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.parquet import rows_per_group
from elanus.storage.paths import insert_log_path, stats_log_path
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log
from elanus.text import with_computed_columns

_NONE: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


def survey(source: ObjectStore, found: Iterable[FileRows], schema: CollectionSchema) -> list[FileRows]:
    """Return tables (`elanus.pipeline.import_sources.tables`) with their row groups and the files' versions
    and sizes.

    Only heads and ends of files are read. Raises `InvalidParameter` for one that does not fit, as far as
    those show.
    """
    surveyed = []
    for table in found:
        known = pinned(source, table)
        with opened(source, known, schema) as rows:
            for columns in rows.schemas():
                check_columns(schema, columns, table.file)
            surveyed.append(replace(known, groups=tuple(rows.groups())))
    return surveyed


def import_rows(
    plan: ImportPlan,
    source: ObjectStore,
    rejects: Rejects | None = None,
    left_out: npt.NDArray[np.int64] = _NONE,
) -> Iterator[pa.RecordBatch]:
    """The plan's rows in the form of ``schema.arrow_schema``, checked, in batches of a row group at most.

    ``left_out``: numbers, in their order, of rows that are left out because of their keys. Raises
    `InvalidParameter` for the first row that does not fit, unless ``rejects`` takes it.
    """
    batch_rows = rows_per_group(plan.schema.row_bytes_estimate)
    next_id, number = plan.first_id, 0
    for part in plan.parts:
        with opened(source, part, plan.schema) as table:
            for group in part.groups:
                place, read = table.place(group), 0
                for given in table.batches(group, batch_rows):
                    for rows, at in fitting(plan.schema, table, given, place.moved(read), next_id, rejects):
                        next_id += rows.num_rows
                        if next_id > plan.first_segment_id:
                            raise _changed(part, group)
                        yield _staying(plan, rows, number + at, left_out, place.moved(read + at), rejects)
                    read += len(given)
                    number += len(given)
                if group.is_counted and read != group.rows:
                    raise _changed(part, group)


def _staying(
    plan: ImportPlan,
    rows: pa.RecordBatch,
    number: int,
    left_out: npt.NDArray[np.int64],
    place: Place,
    rejects: Rejects | None,
) -> pa.RecordBatch:
    """The rows that are not left out. ``number``: that of the first one."""
    first, end = np.searchsorted(left_out, (number, number + rows.num_rows))
    if first == end:
        return rows
    gone = left_out[first:end] - number
    if plan.duplicates is Duplicates.REJECT:
        keys = rows.column(plan.schema.primary_field.name)
        for at in gone.tolist():
            error = place.duplicate(plan.schema.primary_field.name, at, keys[at].as_py())
            if rejects is None:
                raise error
            rejects.add(place.moved(at), error)
    stays = np.ones(rows.num_rows, dtype=np.bool_)
    stays[gone] = False
    return rows.filter(pa.array(stays))


def fitting(
    schema: CollectionSchema,
    table: Source,
    given: Any,
    place: Place,
    first_id: int,
    rejects: Rejects | None,
    column: str = "",
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows that fit, converted, and the place of the first one among the given.

    Where a row does not fit, the halves are looked at: its neighbors are found in as many steps as the batch
    can be halved. ``column``: the only one that is looked at. Raises `InvalidParameter` for a row that does
    not fit, unless ``rejects`` takes it.
    """
    try:
        batch = table.columns(given, place)
        if column in batch.schema.names:
            batch = batch.select([column])
        check_columns(schema, batch.schema, place.file)
        rows = convert(schema, batch, _auto_keys(schema, first_id, batch.num_rows), place)
    except InvalidParameter as error:
        if rejects is None:
            raise
        if len(given) == 1:
            rejects.add(place, error)
            return
        half = len(given) // 2
        for start, end in ((0, half), (half, len(given))):
            for rows, at in fitting(
                schema, table, _part(given, start, end), place.moved(start), first_id, rejects, column
            ):
                first_id += rows.num_rows
                yield rows, start + at
        return
    yield with_computed_columns(schema, rows), 0


def _part(given: Any, start: int, end: int) -> Any:
    return given.slice(start, end - start) if isinstance(given, pa.RecordBatch) else given[start:end]


def _changed(part: FileRows, group: RowGroup) -> InvalidParameter:
    return InvalidParameter(
        f"{part.file}: row group {group.number} changed while the import ran; run it again"
    )


def _auto_keys(schema: CollectionSchema, first: int, rows: int) -> pa.Array | None:
    key = schema.primary_field
    if not key.auto_id:
        return None
    return pa.array(np.arange(first, first + rows)).cast(key.arrow_type)


class SegmentsWriter:
    """Collects rows by shard and writes them as segments whose files are all called ``name``."""

    def __init__(self, plan: ImportPlan, store: ObjectStore, scratch: Path, name: str) -> None:
        self._plan = plan
        self._store = store
        self._scratch = scratch
        self._name = name
        self._held: list[list[pa.RecordBatch]] = [[] for _ in plan.vchannels]
        self._held_rows = 0
        self._held_bytes = 0
        self._next_row_id = plan.first_id
        self._next_segment_id = plan.first_segment_id
        self.written: list[ImportedSegment] = []

    @property
    def rows(self) -> int:
        """The number of rows in the segments that have been written."""
        return sum(segment.insert_log.rows for segment in self.written)

    def add(self, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            room = self._plan.rows_max - self._held_rows
            self._hold(rows.slice(0, room))
            rows = rows.slice(room)
            if self._held_rows >= self._plan.rows_max or self._held_bytes >= self._plan.bytes_max:
                self.write_out()

    def write_out(self) -> None:
        """Everything held becomes segments."""
        for shard, batches in enumerate(self._held):
            if batches:
                self._held[shard] = []
                table = pa.Table.from_batches(batches).combine_chunks()
                batches.clear()
                for partition_id, rows in self._by_partition(table):
                    self.written.append(self._segment(self._plan.vchannels[shard], partition_id, rows))
        self._held_rows = self._held_bytes = 0

    def _by_partition(self, table: pa.Table) -> Iterator[tuple[PartitionID, pa.Table]]:
        key = self._plan.schema.partition_key
        if key is None:
            yield self._plan.partition_id, table
            return
        keys = table.column(key.name).combine_chunks()
        for partition_id, numbers in rows_of_partitions(keys, self._plan.key_partitions):
            yield partition_id, table.take(pa.array(numbers)).combine_chunks()

    def _hold(self, rows: pa.RecordBatch) -> None:
        shards = len(self._held)
        if shards == 1:
            self._held[0].append(rows)
        else:
            shard_of = shard_of_keys(rows.column(self._plan.schema.primary_field.name), shards)
            ordered = rows.take(pa.array(np.argsort(shard_of, kind="stable")))
            counts = np.bincount(shard_of, minlength=shards).tolist()
            start = 0
            for shard, count in enumerate(counts):
                if count:
                    self._held[shard].append(ordered.slice(start, count))
                start += count
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes

    def _segment(self, vchannel: str, partition_id: PartitionID, table: pa.Table) -> ImportedSegment:
        plan = self._plan
        segment_id = SegmentID(self._next_segment_id)
        self._next_segment_id += 1
        key = SegmentKey(plan.collection_id, partition_id, segment_id, vchannel)
        owner = (key.collection_id, key.partition_id, segment_id, self._name)
        file_schema = insert_log_schema(plan.schema, key)
        primary = plan.schema.primary_field.name
        order = pc.sort_indices(table, sort_keys=[(primary, "ascending")])
        stats = KeyStatsBuilder()
        group_rows = rows_per_group(plan.schema.row_bytes_estimate)
        path = insert_log_path(*owner)
        with insert_log_writer(self._store, path, plan.schema, key, self._scratch) as writer:
            for start in range(0, len(order), group_rows):
                taken = table.take(order.slice(start, group_rows)).combine_chunks()
                (rows,) = taken.to_batches()
                writer.write(with_system_columns(rows, self._next_row_id, plan.stamp, file_schema))
                stats.add(rows.column(primary))
                self._next_row_id += rows.num_rows
            file = writer.finish()
        stats_path = stats_log_path(*owner)
        write_stats_log(self._store, stats_path, stats.finish())
        return ImportedSegment(segment_id, vchannel, file, stats_path, partition_id)
