"""Running jobs from asyncio: how many of which kind at a time, how they are cancelled, what they did.

A job blocks a thread while Spark works; the event loop never waits. Each kind of job has a limit of its
own. A flush takes about a second and frees memory that writers wait for; an index build takes minutes
and uses every processor from a single task, a compaction some seconds. So these two together never take
all of Spark's slots, and a flush always finds one: Spark does not take a slot back from a running task.

Every event of a job is recorded in an `elanus.api.job_book.JobBook`, which reports it to the ledger.

Left out: trying again. The caller that ordered a job knows whether that still makes sense.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, TypeVar

import structlog

from elanus.api.job_book import JobBook
from elanus.core.errors import JobNotFound
from elanus.core.jobs import JobKind
from elanus.pipeline.long_jobs import LongJobs
from elanus.pipeline.port import Job, JobCancelled, JobLost, JobSession
from elanus.pipeline.progress import REPORT_INTERVAL_S, ProgressBoard, ProgressReport, combined

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")
T = TypeVar("T")

_CANCEL_INTERVAL_S = 0.2
_LOOK_INTERVAL_S = 0.5
_LOOKS_AT_ONCE = 4
_LOOKS_PER_REPORT = round(REPORT_INTERVAL_S / _LOOK_INTERVAL_S)
_log = structlog.get_logger("pipeline")


AT_ONCE_MAX = 1024
"""Long jobs at a time, where the slots that they share are the limit (`elanus.pipeline.long_jobs`)."""
IMPORTS_MAX = 16
"""Jobs of imports at a time. How many imports run is datacoord's to say (``imports.at_once``)."""
_WITH_OWN_SHARES = frozenset({JobKind.IMPORT})
"""Each job of these kinds has a pool of its own, and so a share of the slots as large as any other job's."""


def default_limits(slots: int, builds: int = 1) -> dict[JobKind, int]:
    """Flushes may fill all slots; index builds run ``builds`` at a time (0: as many as there are slots for).

    Builds and compactions leave a slot to flushes, whatever these numbers are (`JobRunner`). Imports fill all
    slots too, with tasks of a few seconds, between which a flush has its turn. Those that run at the same
    time have equal shares. A sweep for garbage is one task.
    """
    return {
        JobKind.FLUSH: slots,
        JobKind.INDEX_BUILD: builds or AT_ONCE_MAX,
        JobKind.IMPORT: IMPORTS_MAX,
        JobKind.GC: 1,
        JobKind.COMPACTION: AT_ONCE_MAX,
    }


