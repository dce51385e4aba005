"""Turning the writes of a range into files. Plain Arrow: no Spark here, and no log.

Each segment met gets one insert log and, when that is complete, its stats log; the vchannel gets one
delta log if anything was deleted. Rows stream: of each open file one row group is in memory, and of each
key eight bytes for its segment's Bloom filter. Where the keys did not come in order, the rows are sorted by
them (`elanus.pipeline.ordering`): in memory if they are less than a row group, else by writing the file once
more, one segment after the other.

A range may touch as many segments as a collection has partitions. The first `OPEN_MAX` segments have open
files; the rows of all others are collected in one file (`elanus.pipeline.spill`), and their insert logs are
written at the end, some at a time: each waits until its files are durable. So neither the open files nor the
memory depend on the number of segments.

Deletes are not applied here. They are written to a file of their own, and apply to every older row of the
vchannel, in whichever file; an upsert counts as a delete at the timestamp of its own rows, which is why it
spares them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from elanus.api.datacoord import SegmentOutput
from elanus.core.ids import SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.quarantine import Quarantined
from elanus.core.schema import CollectionSchema
from elanus.pipeline.ordering import rewritten_by_key, written_by_key
from elanus.pipeline.ranges import FlushPlan, RangeOutcome
from elanus.pipeline.spill import Spill
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.parallel import write_each
from elanus.storage.parquet import BinlogWriter
from elanus.storage.paths import delta_log_path, insert_log_path, stats_log_path
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log
from elanus.text import with_computed_columns

OPEN_MAX = 16
"""How many segments of a range have open files, each with a row group of up to 8 MB in memory."""


def write_range(
    plan: FlushPlan,
    writes: Iterable[WriteMessage | Quarantined],
    store: ObjectStore,
    scratch: Path,
    name: str,
) -> RangeOutcome:
    """Write the files of a range, all called ``name``, which no other attempt may use.

    ``writes`` come in the order of their timestamps; those in quarantine are in no file, and named in the
    outcome. ``scratch`` is a local directory. Raises `DiskFull`. After an error the store may hold some of
    the files, which nothing names.
    """
    with RangeFiles(plan, store, scratch, name) as files:
        for message in writes:
            files.write(message)
        return files.finish()


class RangeFiles:
    """The files of one range: one insert log per segment met, one delta log. A context manager.

    The arguments are those of `write_range`.
    """

    def __init__(self, plan: FlushPlan, store: ObjectStore, scratch: Path, name: str) -> None:
        self._plan = plan
        self._place = _Place(plan.schema, store, scratch, name)
        self._open_files = contextlib.ExitStack()
        self._segments: dict[SegmentID, _SegmentFiles] = {}
        self._spilled: dict[SegmentID, SegmentKey] = {}
        self._spill = self._open_files.enter_context(Spill(scratch))
        self._delta: BinlogWriter | None = None
        self._quarantined: list[Quarantined] = []
        self._delta_schema = delta_log_schema(plan.schema.primary_field, plan.collection_id, plan.vchannel)

    def write(self, message: WriteMessage | Quarantined) -> None:
        match message:
            case Quarantined():
                self._quarantined.append(message)
            case InsertMessage():
                self._write_rows(message)
            case UpsertMessage():
                keys = message.deleted_keys(self._plan.schema.primary_field.name)
                self._deletes().write(delete_rows(keys, message.ts, message.deletes_in, self._delta_schema))
                self._write_rows(message)
            case DeleteMessage():
                keys = message.primary_keys
                self._deletes().write(delete_rows(keys, message.ts, message.partition_id, self._delta_schema))

    def finish(self) -> RangeOutcome:
        store = self._place.store
        outputs = write_each(store, lambda _, files: _finished(files), tuple(self._segments.values()))
        with self._spill.reading() as spilled:

            def write(_: ObjectStore, key: SegmentKey) -> SegmentOutput:
                with _SegmentFiles(self._place, key) as files:
                    for batch in spilled.of(key.segment_id, files.file_schema):
                        files.write(batch)
                    return files.finish()

            outputs += write_each(store, write, tuple(self._spilled.values()))
        delta = self._delta.finish() if self._delta else None
        return RangeOutcome(self._plan.vchannel, tuple(outputs), delta, tuple(self._quarantined))

    def _write_rows(self, message: InsertMessage | UpsertMessage) -> None:
        segment_id = message.segment_id
        key = SegmentKey(message.collection_id, message.partition_id, segment_id, message.vchannel)
        files = self._segments.get(segment_id)
        if files is None and segment_id not in self._spilled and len(self._segments) < OPEN_MAX:
            files = self._segments[segment_id] = self._open_files.enter_context(
                _SegmentFiles(self._place, key)
            )
        if files is not None:
            files.write(_rows_of(message, self._plan.schema, files.file_schema))
        else:
            self._spilled.setdefault(segment_id, key)
            file_schema = insert_log_schema(self._plan.schema, key)
            self._spill.add(segment_id, _rows_of(message, self._plan.schema, file_schema))

    def _deletes(self) -> BinlogWriter:
        if self._delta is None:
            path = delta_log_path(self._plan.collection_id, self._plan.vchannel, self._place.name)
            writer = delta_log_writer(self._place.store, path, self._delta_schema, self._place.scratch)
            self._delta = self._open_files.enter_context(writer)
        return self._delta

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open_files.close()


def _finished(files: _SegmentFiles) -> SegmentOutput:
    with files:
        return files.finish()


def _rows_of(
    message: InsertMessage | UpsertMessage, schema: CollectionSchema, file_schema: pa.Schema
) -> pa.RecordBatch:
    rows = with_computed_columns(schema, message.rows)
    return with_system_columns(rows, message.row_id_start, message.ts, file_schema)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the files of a range go. ``name``: what they are all called; ``scratch``: a local directory."""

    schema: CollectionSchema
    store: ObjectStore
    scratch: Path
    name: str


class _SegmentFiles:
    """The insert log of one segment, and the statistics of its keys. A context manager."""

    def __init__(self, place: _Place, key: SegmentKey) -> None:
        self._place = place
        self._key = key
        self._path = insert_log_path(key.collection_id, key.partition_id, key.segment_id, place.name)
        self.file_schema = insert_log_schema(place.schema, key)
        self._insert_log = insert_log_writer(place.store, self._path, place.schema, key, place.scratch)
        self._primary_field = place.schema.primary_field.name
        self._stats = KeyStatsBuilder()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows of the segment's `file_schema`."""
        self._insert_log.write(batch)
        self._stats.add(batch.column(self._primary_field))

    def finish(self) -> SegmentOutput:
        key, place = self._key, self._place
        stats_path = stats_log_path(key.collection_id, key.partition_id, key.segment_id, place.name)
        log, target = self._insert_log, (place.store, self._path, place.schema, key, place.scratch)
        if log.is_sorted:
            file = log.finish()
        elif (rows := log.held()) is not None:
            file = written_by_key(rows, *target)
        else:
            file = rewritten_by_key(log.close(), *target)
        write_stats_log(place.store, stats_path, self._stats.finish())
        return SegmentOutput(key.segment_id, (file,), (stats_path,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._insert_log.__exit__()
