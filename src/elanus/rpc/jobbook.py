"""The jobs of one process, and telling the ledger of them.

`JobBook` is where a process that runs jobs writes down what happens to them; `keep_reported` carries each
change to datacoord's ledger, at once where a state changed, with the next sign of life where only the
progress did. A ledger that cannot be reached loses nothing but time: the latest entry of each job is sent
when it answers again.

Any room that runs jobs has a book of its own, within the online process too.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from elanus.core.errors import ElanusError
from elanus.core.jobs import JobEntry, JobKind, JobProgress, JobState, named
from elanus.rpc.ledger import JobLedgerApi

HISTORY_MAX_JOBS = 200
"""Ended jobs that a book remembers, and at most tells of after the ledger was away."""
SIGN_OF_LIFE_S = 1.0
_log = structlog.get_logger("jobs")


class JobBook:
    """Belongs to one event loop. ``owner`` names this life of this process; ``clock`` gives Unix seconds."""

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
        """The jobs that ended lately, oldest first, then those that run or wait."""
        return (*self._ended, *self._open.values())

    def order(
        self,
        kind: JobKind,
        cause: str,
        inputs: Iterable[str],
        attempt: int = 1,
        waiting: tuple[str, ...] = (),
    ) -> str:
        """A job waits for its turn. Returns its id."""
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

    def look(self, job_id: str, progress: JobProgress, ui_url: str = "") -> None:
        """How far the job is. Ignored when it has ended meanwhile."""
        entry = self._open.get(job_id)
        if entry is not None:
            self._open[job_id] = self._unsent[job_id] = replace(entry, progress=progress, ui_url=ui_url)

    def finish(self, job_id: str, outputs: Iterable[str] = (), rows: int = 0, size_bytes: int = 0) -> None:
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
        self._tell(ended)

    def _show(self, entry: JobEntry) -> None:
        self._open[entry.job_id] = entry
        self._tell(entry)

    def _tell(self, entry: JobEntry) -> None:
        self._unsent[entry.job_id] = entry
        while len(self._unsent) > len(self._open) + HISTORY_MAX_JOBS:
            del self._unsent[next(iter(self._unsent))]
        self.changed.set()

    # what the ledger has not heard of

    def take_unsent(self) -> dict[str, JobEntry]:
        """The latest entry of every job that changed, by id. Whoever fails to send them puts them back."""
        self.changed.clear()
        unsent, self._unsent = self._unsent, {}
        return unsent

    def put_back(self, unsent: dict[str, JobEntry]) -> None:
        """They were not sent; what changed since goes before them."""
        self._unsent = unsent | self._unsent


async def keep_reported(book: JobBook, ledger: JobLedgerApi, address: str) -> None:
    """Tell the ledger of every change of the book, until cancelled (`JobLedgerApi.report_jobs`)."""
    while True:
        unsent = book.take_unsent()
        try:
            await ledger.report_jobs(book.owner, address, tuple(unsent.values()))
        except ElanusError as error:
            book.put_back(unsent)
            _log.info("the ledger does not answer", error=error.message)
            await asyncio.sleep(SIGN_OF_LIFE_S)
            continue
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_S):
                await book.changed.wait()
        except TimeoutError:
            continue
