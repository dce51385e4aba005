"""Running jobs from asyncio: how many of which kind at a time, how they are cancelled, what they did.

A job blocks a thread while Spark works; the event loop never waits. Each kind of job has a limit of its
own. A flush takes about a second and frees memory that writers wait for; an index build takes minutes
and uses every processor from a single task. So builds never take all of Spark's slots, and a flush
always finds one: Spark does not take a slot back from a running task.

`JobRunner.records` is the ledger: what runs, and the latest that ended, with cause, inputs, outputs, size
and error. It is bounded and in memory; the truth about data is in the manifests.

Left out: trying again. Whoever ordered a job knows whether that still makes sense.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from elanus.pipeline.port import Job, JobCancelled, JobKind, JobOutput, JobSession

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")

HISTORY_MAX_JOBS = 200
_CANCEL_INTERVAL_S = 0.2


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job in the ledger.

    ``started_s`` is Unix time, 0 while the job waits; ``duration_ms`` counts from there, and is 0 until
    the job has ended. ``attempt`` is the caller's count of its tries of the same work, from 1.
    ``output`` is set when the job has finished.
    """

    job_id: str
    kind: JobKind
    cause: str
    inputs: tuple[str, ...]
    attempt: int
    state: JobState = JobState.WAITING
    started_s: float = 0.0
    duration_ms: float = 0.0
    output: JobOutput | None = None
    error: str = ""


def default_limits(slots: int) -> dict[JobKind, int]:
    """Flushes may fill all slots; index builds run one at a time, each with all processors.

    One import at a time fills all slots too, with tasks of a few seconds, between which a flush has its turn.
    """
    return {JobKind.FLUSH: slots, JobKind.INDEX_BUILD: 1, JobKind.IMPORT: 1}


class JobRunner:
    """Runs jobs on one session. Belongs to one event loop.

    ``limits``: how many jobs of each kind run at a time (`default_limits` when not given). Raises
    `ValueError` when index builds could take every slot of the session.
    """

    def __init__(
        self,
        session: JobSession,
        limits: Mapping[JobKind, int] | None = None,
        *,
        history_max_jobs: int = HISTORY_MAX_JOBS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        limits = default_limits(session.slots) if limits is None else limits
        if limits[JobKind.INDEX_BUILD] >= session.slots:
            raise ValueError(
                f"{limits[JobKind.INDEX_BUILD]} index builds at a time would take all {session.slots} slots; "
                "flushes need one"
            )
        self._session = session
        self._slots = {kind: asyncio.Semaphore(limit) for kind, limit in limits.items()}
        self._threads = ThreadPoolExecutor(sum(limits.values()), thread_name_prefix="spark-job")
        self._clock = clock
        self._open: dict[str, JobRecord] = {}
        self._ended: deque[JobRecord] = deque(maxlen=history_max_jobs)

    def records(self) -> tuple[JobRecord, ...]:
        """The jobs that ended lately, oldest first, then those that run or wait."""
        return (*self._ended, *self._open.values())

    async def run(self, job: Job[Plan, Outcome], cause: str, attempt: int = 1) -> list[Outcome]:
        """Run a job to its end; outcomes in the order of its plans. ``cause``: why, for the ledger.

        Cancelling the awaiting task cancels the job, and returns once its tasks have stopped. Raises
        what `JobSession.run` raises.
        """
        job_id = f"{job.kind.value.replace(' ', '-')}-{uuid.uuid4().hex[:12]}"
        self._open[job_id] = JobRecord(job_id, job.kind, cause, job.inputs, attempt)
        try:
            async with self._slots[job.kind]:
                self._begin(job_id)
                outcomes = await self._run_in_thread(job_id, job)
        except (asyncio.CancelledError, JobCancelled):
            self._end(job_id, JobState.CANCELLED)
            raise
        except Exception as error:
            self._end(job_id, JobState.FAILED, error=f"{type(error).__name__}: {error}")
            raise
        self._end(job_id, JobState.FINISHED, output=job.output(outcomes))
        return outcomes

    def close(self) -> None:
        """Wait for the threads of jobs that still run: cancel their tasks first."""
        self._threads.shutdown()

    async def _run_in_thread(self, job_id: str, job: Job[Plan, Outcome]) -> list[Outcome]:
        def work() -> list[Outcome]:
            description = f"{job.kind.value}: {', '.join(job.inputs)}"
            return self._session.run(
                job.task, job.plans, group=job_id, description=description, pool=job.kind.name
            )

        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._cancel_until_ended(job_id, running)
            raise

    async def _cancel_until_ended(self, job_id: str, running: asyncio.Future[list[Outcome]]) -> None:
        while not running.done():
            await asyncio.to_thread(self._session.cancel, job_id)
            await asyncio.wait([running], timeout=_CANCEL_INTERVAL_S)
        running.exception()  # seen: what a cancelled job came to no longer matters to anybody

    def _begin(self, job_id: str) -> None:
        self._open[job_id] = replace(self._open[job_id], state=JobState.RUNNING, started_s=self._clock())

    def _end(self, job_id: str, state: JobState, output: JobOutput | None = None, error: str = "") -> None:
        record = self._open.pop(job_id)
        duration_ms = (self._clock() - record.started_s) * 1000 if record.started_s else 0.0
        self._ended.append(replace(record, state=state, duration_ms=duration_ms, output=output, error=error))
