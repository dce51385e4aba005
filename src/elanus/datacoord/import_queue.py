"""Import tasks, from the queue to the commit: all rows of all files at once, or none.

Some tasks run at a time. A task's attempt is persisted first; then a data node has Spark jobs write segments
under the attempt's number, and the commit makes them part of the collection
(`elanus.datacoord.import_commits`). A task may leave its commit to its client
(`elanus.datacoord.staged_imports`).

The rows' timestamp is that of the commit. So a delete issued before the commit does not affect them, one
issued after it does, and no read at an earlier timestamp sees any of them.

A task that was interrupted by a crash or a restart begins another try, which continues with what finished
Spark tasks of earlier tries have written: garbage collection spares it while the task's record says so. The
record also says when the task began, so that its deadline holds across restarts. A committed task is
*Completed* when its segments have their indexes and, if the collection is loaded, are served
(`elanus.datacoord.import_endings`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import structlog

from elanus.api.imports import ImportOrder, ImportOutcome, ImportRequest
from elanus.core.catalog import Collection
from elanus.core.errors import (
    CollectionNotFound,
    DeadlineExceeded,
    ElanusError,
    ImportRefused,
    PartitionNotFound,
    StoreAway,
    TaskQueueFull,
    Unavailable,
)
from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.imports import (
    ATTEMPTS_MAX,
    OPEN,
    STORE_AWAY_MAX_S,
    WAITING,
    ImportPolicy,
    ImportState,
    ImportTask,
    deadline_ms,
    failed,
    next_task,
    same_write,
    stepped,
    too_late,
    with_progress,
)
from elanus.core.partition_keys import key_partitions
from elanus.core.sent_keys import marked
from elanus.core.timestamps import Timestamp
from elanus.core.writes import as_task
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes, LiveNode
from elanus.datacoord.import_commits import ImportCommits
from elanus.datacoord.import_endings import ImportEndings
from elanus.datacoord.ledger import JobLedger
from elanus.datacoord.rows_before import RowsBefore
from elanus.datacoord.staged_imports import StagedImports
from elanus.meta.cancellation import uncancellable

_RETRY_PAUSES_S = (1.0, 4.0, 15.0, 30.0)
"""After each try that was interrupted. An object store may be away for as long as a restart takes."""
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class _Run:
    """The jobs of a task, on the data node registered under ``epoch``."""

    epoch: int
    call: asyncio.Future[ImportOutcome]


@dataclass(frozen=True, slots=True)
class _Interruption:
    """``away``: how many tries in a row the object store has ended by now; ``away_since_s``: since when, by
    the monotonic clock."""

    reason: str
    away: int = 0
    away_since_s: float = 0.0


class ImportQueue:
    """The queue of import tasks. Implements `elanus.api.datacoord.ImportCalls`.

    Nothing is dropped while the role's lock is held. ``is_served``: whether a committed task's segments have
    everything that reads of them wait for. ``before``: what a task has to know of the rows that exist, whose
    files stay meanwhile.
    """

    def __init__(
        self,
        context: DataContext,
        nodes: DataNodes,
        ledger: JobLedger,
        is_served: Callable[[ImportTask], Awaitable[bool]],
        policy: ImportPolicy,
        before: Callable[[ImportTask], AbstractAsyncContextManager[RowsBefore]],
    ) -> None:
        self._state = context.state
        self._allocator = context.allocator
        self._attempts = context.attempts
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._lock = context.lock
        self._spawn = context.spawn
        self._nodes = nodes
        self._ledger = ledger
        self._policy = policy
        self._before = before
        self._commits = ImportCommits(context)
        self._staged = StagedImports(context, self._commits)
        self._endings = ImportEndings(context, is_served, policy)
        self._wake = asyncio.Event()
        self._is_working = False
        self._running: dict[TaskID, _Run] = {}
        self._at_work: dict[TaskID, LiveNode] = {}
        """The tasks that are being tried, from before their attempt to after their commit."""
        self._interrupted: dict[TaskID, _Interruption] = {}
        """The end of the latest try of a task that is to be retried."""

    # requests

    async def start_import(self, request: ImportRequest) -> TaskID:
        """Queue a task, or return that of the same write.

        Raises `CollectionNotFound`, `PartitionNotFound`, and `TaskQueueFull`.
        """
        task = ImportTask(
            TaskID(await self._rootcoord.alloc_ids(1)),
            request.collection_id,
            request.collection,
            request.partition_id,
            request.partition,
            request.files,
            self._clock.wall_ms(),
            write_id=request.write_id,
            rejects_max=request.rejects_max,
            batch=request.batch,
            mode=request.mode,
            duplicates=request.duplicates,
            takes_keys=request.takes_keys,
            csv=request.csv,
            timeout_ms=request.timeout_ms,
            query_id=request.query_id,
            auto_commit=request.auto_commit,
        )
        async with self._lock:
            await self._commits.collection_of(task)
            done = self._state.writes.find(task.collection_id, task.write_id, task.batch)
            known = done or same_write(self._state.imports(), task)
            if known is not None:
                return known.task_id
            if sum(t.state in WAITING for t in self._state.imports()) >= self._policy.tasks_max:
                raise TaskQueueFull(
                    f"{self._policy.tasks_max} imports wait already (imports.tasks_max): retry later, and "
                    "commit or abort those that are Uncommitted"
                )
            await self._queue(task)
        return task.task_id

    @uncancellable
    async def _queue(self, task: ImportTask) -> None:
        """Persist a task and have it started. A caller that is cancelled between the two, as that of a proxy
        which dies, would leave a task that nothing starts."""
        await self._state.put(imports=[task])
        self.start()

    async def import_tasks(self, collection_id: CollectionID) -> tuple[ImportTask, ...]:
        """Return the tasks of one collection, or all tasks when it is 0; oldest first."""
        found = [t for t in self._state.imports() if collection_id in (0, t.collection_id)]
        jobs = await self._ledger.jobs()
        return tuple(with_progress(task, jobs) for task in sorted(found, key=lambda t: t.task_id))

    async def import_task(self, task_id: TaskID) -> ImportTask:
        return with_progress(self._task(task_id), await self._ledger.jobs())

    def _task(self, task_id: TaskID) -> ImportTask:
        found = self._state.import_task(task_id)
        done = self._state.writes.of_task(task_id)
        if found is None and done is not None:
            return as_task(done)
        if found is None:
            raise ImportRefused(
                f"import job does not exist, jobID={task_id}: it never was, or has been forgotten: "
                "importing data failed"
            )
        return found

    async def commit_import(self, task_id: TaskID) -> None:
        """Raises `ImportRefused` for an unknown task, and as `StagedImports.commit` does."""
        await self._staged.commit(self._task(task_id))

    async def cancel_import(self, task_id: TaskID) -> None:
        """Raises `ImportRefused` for an unknown task, `InvalidParameter` for one that has committed."""
        async with self._lock:
            task = self._task(task_id)
            if task.state is not ImportState.FAILED:
                await self._cancel(failed(task, "cancelled", self._clock.wall_ms()))

    @uncancellable
    async def _cancel(self, cancelled: ImportTask) -> None:
        """Persist that a task is cancelled, and end its job. If the caller were gone between the two, the job
        would go on to its end in vain, and keep others waiting."""
        await self._state.put(imports=[cancelled])
        self._interrupted.pop(cancelled.task_id, None)
        if (running := self._running.get(cancelled.task_id)) is not None:
            running.call.cancel()

    def node_registered(self) -> None:
        """Note that a data node is available to run the next task."""
        self._wake.set()

    def node_ended(self, epoch: int) -> None:
        """Interrupt the tasks that ran there: they go on on another node, or under a new registration."""
        for running in self._running.values():
            if running.epoch == epoch:
                running.call.cancel()

    # lifecycle

    def start(self) -> None:
        """Start the loops if there are tasks; without tasks there is nothing to do."""
        self._wake.set()
        if self._state.imports() and not self._is_working:
            self._is_working = True
            self._spawn(self._work())
            self._spawn(self._endings.run())

    async def _work(self) -> None:
        """Start tasks, the oldest first, until cancelled."""
        while True:
            self._wake.clear()
            task = next_task(self._state.imports(), self._at_work)
            node = self._least_importing()
            if task is None or node is None or len(self._at_work) >= self._policy.at_once:
                await self._wake.wait()
                continue
            self._at_work[task.task_id] = node
            self._spawn(self._try(task, node))

    def _least_importing(self) -> LiveNode | None:
        at_work = [node.epoch for node in self._at_work.values()]
        return min(self._nodes.by_load(), key=lambda node: at_work.count(node.epoch), default=None)

    async def _try(self, task: ImportTask, node: LiveNode) -> None:
        try:
            await self._run(task, node)
        except Exception as error:  # noqa: BLE001 - the task would never be tried again
            known = isinstance(error, ElanusError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            found = self._interruption(task, error, reason)
            self._interrupted[task.task_id] = found
            _log.warning("import interrupted", task=task.task_id, error=reason)
            if found.away:
                await self._give_back_try(task.task_id)
            in_row = found.away - 1 if found.away else task.tries
            await asyncio.sleep(_RETRY_PAUSES_S[min(in_row, len(_RETRY_PAUSES_S) - 1)])
        else:
            self._interrupted.pop(task.task_id, None)
        finally:
            del self._at_work[task.task_id]
            current = self._state.import_task(task.task_id)
            if current is None or current.state not in OPEN:  # it was cancelled in the pause
                self._interrupted.pop(task.task_id, None)
            self._wake.set()

    def _interruption(self, task: ImportTask, error: Exception, reason: str) -> _Interruption:
        if not isinstance(error, StoreAway):
            return _Interruption(reason)
        before = self._interrupted.get(task.task_id, _Interruption(""))
        since_s = before.away_since_s if before.away else self._clock.monotonic_s()
        return _Interruption(reason, before.away + 1, since_s)

    async def _give_back_try(self, task_id: TaskID) -> None:
        """Not to count a try: their number bounds how often an import may end the process that runs it."""
        async with self._lock:
            task = self._state.import_task(task_id)
            if task is not None and task.state is ImportState.STARTED:
                await self._state.put(imports=[replace(task, tries=task.tries - 1)])

    async def _run(self, task: ImportTask, node: LiveNode) -> None:
        begun = await self._begin(task, node)
        if begun is None:
            return
        started, order = begun
        ends_ms = deadline_ms(started, self._policy)
        left_s = (ends_ms - self._clock.wall_ms()) / 1000
        try:
            async with asyncio.timeout(left_s), self._before(started) as rows:
                known = replace(order, replaced=rows.replaced, existing=rows.existing)
                outcome = await self._outcome(node, started, known)
        except TimeoutError:
            await self._fail(started, too_late(started, self._policy))
            return
        if outcome is None:
            return
        try:
            if started.auto_commit:
                await self._commits.commit(started, outcome, started.attempt)
            else:
                await self._staged.stage(started, outcome)
        except (CollectionNotFound, PartitionNotFound) as error:
            await self._fail(started, error.message)

    async def _outcome(self, node: LiveNode, task: ImportTask, order: ImportOrder) -> ImportOutcome | None:
        """Return the job's outcome; None if it failed or was cancelled. Raises `Unavailable` for a lost
        node."""
        if self._state.import_task(task.task_id) != task:
            return None  # cancelled while it looked at the existing rows; from here on there is a call to end
        call = asyncio.ensure_future(node.ports.imports.import_files(order))
        self._running[task.task_id] = _Run(node.epoch, call)
        try:
            return await call
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            return None  # the task was cancelled, or is to run on another node
        except (Unavailable, DeadlineExceeded):
            raise  # the task is tried again
        except ElanusError as error:
            await self._fail(task, error.message)
            return None
        finally:
            del self._running[task.task_id]

    def _in_vain(self, task: ImportTask) -> str | None:
        """Return why a task is not tried again; None: it is."""
        last = self._interrupted.get(task.task_id, _Interruption(""))
        if last.away and self._clock.monotonic_s() - last.away_since_s >= STORE_AWAY_MAX_S:
            return f"the object store was away for {STORE_AWAY_MAX_S} s"
        return f"begun {task.tries} times in vain" if task.tries >= ATTEMPTS_MAX else None

    async def _begin(self, task: ImportTask, node: LiveNode) -> tuple[ImportTask, ImportOrder] | None:
        """Persist the next attempt and return it; None when the task has failed instead."""
        if (in_vain := self._in_vain(task)) is not None:
            last = self._interrupted.pop(task.task_id, _Interruption("the coordinator ended"))
            await self._fail(task, f"{in_vain}; the last time: {last.reason}")
            return None
        attempt = await self._attempts.open(1, node.epoch)
        try:
            stamp = await self._rootcoord.alloc_timestamp(1)
            async with self._lock:
                try:
                    collection = await self._commits.collection_of(task)
                except (CollectionNotFound, PartitionNotFound) as error:
                    await self._put_failed(task, error.message)
                    return None
                if self._state.import_task(task.task_id) != task:
                    return None  # cancelled meanwhile
                started = stepped(
                    task,
                    ImportState.STARTED,
                    attempt=attempt,
                    tries=task.tries + 1,
                    started_ms=task.started_ms or self._clock.wall_ms(),
                    first_attempt=task.first_attempt or attempt,
                )
                await self._state.put(imports=[started])
        finally:
            self._attempts.close(attempt)  # from here on the record keeps its files
        return started, self._order(started, collection, stamp)

    def _order(self, task: ImportTask, collection: Collection, stamp: Timestamp) -> ImportOrder:
        """Return the order for a started task, without what the existing rows add to it."""
        return ImportOrder(
            task_id=task.task_id,
            attempt=task.attempt,
            collection_id=task.collection_id,
            partition_id=task.partition_id,
            schema=marked(collection.schema) if task.takes_keys else collection.schema,
            vchannels=collection.vchannels,
            files=task.files,
            segment_rows_max=self._allocator.max_rows(collection.schema),
            stamp=stamp,
            key_partitions=_key_partitions(collection),
            rejects_max=task.rejects_max,
            first_attempt=task.first_attempt,
            mode=task.mode,
            duplicates=task.duplicates,
            csv=task.csv,
        )

    async def _fail(self, task: ImportTask, reason: str) -> None:
        async with self._lock:
            await self._put_failed(task, reason)

    async def _put_failed(self, task: ImportTask, reason: str) -> None:
        if self._state.import_task(task.task_id) == task:
            _log.warning("import failed", task=task.task_id, reason=reason)
            await self._state.put(imports=[failed(task, reason, self._clock.wall_ms())])


def _key_partitions(collection: Collection) -> tuple[PartitionID, ...]:
    if collection.schema.partition_key is None:
        return ()
    return key_partitions({p.name: p.partition_id for p in collection.partitions})
