"""The judge's record of imports: what their files hold, and how far their tasks have come.

An import becomes part of a collection when its task is persisted as committed: then all of its rows count, at
the timestamp of the commit. Reads find them at some moment between that and the end of the task, all of them
at once. A read of an earlier moment may be answered without them, forever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import pyarrow as pa

from elanus.core.channels import shard_of_keys
from elanus.core.ids import SegmentID, TaskID
from elanus.core.imports import ENDED, Duplicates, ImportState, ImportTask, WriteMode
from elanus.core.invariants import InvariantBroken
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.sim.records import Records
from elanus.sim.truth import KEY, VALUE, Deletion, Row, Truth

_COMMITTED = (ImportState.PERSISTED, ImportState.COMPLETED)


class ImportTasks:
    """``files``: the rows of each file that clients may have imported. ``records``: of segments and
    collections."""

    def __init__(self, truth: Truth, records: Records, note: Callable[[str, Collection[int]], None]) -> None:
        self.files: dict[str, pa.RecordBatch] = {}
        self._truth = truth
        self._records = records
        self._note = note
        self._tasks: dict[TaskID, ImportTask] = {}
        self._task_of: dict[SegmentID, TaskID] = {}
        self._found_from: dict[TaskID, Timestamp] = {}

    def observe(self, task: ImportTask) -> None:
        """Take in a task's record. Raises `InvariantBroken`."""
        known = self._tasks.get(task.task_id)
        if known is not None and known.state is not task.state and not _may_become(known.state, task.state):
            raise InvariantBroken(
                "IMP1", f"import {task.task_id} went from {known.state.name} to {task.state.name}"
            )
        self._tasks[task.task_id] = task
        if task.state is ImportState.PERSISTED and (known is None or known.state is not task.state):
            self._commit(task)

    def unfinished(self) -> list[str]:
        """The tasks that have not ended."""
        return [f"import {t.task_id} {t.state.name}" for t in self._tasks.values() if t.state not in ENDED]

    def uncommitted(self) -> list[TaskID]:
        """The tasks that wait for their commit."""
        return [t.task_id for t in self._tasks.values() if t.state is ImportState.UNCOMMITTED]

    def _commit(self, task: ImportTask) -> None:
        pairs = [pair for name in task.files for pair in _pairs(self.files[name])]
        if task.duplicates is Duplicates.LAST:
            pairs = list(dict(pairs).items())
        rows = list(self._rows(task, pairs))
        keys = tuple(row.key for row in rows)
        if task.rows != len(rows):
            raise InvariantBroken("IMP1", f"import {task.task_id} has {task.rows} of {len(rows)} rows", keys)
        self._task_of |= dict.fromkeys(task.segments, task.task_id)
        deletions = []
        if task.mode is WriteMode.UPSERT:
            where, ts = task.partition_id, task.commit_ts
            deletions = [Deletion(row.key, row.vchannel, where, ts, task.task_id) for row in rows]
        self._truth.imported(task.collection_id, rows, deletions)
        self._note(f"{task.mode} {task.task_id} committed at {task.commit_ts}: {keys}", keys)

    def _rows(self, task: ImportTask, pairs: Sequence[tuple[int, int]]) -> Iterable[Row]:
        vchannels = self._records.vchannels_of[task.collection_id]
        segments = [self._records.segments[segment_id] for segment_id in task.segments]
        segment_of = {(s.vchannel, s.partition_id): s.segment_id for s in segments}
        partitions = self._records.key_partitions.get(task.collection_id, (task.partition_id,))
        keys, values = (pa.array(column, pa.int64()) for column in zip(*pairs, strict=True))
        shards = shard_of_keys(keys, len(vchannels)).tolist()
        numbers = shard_of_keys(values, len(partitions)).tolist()
        for (key, value), shard, number in zip(pairs, shards, numbers, strict=True):
            place = (vchannels[shard], partitions[number])
            if place not in segment_of:
                raise InvariantBroken("IMP1", f"import {task.task_id} has no segment in {place}", (key,))
            yield Row(key, value, *place, segment_of[place], task.commit_ts, is_imported=True)

    # reads

    def now_is(self, now: Timestamp) -> None:
        """Reads as of ``now`` or later find every import whose task has completed before."""
        if now == NO_TIMESTAMP:
            return
        for task in self._tasks.values():
            if task.state is ImportState.COMPLETED:
                self._found_from.setdefault(task.task_id, now)

    def may_be_missing(self, row: Row, read_ts: Timestamp) -> bool:
        """Whether a read at that timestamp may be answered without this row, which was imported."""
        if not row.is_imported:
            return False
        return read_ts < self._found_from.get(self._task_of[row.segment_id], MAX_TIMESTAMP)

    def may_linger(self, row: Row, read_ts: Timestamp) -> bool:
        """Whether a read at that timestamp may find this row though an import has deleted it."""
        return read_ts < self._found_from.get(row.died_by, MAX_TIMESTAMP)

    def check_replaced(self, rows: Iterable[Row], read_ts: Timestamp) -> None:
        """Check that a key is not missing of which an import deletes one row and adds another.

        Both may be missing if the first row was imported itself, and reads need not see it yet. ``rows``: all
        that the key may have. Raises `InvariantBroken`.
        """
        rows = list(rows)
        adds = {self._task_of[row.segment_id]: row for row in rows if row.is_imported}
        for row in rows:
            if row.died_by in adds and row.died <= read_ts and not self.may_be_missing(row, read_ts):
                what = f"an answer at {read_ts} has neither row of upsert {row.died_by}"
                raise InvariantBroken("IMP1", what, (row.key,))

    def check_whole(self, rows: Iterable[Row], found: Collection[int], read_ts: Timestamp) -> None:
        """Check that an answer holds all rows of an import or none. Raises `InvariantBroken`.

        ``rows``: imported rows whose keys only they have.
        """
        there: dict[TaskID, bool] = {}
        for row in rows:
            task_id, is_there = self._task_of[row.segment_id], row.key in found
            if there.setdefault(task_id, is_there) != is_there:
                what = f"a part of import {task_id} is in an answer at {read_ts}"
                raise InvariantBroken("IMP1", what, (row.key,))


def _pairs(rows: pa.RecordBatch) -> Iterable[tuple[int, int]]:
    """The keys of rows with their values."""
    return zip(*(rows.column(name).to_pylist() for name in (KEY, VALUE)), strict=True)


def _may_become(current: ImportState, following: ImportState) -> bool:
    return current not in ENDED and (current not in _COMMITTED or following in _COMMITTED)
