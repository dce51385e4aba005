"""Import tasks: their states, which one runs next, and when a task is forgotten.

::

    Pending ──its turn──▶ Started ────────────commit────────────▶ Persisted ──indexed, served──▶ Completed
       │                     ├──written──▶ Uncommitted ──commit──────▲
       └───── cancelled ─────┴── refused, cancelled ──┴──▶ Failed

A task imports all of its files or none. Everything before *Persisted* may be repeated any number of times;
the step to it is the commit, which makes all rows part of the collection at once. A task that does not commit
by itself (``auto_commit``) is *Uncommitted* when its files are written: its client commits or aborts it. The
reference has one more state, Flushed, between Persisted and Completed: here the same commit reaches both, and
current clients do not know its number.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, PartitionID, SegmentID, TaskID
from elanus.core.jobs import JobEntry
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

ATTEMPTS_MAX = 5
"""How often a task is started if the pipeline process ends while the task runs, before the task fails."""
STORE_AWAY_MAX_S = 1800
"""How long an object store may be away before an import fails that needs it. Tries that it ends do not
count."""
_REASON_MAX_CHARS = 4096
"""A reason quotes the user's file, and is part of a record of the metadata, whose size is limited."""


@dataclass(frozen=True, slots=True)
class ImportPolicy:
    """``tasks_max``: how many tasks may wait; ``retention_ms``: how long an ended task is kept.

    ``write_retention_ms``: how long a named write is remembered (`elanus.core.writes`). ``at_once``: how many
    tasks run at a time. ``timeout_ms``: how long one may take from its first try on.
    """

    tasks_max: int
    retention_ms: int
    write_retention_ms: int
    at_once: int = 4
    timeout_ms: int = 86_400_000


class WriteMode(StrEnum):
    """The kind of a write: it adds its rows, and does this in addition.

    ``UPSERT``: older rows of the partition with the same keys are deleted, of all partitions where a
    partition key decides. ``DELETE``: the files hold keys, whose rows are deleted; none is added.
    ``OVERWRITE``: the rows that the partition had when the write began are deleted, and later ones with the
    same keys.
    """

    APPEND = "append"
    UPSERT = "upsert"
    DELETE = "delete"
    OVERWRITE = "overwrite"


class Duplicates(StrEnum):
    """Which of the rows with one primary key an import adds.

    The rows of a key are in an order: first the one that the partition has (the collection, where a partition
    key decides), then those of the files, as the import names them. ``KEEP``: all of them. ``FIRST``: the
    first one; of a key that there is already, none. ``LAST``: the last one. ``REJECT``: all but the first are
    rows that do not fit.
    """

    KEEP = "keep"
    FIRST = "first"
    LAST = "last"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How the CSV files of an import are written.

    ``separator``: the character between the values of a row. ``null``: the text of a null; the empty text is
    one only where it has no quotes, any other with them or without.
    """

    separator: str = ","
    null: str = ""


COMMAS = CsvFormat()


def looks_at_existing(mode: WriteMode, duplicates: Duplicates) -> bool:
    """Whether it depends on the keys of the collection which rows a write adds."""
    return mode is WriteMode.APPEND and duplicates in (Duplicates.FIRST, Duplicates.REJECT)


class ImportState(IntEnum):
    """The wire's numbers, except for UNCOMMITTED: no RPC of the reference has that state."""

    PENDING = 0
    FAILED = 1
    STARTED = 2
    PERSISTED = 5
    COMPLETED = 6
    UNCOMMITTED = 9


_STEPS = {
    ImportState.PENDING: frozenset({ImportState.STARTED, ImportState.FAILED}),
    ImportState.STARTED: frozenset(
        {ImportState.STARTED, ImportState.UNCOMMITTED, ImportState.PERSISTED, ImportState.FAILED}
    ),
    ImportState.UNCOMMITTED: frozenset({ImportState.PERSISTED, ImportState.FAILED}),
    ImportState.PERSISTED: frozenset({ImportState.COMPLETED}),
}
OPEN = frozenset({ImportState.PENDING, ImportState.STARTED})
WAITING = OPEN | {ImportState.UNCOMMITTED}
"""Those that may still commit."""
ENDED = frozenset({ImportState.FAILED, ImportState.COMPLETED})


@dataclass(frozen=True, slots=True)
class WritePlace:
    """The collection and the partition that names mean.

    ``partition_id`` is `ALL_PARTITIONS` where a partition key decides, and for a delete that names none.
    """

    collection_id: CollectionID
    partition_id: PartitionID


