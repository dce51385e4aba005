"""Imports that leave their commit to their client: what their jobs have written, until then.

The outcome of a task's jobs is an object, which the task's record names. So the commit needs no job, and can
be made after a restart as well. The record spares the files of its attempts from garbage collection, as that
of a running task does: a task that fails or is aborted leaves nothing behind.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from elanus.api.imports import ImportOutcome
from elanus.core.attempts import stamped
from elanus.core.errors import (
    CollectionNotFound,
    CommitRefused,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.imports import ImportState, ImportTask, failed, stepped
from elanus.datacoord.attempts import OWN
from elanus.datacoord.context import DataContext
from elanus.datacoord.import_commits import ImportCommits
from elanus.storage.paths import import_outcome_path

_STAGED = "staged"
_COMMITTED = frozenset({ImportState.PERSISTED, ImportState.COMPLETED})
_decode = msgspec.msgpack.Decoder(ImportOutcome).decode  # at import: not thread-safe when made
_log = structlog.get_logger("datacoord")


class StagedImports:
    """Stages and commits tasks. One commit runs at a time: clients make them, and they are short."""

    def __init__(self, context: DataContext, commits: ImportCommits) -> None:
        self._state = context.state
        self._store = context.store
        self._offload = context.offload
        self._attempts = context.attempts
        self._clock = context.clock
        self._lock = context.lock
        self._commits = commits
        self._turn = asyncio.Lock()

    async def stage(self, task: ImportTask, outcome: ImportOutcome) -> None:
        """Note what the jobs have written; the task then waits for its commit.

        Raises `CommitRefused` for a task that has changed, `CollectionNotFound`, `PartitionNotFound`, and
        whatever storing raises.
        """
        path = import_outcome_path(task.task_id, stamped(task.attempt, _STAGED))
        await self._offload(self._store.put, path, msgspec.msgpack.encode(outcome))
        async with self._lock:
            await self._commits.collection_of(task)
            if self._state.import_task(task.task_id) != task:
                raise CommitRefused(f"attempt {task.attempt} of import {task.task_id} was given up")
            staged = stepped(
                task,
                ImportState.UNCOMMITTED,
                rows=outcome.rows,
                rejected=outcome.rejected,
                left_out=outcome.left_out,
                files_bytes=outcome.files_bytes,
                staged=path,
            )
            await self._state.put(imports=[staged])

    async def commit(self, task: ImportTask) -> None:
        """Commit all rows or none; nothing for a task that has committed.

        Raises `InvalidParameter` for a task that has not written its rows, or failed; `CollectionNotFound`
        and `PartitionNotFound`, which end the task; and whatever storing raises, which leaves it as it is.
        """
        async with self._turn:
            task = self._state.import_task(task.task_id) or task
            if task.state in _COMMITTED:
                return
            if task.state is not ImportState.UNCOMMITTED:
                raise InvalidParameter(_refusal(task))
            outcome = _decode(await self._offload(self._store.get, task.staged))
            attempt = await self._attempts.open(1, OWN)
            try:
                await self._commits.commit(task, outcome, attempt)
            except (CollectionNotFound, PartitionNotFound) as error:
                await self._fail(task, error.message)
                raise
            except CommitRefused:
                # it was aborted, or its time was over, while the commit wrote its manifests
                raise InvalidParameter(_refusal(self._state.import_task(task.task_id) or task)) from None
            finally:
                self._attempts.close(attempt)

    async def _fail(self, task: ImportTask, reason: str) -> None:
        async with self._lock:
            if self._state.import_task(task.task_id) == task:
                _log.warning("import failed", task=task.task_id, reason=reason)
                await self._state.put(imports=[failed(task, reason, self._clock.wall_ms())])


def _refusal(task: ImportTask) -> str:
    what = f"import {task.task_id} is {task.state.name.capitalize()}"
    if task.state is ImportState.FAILED:
        return f"{what} and cannot be committed: {task.reason}"
    if task.auto_commit:
        return f"{what} and commits by itself: import with auto_commit=false to commit it by a request"
    return f"{what}, not Uncommitted: commit it when its files are written"
