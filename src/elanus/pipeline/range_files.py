"""Turning the writes of a range into files. Plain Arrow: no Spark here, and no log.

Each segment met gets one insert log and, when that is complete, its stats log; the vchannel gets one
delta log if anything was deleted. Rows stream: of each open file one row group is in memory, and of each
key eight bytes for its segment's Bloom filter. Where the keys did not come in order, the file is written once
more, sorted by them (`elanus.pipeline.ordering`), one segment after the other.

Deletes are not applied here. They are written to a file of their own, and apply to every older row of the
vchannel, in whichever file; an upsert counts as a delete at the timestamp of its own rows, which is why it
spares them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from elanus.api.datacoord import SegmentOutput
from elanus.core.ids import ALL_PARTITIONS, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.quarantine import Quarantined
from elanus.core.schema import CollectionSchema
from elanus.pipeline.ordering import rewritten_by_key
from elanus.pipeline.ranges import FlushPlan, RangeOutcome
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.parquet import BinlogWriter
from elanus.storage.paths import delta_log_path, insert_log_path, stats_log_path
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log


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
    with contextlib.ExitStack() as open_files:
        files = _RangeFiles(plan, store, scratch, name, open_files)
        for message in writes:
            files.write(message)
        return files.finish()


class _RangeFiles:
    """The open files of one range: one insert log per segment met, one delta log."""

    def __init__(
        self, plan: FlushPlan, store: ObjectStore, scratch: Path, name: str, open_files: contextlib.ExitStack
    ) -> None:
        self._plan = plan
        self._store = store
        self._scratch = scratch
        self._name = name
        self._open_files = open_files
        self._segments: dict[SegmentID, _SegmentFiles] = {}
        self._delta: BinlogWriter | None = None
        self._quarantined: list[Quarantined] = []
        self._delta_schema = delta_log_schema(plan.schema.primary_field, plan.collection_id, plan.vchannel)

    def write(self, message: WriteMessage | Quarantined) -> None:
        match message:
            case Quarantined():
                self._quarantined.append(message)
            case InsertMessage():
                self._segment(message).write(message)
            case UpsertMessage():
                keys = message.deleted_keys(self._plan.schema.primary_field.name)
                self._deletes().write(delete_rows(keys, message.ts, ALL_PARTITIONS, self._delta_schema))
                self._segment(message).write(message)
            case DeleteMessage():
                keys = message.primary_keys
                self._deletes().write(delete_rows(keys, message.ts, message.partition_id, self._delta_schema))

    def finish(self) -> RangeOutcome:
        outputs = tuple(files.finish(self._store, self._name) for files in self._segments.values())
        delta = self._delta.finish() if self._delta else None
        return RangeOutcome(self._plan.vchannel, outputs, delta, tuple(self._quarantined))

    def _segment(self, message: InsertMessage | UpsertMessage) -> _SegmentFiles:
        files = self._segments.get(message.segment_id)
        if files is None:
            key = SegmentKey(
                message.collection_id, message.partition_id, message.segment_id, message.vchannel
            )
            path = insert_log_path(key.collection_id, key.partition_id, key.segment_id, self._name)
            writer = insert_log_writer(self._store, path, self._plan.schema, key, self._scratch)
            insert_log = self._open_files.enter_context(writer)
            files = _SegmentFiles(self._plan.schema, key, insert_log, path, self._scratch)
            self._segments[message.segment_id] = files
        return files

    def _deletes(self) -> BinlogWriter:
        if self._delta is None:
            path = delta_log_path(self._plan.collection_id, self._plan.vchannel, self._name)
            writer = delta_log_writer(self._store, path, self._delta_schema, self._scratch)
            self._delta = self._open_files.enter_context(writer)
        return self._delta


class _SegmentFiles:
    """The insert log of one segment, and the statistics of its keys."""

    def __init__(
        self, schema: CollectionSchema, key: SegmentKey, insert_log: BinlogWriter, path: str, scratch: Path
    ) -> None:
        self._schema = schema
        self._path = path
        self._scratch = scratch
        self._key = key
        self._file_schema = insert_log_schema(schema, key)
        self._insert_log = insert_log
        self._primary_field = schema.primary_field.name
        self._stats = KeyStatsBuilder()

    def write(self, message: InsertMessage | UpsertMessage) -> None:
        batch = with_system_columns(message.rows, message.row_id_start, message.ts, self._file_schema)
        self._insert_log.write(batch)
        self._stats.add(batch.column(self._primary_field))

    def finish(self, store: ObjectStore, name: str) -> SegmentOutput:
        key = self._key
        stats_path = stats_log_path(key.collection_id, key.partition_id, key.segment_id, name)
        file = self._insert_log.close()
        if file.is_sorted:
            file = self._insert_log.finish()
        else:
            file = rewritten_by_key(file, store, self._path, self._schema, key, self._scratch)
        write_stats_log(store, stats_path, self._stats.finish())
        return SegmentOutput(key.segment_id, (file,), (stats_path,))
