"""How far a running task is: told through the object store.

One task may take minutes (the index of a large segment), and Spark says nothing of a task before its end:
accumulators travel with its result. The object store is the one place that a Python worker and its driver
both reach, on one machine and on a cluster alike. So a task that takes long puts an empty object now and then
whose *name* says how far it is; whoever wants to know lists them.

Told at most every `TELL_S`, by long tasks alone, and never at the cost of the work: what cannot be told is
not told. The objects go with their job. Those of a driver that died are garbage like any other, judged by
their age.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from elanus.core.errors import ElanusError
from elanus.core.jobs import JobProgress
from elanus.storage.objects import open_store
from elanus.storage.paths import progress_path, progress_prefix
from elanus.storage.port import ObjectExists, ObjectStore

TELL_S = 2.0
_WHOLE = 1000


@dataclass(frozen=True, slots=True, order=True)
class Told:
    """What one try of one task said last. ``thousandths`` of its work are done, ``rows`` written."""

    task: int
    attempt: int
    thousandths: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.task}-{self.attempt}-{self.thousandths}-{self.rows}"


class TaskProgress:
    """A task's side. ``job``: what no other job's tasks use, a part of an object's path."""

    def __init__(
        self,
        store: ObjectStore,
        job: str,
        task: int = 0,
        attempt: int = 0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._job = job
        self._last = Told(task, attempt, 0, 0)
        self._clock_s = clock_s
        self._next_s = clock_s() + TELL_S

    @classmethod
    def of_this(cls, store: ObjectStore, job: str) -> TaskProgress:
        """Of the Spark task that runs here; outside of one, of a job's only task."""
        from pyspark import TaskContext  # only here: what is tested without Spark must not import it

        context = TaskContext.get()
        if context is None:
            return cls(store, job)
        return cls(store, job, context.partitionId(), context.taskAttemptId())

    def __call__(self, share: float, rows: int = 0) -> None:
        """``share`` of the work is done, in [0, 1], and ``rows`` have been written."""
        if self._clock_s() >= self._next_s:
            self._tell(share, rows)

    def done(self, rows: int) -> None:
        """Of a task that has told nothing so far, nobody wants to hear that either."""
        if self._last.thousandths:
            self._tell(1.0, rows)

    def _tell(self, share: float, rows: int) -> None:
        told = replace(self._last, thousandths=max(1, int(share * _WHOLE)), rows=rows)
        if told != self._last:
            with contextlib.suppress(ElanusError, ObjectExists, OSError):
                self._store.put(progress_path(self._job, told.name), b"")
            self._last = told
        self._next_s = self._clock_s() + TELL_S


@dataclass(frozen=True, slots=True)
class ProgressBoard:
    """The driver's side: what the tasks of ``job`` have told."""

    store_url: str
    job: str

    def read(self) -> list[Told]:
        """Raises what listing raises."""
        return [_told(name) for name in self._names()]

    def clear(self) -> None:
        """Raises what listing and deleting raise."""
        store = open_store(self.store_url)
        for name in self._names():
            store.delete(progress_path(self.job, name))

    def _names(self) -> list[str]:
        listed = open_store(self.store_url).list(progress_prefix(self.job))
        return [info.path.rpartition("/")[2] for info in listed]


def _told(name: str) -> Told:
    return Told(*map(int, name.split("-")))


def combined(progress: JobProgress, told: Iterable[Told]) -> JobProgress:
    """What Spark knows of a job, and what its running tasks have told. A task's latest try counts."""
    latest = {one.task: one for one in sorted(told)}
    running = sum(one.thousandths for one in latest.values() if one.thousandths < _WHOLE)
    share = min(running / _WHOLE, float(progress.tasks - progress.tasks_done))
    return replace(progress, share=share, rows=sum(one.rows for one in latest.values()))
