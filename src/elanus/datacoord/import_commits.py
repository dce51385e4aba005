"""Import commits: the one change by which the files of an import become part of a collection.

The change contains the segments, the task's own record, the vchannels as they were read, and what is
remembered of a named write. It is refused when any of these records has changed: a job that was given up, ran
twice, or finished late changes nothing, and neither does one whose collection or partition was dropped
meanwhile.

The rows' timestamp is that of the commit, and is in the manifests. So these are written first, without the
role's lock. A flush may extend the lists of delta logs at the same time: then those of the import are written
once more.
"""

from __future__ import annotations

from elanus.api.imports import ImportOutcome
from elanus.core.attempts import stamped
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotFound, CommitRefused, PartitionNotFound
from elanus.core.ids import ALL_PARTITIONS
from elanus.core.imports import ImportState, ImportTask, stepped
from elanus.core.segments import SegmentInfo
from elanus.core.timestamps import Timestamp
from elanus.core.writes import record_of
from elanus.datacoord.context import DataContext
from elanus.datacoord.imported_segments import imported_manifest, imported_segment
from elanus.datacoord.write_commits import Change, are_current, changed, with_deletes


class ImportCommits:
    """Checks and applies the commits of imports."""

    def __init__(self, context: DataContext) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._allocator = context.allocator
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._lock = context.lock
        self._changes = context.changes
        self._lists_written = 0

    async def collection_of(self, task: ImportTask) -> Collection:
        """Return the collection of a task. Raises `CollectionNotFound`, `PartitionNotFound`."""
        vchannels = self._state.vchannels_of(task.collection_id)
        if not vchannels or any(v.dropping for v in vchannels):
            raise CollectionNotFound(f"collection not found[collection={task.collection}]")
        collection = await self._rootcoord.collection_by_id(task.collection_id)
        present = (ALL_PARTITIONS, *(p.partition_id for p in collection.partitions))
        if task.partition_id not in present:
            raise PartitionNotFound(f"partition not found[partition={task.partition}]")
        return collection

    async def commit(self, task: ImportTask, outcome: ImportOutcome, attempt: int) -> None:
        """Commit all rows or none. ``attempt``: the number of the files that it writes, used once.

        Raises `CommitRefused`, `CollectionNotFound`, `PartitionNotFound`, and whatever storing raises.
        """
        try:
            with self._state.importing(task):
                commit_ts = await self._rootcoord.alloc_timestamp(1)
                segments = await self._write(task, outcome, commit_ts, attempt)
                while not await self._try_to_commit(task, outcome, segments, commit_ts, attempt):
                    pass  # the lists of delta logs have changed meanwhile
        finally:
            # also when this call was cancelled: it may have committed all the same
            self._changes.happened(task.collection_id)

    async def _write(
        self, task: ImportTask, outcome: ImportOutcome, commit_ts: Timestamp, attempt: int
    ) -> list[SegmentInfo]:
        """Write the segments' manifests. Returns the records that name them."""
        collection = await self.collection_of(task)
        max_rows = self._allocator.max_rows(collection.schema)
        manifests = [imported_manifest(task, written, commit_ts) for written in outcome.segments]
        paths = await self._manifests.put_all(manifests, stamped(attempt, "import"))
        return [
            imported_segment(manifest, path, max_rows)
            for manifest, path in zip(manifests, paths, strict=True)
        ]

    async def _try_to_commit(
        self,
        task: ImportTask,
        outcome: ImportOutcome,
        segments: list[SegmentInfo],
        commit_ts: Timestamp,
        attempt: int,
    ) -> bool:
        self._lists_written += 1
        name = stamped(attempt, f"write-{self._lists_written}")
        changes = await with_deletes(self._state, self._manifests, outcome, commit_ts, name)
        async with self._lock:
            if self._state.import_task(task.task_id) != task:
                raise CommitRefused(f"attempt {task.attempt} of import {task.task_id} was given up")
            if not are_current(self._state, changes):
                return False
            await self._apply(task, outcome, segments, commit_ts, changes)
            return True

    async def _apply(
        self,
        task: ImportTask,
        outcome: ImportOutcome,
        segments: list[SegmentInfo],
        commit_ts: Timestamp,
        changes: list[Change],
    ) -> None:
        """Persist the records. Called under the lock: the collection and partition exist throughout."""
        await self.collection_of(task)
        persisted = stepped(
            task,
            ImportState.PERSISTED,
            rows=outcome.rows,
            rejected=outcome.rejected,
            left_out=outcome.left_out,
            segments=tuple(s.segment_id for s in segments),
            commit_ts=commit_ts,
            deltas=tuple(log.file.path for log in outcome.deltas),
            files_bytes=outcome.files_bytes,
            staged="",
        )
        # All vchannels are written: this compares their records, in the same transaction.
        vchannels = changed(self._state.vchannels_of(task.collection_id), changes)
        writes = [record_of(persisted, self._clock.wall_ms())] if task.write_id else []
        await self._state.put(segments, vchannels, [persisted], writes=writes)
