"""The jobs of one process, and how they are reported to the ledger.

A process that runs jobs records what happens to them in a `JobBook`. `keep_reported` sends each change to
datacoord's ledger: changes of state immediately, progress with the next heartbeat. If the ledger cannot be
reached, only time is lost: the latest entry of each job is sent when it answers again.

Each role that runs jobs has a book of its own, within the online process too.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from elanus.api.ledger import JobLedgerApi
from elanus.core.errors import ElanusError
from elanus.core.jobs import JobEntry, JobKind, JobProgress, JobState, named

HISTORY_MAX_JOBS = 200
"""How many ended jobs a book remembers, and how many it reports at most after the ledger was unreachable."""
SIGN_OF_LIFE_S = 1.0
_log = structlog.get_logger("jobs")


class JobBook:
    """Belongs to one event loop. ``owner`` names this run of the process; ``clock`` gives Unix seconds."""

    def __init__(
        self,
        owner: str = "",
        *,
        history_max_jobs: int = HISTORY_MAX_JOBS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.owner = owner or uuid.uuid4().hex[:12]
        self.changed = asyncio.Event()
        self._clock = clock
        self._open: dict[str, JobEntry] = {}
        self._ended: deque[JobEntry] = deque(maxlen=history_max_jobs)
        self._unsent: dict[str, JobEntry] = {}

    def entries(self) -> tuple[JobEntry, ...]:
        """Return the jobs that ended recently, oldest first, then those that run or wait."""
        return (*self._ended, *self._open.values())

    def order(
        self,
        kind: JobKind,
        cause: str,
        inputs: Iterable[str],
        attempt: int = 1,
        waiting: tuple[str, ...] = (),
    ) -> str:
        """Record a job that waits for its turn. Returns its id."""
        job_id = f"{kind.value.replace(' ', '-')}-{uuid.uuid4().hex[:12]}"
        names, count = named(inputs)
        entry = JobEntry(
            job_id, self.owner, kind, cause, names, count, attempt, waiting, ordered_s=self._clock()
        )
        self._show(entry)
        return job_id

    def begin(self, job_id: str, tasks: int = 1) -> None:
        progress = JobProgress(tasks=tasks)
        running = replace(
            self._open[job_id], state=JobState.RUNNING, started_s=self._clock(), progress=progress
        )
        self._show(running)

    def progressed(self, job_id: str, progress: JobProgress, ui_url: str = "") -> None:
        """Record the progress of a job. Ignored when the job has ended meanwhile."""
        entry = self._open.get(job_id)
        if entry is not None:
            self._open[job_id] = self._unsent[job_id] = replace(entry, progress=progress, ui_url=ui_url)

    def finish(
        self,
        job_id: str,
        outputs: Iterable[str] = (),
        rows: int = 0,
        size_bytes: int = 0,
        index_type: str = "",
        planned_s: float = 0.0,
    ) -> None:
        entry = self._open[job_id]
        tasks = entry.progress.tasks
        names, count = named(outputs)
        finished = replace(
            entry,
            state=JobState.FINISHED,
            outputs=names,
            output_count=count,
            rows=rows,
            size_bytes=size_bytes,
            progress=JobProgress(tasks, tasks, 0.0, rows, size_bytes),
            index_type=index_type,
            planned_s=planned_s,
        )
        self._end(finished)

    def fail(self, job_id: str, error: BaseException) -> None:
        failed = replace(self._open[job_id], state=JobState.FAILED, error=f"{type(error).__name__}: {error}")
        self._end(failed)

    def cancel(self, job_id: str) -> None:
        self._end(replace(self._open[job_id], state=JobState.CANCELLED))

    def _end(self, entry: JobEntry) -> None:
        del self._open[entry.job_id]
        ended = replace(entry, ended_s=self._clock())
        self._ended.append(ended)
        self._queue(ended)

    def _show(self, entry: JobEntry) -> None:
        self._open[entry.job_id] = entry
        self._queue(entry)

    def _queue(self, entry: JobEntry) -> None:
        self._unsent[entry.job_id] = entry
        while len(self._unsent) > len(self._open) + HISTORY_MAX_JOBS:
            del self._unsent[next(iter(self._unsent))]
        self.changed.set()

    # what the ledger has not received yet

    def take_unsent(self) -> dict[str, JobEntry]:
        """Return the latest entry of every job that changed, by id. A caller that fails to send them puts
        them back."""
        self.changed.clear()
        unsent, self._unsent = self._unsent, {}
        return unsent

    def put_back(self, unsent: dict[str, JobEntry]) -> None:
        """Keep entries that were not sent; entries that changed since take precedence."""
        self._unsent = unsent | self._unsent


async def keep_reported(book: JobBook, ledger: JobLedgerApi, address: str) -> None:
    """Report every change of the book to the ledger, until cancelled (`JobLedgerApi.report_jobs`)."""
    while True:
        unsent = book.take_unsent()
        try:
            await ledger.report_jobs(book.owner, address, tuple(unsent.values()))
        except ElanusError as error:
            book.put_back(unsent)
            _log.info("jobs not reported; trying again", error=error.message)
            await asyncio.sleep(SIGN_OF_LIFE_S)
            continue
        except BaseException:
            # The role stops, and the next one of this process reports the same book: without the ends of
            # these jobs they would be shown as running forever.
            book.put_back(unsent)
            raise
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_S):
                await book.changed.wait()
        except TimeoutError:
            continue
