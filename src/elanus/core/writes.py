"""Writes that are remembered by their names, so that none is done twice.

A write's name is recorded in the transaction that commits its rows and deletes. The rule of memory: a single
write is remembered for a time after its commit (`imports.write_retention_s`, 30 days), so it may be repeated
that long. A stream of writes numbers its batches and writes them one after the other. Only the last batch of
a stream is remembered, as long as the collection exists: a batch with that number or a lower one was written
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elanus.core.ids import ALL_PARTITIONS, CollectionID, TaskID
from elanus.core.imports import ImportState, ImportTask, WriteMode
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """A committed write. ``batch``: its number in the stream ``write_id``, -1 for a single write;
    ``query_id``: who writes that stream, "" if that is not known.

    ``written_ms``: Unix time of the commit.
    """

    collection_id: CollectionID
    write_id: str
    batch: int
    task_id: TaskID
    rows: int
    commit_ts: Timestamp
    written_ms: int
    mode: WriteMode = WriteMode.APPEND
    query_id: str = ""


def record_of(task: ImportTask, now_ms: int) -> WriteRecord:
    """Return what is remembered of a task that is being committed."""
    return WriteRecord(
        task.collection_id,
        task.write_id,
        task.batch,
        task.task_id,
        task.rows,
        task.commit_ts,
        now_ms,
        task.mode,
        task.query_id,
    )


def as_task(record: WriteRecord) -> ImportTask:
    """Return the task of a remembered write, whose own record may be gone."""
    return ImportTask(
        record.task_id,
        record.collection_id,
        "",
        ALL_PARTITIONS,
        "",
        (),
        record.written_ms,
        ImportState.COMPLETED,
        rows=record.rows,
        commit_ts=record.commit_ts,
        ended_ms=record.written_ms,
        write_id=record.write_id,
        batch=record.batch,
        mode=record.mode,
        query_id=record.query_id,
    )


def expired_writes(
    records: Iterable[WriteRecord], now_ms: int, retention_ms: float, collections: Iterable[CollectionID]
) -> Iterator[WriteRecord]:
    """Yield the writes that are no longer remembered. ``collections``: those that exist."""
    exist = frozenset(collections)
    for record in records:
        is_old = record.batch < 0 and now_ms - record.written_ms > retention_ms
        if is_old or record.collection_id not in exist:
            yield record