@dataclass(frozen=True, slots=True)
class ImportTask:
    """The record of an import. ``collection`` and ``partition`` are the names the client gave.

    ``files``: paths below the import directory. ``created_ms`` and ``ended_ms`` are Unix time (0: not yet).
    ``attempt``: the number of the try that may commit; ``tries``: the number of tries so far. ``rows``,
    ``segments`` and ``commit_ts`` are set by the commit. ``reason``: why it failed. ``percent``: progress of
    its job; known while the job runs, and not stored. ``write_id``: what the caller called the write;
    ``batch``: its number, where ``write_id`` names a stream of writes (-1: it names one); ``query_id``: who
    writes that stream ("": not known). ``deltas``: the
    delta logs that the commit added.
    ``rejects_max``: how many rows may be left out because they do not fit, ``rejected``: how many were.
    ``started_ms``: when the first try began; ``first_attempt``: its number. Files of all tries since then
    stay until the task ends, because a later try may use what an earlier one has written.
    ``left_out``: how many rows were left out because of their keys (`Duplicates`). ``takes_keys``: files may
    bring values of an automatic key (`elanus.core.sent_keys`). ``csv``: the format of its CSV files.
    ``timeout_ms``: after how long it fails, counted from its creation; 0: the client named none.
    ``files_bytes``: the sizes of ``files``, set by the commit; empty if they are not known.
    ``auto_commit``: whether it commits by itself. ``staged``: the path of the outcome of its jobs, while its
    commit is waited for.
    """

    task_id: TaskID
    collection_id: CollectionID
    collection: str
    partition_id: PartitionID
    partition: str
    files: tuple[str, ...]
    created_ms: int
    state: ImportState = ImportState.PENDING
    attempt: int = 0
    tries: int = 0
    rows: int = 0
    segments: tuple[SegmentID, ...] = ()
    commit_ts: Timestamp = NO_TIMESTAMP
    ended_ms: int = 0
    reason: str = ""
    percent: float = 0.0
    write_id: str = ""
    rejects_max: int = 0
    rejected: int = 0
    started_ms: int = 0
    first_attempt: int = 0
    batch: int = -1
    mode: WriteMode = WriteMode.APPEND
    deltas: tuple[str, ...] = ()
    duplicates: Duplicates = Duplicates.KEEP
    left_out: int = 0
    takes_keys: bool = False
    csv: CsvFormat = COMMAS
    timeout_ms: int = 0
    files_bytes: tuple[int, ...] = ()
    query_id: str = ""
    auto_commit: bool = True
    staged: str = ""


def deadline_ms(task: ImportTask, policy: ImportPolicy) -> int:
    """Return when a task that was started fails, in Unix time."""
    latest = task.started_ms + policy.timeout_ms
    return min(latest, task.created_ms + task.timeout_ms) if task.timeout_ms else latest


def overdue(tasks: Iterable[ImportTask], now_ms: int, policy: ImportPolicy) -> tuple[ImportTask, ...]:
    """Return the tasks that have not begun within the time that their clients named, and those that were not
    committed in time."""

    def is_late(task: ImportTask) -> bool:
        if task.state is ImportState.UNCOMMITTED:
            return deadline_ms(task, policy) <= now_ms
        return task.state is ImportState.PENDING and 0 < task.timeout_ms <= now_ms - task.created_ms

    return tuple(filter(is_late, tasks))


def too_late(task: ImportTask, policy: ImportPolicy) -> str:
    """Return why a task failed that took longer than its client or the server allowed."""
    what = "it was not committed within" if task.state is ImportState.UNCOMMITTED else "it took longer than"
    if deadline_ms(task, policy) < task.started_ms + policy.timeout_ms or not task.started_ms:
        return f"{what} its timeout of {task.timeout_ms / 1000:g} s"
    return f"{what} {policy.timeout_ms // 1000} s: raise imports.timeout_s"


def stepped(task: ImportTask, state: ImportState, **changes: object) -> ImportTask:
    """Return the task in its next state. Raises `InvalidParameter` for a step that is not allowed."""
    if state not in _STEPS.get(task.state, frozenset()):
        raise InvalidParameter(
            f"import {task.task_id} is {task.state.name.capitalize()}: it cannot become "
            f"{state.name.capitalize()}"
        )
    return replace(task, state=state, **changes)  # type: ignore[arg-type]


def failed(task: ImportTask, reason: str, now_ms: int) -> ImportTask:
    """Return the task as failed, without rows. Raises as `stepped` does."""
    shown = reason if len(reason) <= _REASON_MAX_CHARS else reason[:_REASON_MAX_CHARS] + "…"
    return stepped(task, ImportState.FAILED, reason=shown, ended_ms=now_ms, rows=0, staged="")


def next_task(tasks: Iterable[ImportTask], running: Container[TaskID] = ()) -> ImportTask | None:
    """Return the oldest task that has not committed and does not run; one interrupted by a crash precedes
    waiting ones."""
    waiting = [t for t in tasks if t.state in OPEN and t.task_id not in running]
    return min(waiting, key=lambda t: (t.state is not ImportState.STARTED, t.task_id), default=None)


def oldest_attempt(tasks: Iterable[ImportTask], none: int) -> int:
    """Return the lowest number of an attempt whose files a task may still commit, at most ``none``."""
    written = (ImportState.STARTED, ImportState.UNCOMMITTED)
    return min((none, *(t.first_attempt or t.attempt for t in tasks if t.state in written)))


def same_write(tasks: Iterable[ImportTask], wanted: ImportTask) -> ImportTask | None:
    """Return the task of the same write into a collection, unless it failed; None without a ``write_id``.

    A later batch of the same stream counts as well: a stream writes one batch after the other.
    """
    write = (wanted.collection_id, wanted.write_id)
    for task in tasks if wanted.write_id else ():
        is_same = (task.collection_id, task.write_id) == write and task.batch >= wanted.batch
        if is_same and task.state is not ImportState.FAILED:
            return task
    return None


def forgotten(tasks: Iterable[ImportTask], now_ms: int, retention_ms: int) -> tuple[ImportTask, ...]:
    """Return the tasks that ended longer ago than the retention time."""
    return tuple(t for t in tasks if t.state in ENDED and now_ms - t.ended_ms > retention_ms)


def waiting_for(task_id: TaskID) -> str:
    """Return the job ledger's name for a task that waits for a job."""
    return f"import {task_id}"


def with_progress(task: ImportTask, jobs: Iterable[JobEntry]) -> ImportTask:
    """Return the task with the progress of its jobs in the ledger."""
    if task.state is not ImportState.STARTED:
        return task
    name = waiting_for(task.task_id)
    running = [job.progress.percent for job in jobs if job.is_open and name in job.waiting]
    return replace(task, percent=max(running, default=0.0))