class JobRunner:
    """Runs jobs on one session. Belongs to one event loop.

    ``limits``: how many jobs of each kind run at a time (`default_limits` when not given). ``book``: where
    they are written down. ``memory_bytes``: what builds and compactions may take together, where their tasks
    run on this machine.
    """

    def __init__(
        self,
        session: JobSession,
        limits: Mapping[JobKind, int] | None = None,
        *,
        book: JobBook | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        limits = default_limits(session.slots) if limits is None else limits
        self.book = book or JobBook()
        self._session = session
        self._slots = {kind: asyncio.Semaphore(limit) for kind, limit in limits.items()}
        self._long = LongJobs(lambda: session.slots, memory_bytes)
        self._threads = ThreadPoolExecutor(sum(limits.values()), thread_name_prefix="spark-job")
        # Own threads: a Spark that does not answer must hold up nothing else in this process.
        self._looks = ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="spark-look")
        self._lanes = {kind: list(range(limits[kind]))[::-1] for kind in _WITH_OWN_SHARES if kind in limits}
        """The pools that no job of a kind uses now, by number: Spark keeps every pool that it has seen."""
        self._works: dict[str, asyncio.Future[Any]] = {}
        """The jobs that run or wait."""

    @property
    def slots(self) -> int:
        """How many tasks run at a time."""
        return self._session.slots

    async def run(
        self, job: Job[Plan, Outcome], cause: str, attempt: int = 1, waiting: tuple[str, ...] = ()
    ) -> list[Outcome]:
        """Run a job to its end; outcomes in the order of its plans.

        ``cause``: why, and ``waiting``: who waits for it, for the ledger. ``attempt`` is the caller's count
        of its tries of the same work. Cancelling the awaiting task cancels the job, and returns once its
        tasks have stopped. Raises what `JobSession.run` raises, `JobCancelled` after `cancel` too.

        A job that ends because Spark has died never returns: its role ends too and cancels this, and the job
        is ordered again from the next one. An error would count as the job's own.
        """
        job_id = self.book.order(job.kind, cause, job.inputs, attempt, waiting)
        work = asyncio.ensure_future(self._in_turn(job_id, job))
        self._works[job_id] = work
        try:
            outcomes = await work
            output = job.output(outcomes)
        except (asyncio.CancelledError, JobCancelled) as error:
            self.book.cancel(job_id)
            caller = asyncio.current_task()
            if isinstance(error, JobCancelled) or (caller is not None and caller.cancelling()):
                raise
            raise JobCancelled(f"{job_id} was cancelled") from None
        except Exception as error:
            self.book.fail(job_id, error)
            if isinstance(error, JobLost) and not await self._look(self._session.is_alive):
                await asyncio.Event().wait()
            raise
        finally:
            del self._works[job_id]
        self.book.finish(
            job_id, output.objects, output.rows, output.size_bytes, output.index_type, output.planned_s
        )
        return outcomes

    async def cancel(self, job_id: str) -> None:
        """End a job, running or waiting; returns when its tasks have stopped. Raises `JobNotFound`."""
        work = self._works.get(job_id)
        if work is None:
            raise JobNotFound(f"job {job_id} does not run here")
        work.cancel()
        await asyncio.wait([work])

    def close(self) -> None:
        """Wait for the threads of jobs that still run: cancel their tasks first."""
        self._threads.shutdown()
        self._looks.shutdown()

    async def _look(self, function: Callable[..., T], *args: object) -> T:
        """Make a short call of Spark or of the object store in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._looks, partial(function, *args))

    async def _in_turn(self, job_id: str, job: Job[Plan, Outcome]) -> list[Outcome]:
        async with self._slots[job.kind], self._room(job):
            self.book.begin(job_id, len(job.plans))
            looking = asyncio.ensure_future(self._follow_progress(job_id, job.board))
            try:
                return await self._run_in_thread(job_id, job)
            finally:
                looking.cancel()
                await self._record_progress(job_id)  # a short job ends before the first look
                if job.board is not None:
                    await self._clear(job.board)

    def _room(self, job: Job[Plan, Outcome]) -> AbstractAsyncContextManager[None]:
        """Builds and compactions share all slots but one, and the memory."""
        is_long = job.kind in (JobKind.INDEX_BUILD, JobKind.COMPACTION)
        return self._long.share(job.cpus * len(job.plans), job.memory_bytes) if is_long else nullcontext()

    async def _run_in_thread(self, job_id: str, job: Job[Plan, Outcome]) -> list[Outcome]:
        with self._pool(job.kind) as pool:
            return await self._run_in_pool(job_id, job, pool)

    @contextmanager
    def _pool(self, kind: JobKind) -> Iterator[str]:
        """A pool of Spark's scheduler. Jobs in one pool have their turns in their order, pools have fair
        shares."""
        lanes = self._lanes.get(kind)
        if lanes is None:
            yield kind.name
            return
        lane = lanes.pop()
        try:
            yield f"{kind.name}-{lane}"
        finally:
            lanes.append(lane)

    async def _run_in_pool(self, job_id: str, job: Job[Plan, Outcome], pool: str) -> list[Outcome]:
        def work() -> list[Outcome]:
            description = f"{job.kind.value}: {', '.join(job.inputs)}"
            return self._session.run(
                job.task, job.plans, group=job_id, description=description, pool=pool, cpus=job.cpus
            )

        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(_seen)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._cancel_until_ended(job_id, running)
            raise

    async def _follow_progress(self, job_id: str, board: ProgressBoard | None) -> None:
        """Record the job's progress until cancelled."""
        reports: list[ProgressReport] = []
        for number in count(1):
            await asyncio.sleep(_LOOK_INTERVAL_S)
            if board is not None and number % _LOOKS_PER_REPORT == 0:
                reports = await self._read(board, reports)
            await self._record_progress(job_id, reports if board is not None else None)

    async def _record_progress(self, job_id: str, reports: Sequence[ProgressReport] | None = None) -> None:
        """``reports``: the latest ones of the tasks."""
        job = await self._look(self._session.running_job, job_id)
        if job is not None:
            progress = job.progress if reports is None else combined(job.progress, reports)
            self.book.progressed(job_id, progress, job.ui_url)

    async def _clear(self, board: ProgressBoard) -> None:
        try:
            await self._look(board.clear)
        except Exception as error:  # noqa: BLE001 - the job has its end; garbage collection takes what is left
            _log.info("progress reports not deleted", job=board.job, error=str(error))

    async def _cancel_until_ended(self, job_id: str, running: asyncio.Future[list[Outcome]]) -> None:
        while not running.done():
            await self._look(self._session.cancel, job_id)
            await asyncio.wait([running], timeout=_CANCEL_INTERVAL_S)

    async def _read(self, board: ProgressBoard, known: list[ProgressReport]) -> list[ProgressReport]:
        try:
            return await self._look(board.read)
        except Exception as error:  # noqa: BLE001 - an error of the store must not end the job
            _log.info("progress not read", job=board.job, error=str(error))
            return known


def _seen(ended: asyncio.Future[Any]) -> None:
    """Take the error of a cancelled job, whose outcome nobody asks for."""
    if not ended.cancelled():
        ended.exception()
