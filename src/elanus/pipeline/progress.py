"""The progress of running tasks, reported through the object store.

One task may take minutes (the index of a large segment), and Spark reports nothing about a task before its
end: accumulators travel with its result. The object store is the one place that a Python worker and its
driver both reach, on one machine and on a cluster alike. So a long task puts an empty object now and then,
whose *name* is the report; the driver lists them.

Only long tasks report, at most every `REPORT_INTERVAL_S`. A report that fails is skipped: the work goes on.
The objects are deleted with their job. Those of a driver that died are garbage like any other, judged by
their age.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from elanus.core.errors import ElanusError
from elanus.core.faults import StorageFault
from elanus.core.jobs import JobProgress
from elanus.storage.objects import open_store
from elanus.storage.paths import progress_path, progress_prefix
from elanus.storage.port import ObjectStore

REPORT_INTERVAL_S = 2.0
_WHOLE = 1000


@dataclass(frozen=True, slots=True, order=True)
class ProgressReport:
    """The last report of one try of one task. ``thousandths`` of its work are done, ``rows`` written."""

    task: int
    attempt: int
    thousandths: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.task}-{self.attempt}-{self.thousandths}-{self.rows}"


class TaskProgress:
    """A task's side. ``job``: a part of an object's path that no other job's tasks use."""

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
        self._last = ProgressReport(task, attempt, 0, 0)
        self._clock_s = clock_s
        self._next_s = clock_s() + REPORT_INTERVAL_S

    @classmethod
    def of_this(cls, store: ObjectStore, job: str) -> TaskProgress:
        """Return the progress of the Spark task that runs here; outside of one, of a job's only task."""
        from pyspark import TaskContext  # only here: what is tested without Spark must not import it

        context = TaskContext.get()
        if context is None:
            return cls(store, job)
        return cls(store, job, context.partitionId(), context.taskAttemptId())

    def __call__(self, share: float, rows: int = 0) -> None:
        """``share`` of the work is done, in [0, 1], and ``rows`` have been written."""
        if self._clock_s() >= self._next_s:
            self._report(share, rows)

    def done(self, rows: int) -> None:
        """Report the end, if the task has reported before."""
        if self._last.thousandths:
            self._report(1.0, rows)

    def _report(self, share: float, rows: int) -> None:
        report = replace(self._last, thousandths=max(1, int(share * _WHOLE)), rows=rows)
        if report != self._last:
            with contextlib.suppress(ElanusError, StorageFault):
                self._store.put(progress_path(self._job, report.name), b"")
            self._last = report
        self._next_s = self._clock_s() + REPORT_INTERVAL_S


@dataclass(frozen=True, slots=True)
class ProgressBoard:
    """The driver's side: the reports of the tasks of ``job``."""

    store_url: str
    job: str

    def read(self) -> list[ProgressReport]:
        """Raises what listing raises."""
        return [_report_of(name) for name in self._names()]

    def clear(self) -> None:
        """Raises what listing and deleting raise."""
        store = open_store(self.store_url)
        store.delete_all([progress_path(self.job, name) for name in self._names()])

    def _names(self) -> list[str]:
        listed = open_store(self.store_url).list(progress_prefix(self.job))
        return [info.path.rpartition("/")[2] for info in listed]


def _report_of(name: str) -> ProgressReport:
    return ProgressReport(*map(int, name.split("-")))


def combined(progress: JobProgress, reports: Iterable[ProgressReport]) -> JobProgress:
    """Combine Spark's view of a job with the reports of its running tasks. A task's latest try counts."""
    latest = {one.task: one for one in sorted(reports)}
    running = sum(one.thousandths for one in latest.values() if one.thousandths < _WHOLE)
    share = min(running / _WHOLE, float(progress.tasks - progress.tasks_done))
    return replace(progress, share=share, rows=sum(one.rows for one in latest.values()))
