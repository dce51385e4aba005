"""The data node's compactions: each order is a Spark job of its own, in addition to the flushes.

A compaction by a clustering key is several jobs, one for each part of it.

A job's output counts once datacoord has committed it. A job that failed is reported; one whose commit is
refused is forgotten, because datacoord knows the reason best.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from elanus.api.datacoord import CompactionCommit, DataCoordApi, SegmentOutput
from elanus.api.datanode import CompactionOrder, CompactionWork
from elanus.core.attempts import NO_ATTEMPT, stamped
from elanus.core.errors import CommitRefused, ElanusError
from elanus.core.faults import Fault
from elanus.meta.tasks import cancel_and_wait
from elanus.pipeline.cluster_jobs import ClusterTask, split_job, survey_job, write_job
from elanus.pipeline.clustering import checked, parts_of, writes_of
from elanus.pipeline.compact import CompactionTask, compaction_job
from elanus.pipeline.jobs import AT_ONCE_MAX, JobRunner
from elanus.pipeline.port import Job

Outcome = TypeVar("Outcome")

_log = structlog.get_logger("datanode")


class CompactionRunner(Protocol):
    @property
    def room(self) -> int:
        """How many compactions can run at a time now."""
        ...

    async def compact(self, order: CompactionOrder) -> tuple[SegmentOutput, ...]:
        """Carry out the order and return its outputs. When cancelled, return once its jobs have stopped."""
        ...


class Compactions:
    """The compactions of one epoch of a data node; `stop` ends them."""

    def __init__(self, epoch: int, datacoord: DataCoordApi, runner: CompactionRunner) -> None:
        self.epoch = epoch
        self._datacoord = datacoord
        self._runner = runner
        self._running: dict[int, asyncio.Task[None]] = {}
        """The running tasks, by attempt."""
        self._attempts: dict[int, int] = {}
        """The last attempt of each plan: only its result can be committed."""

    @property
    def work(self) -> CompactionWork:
        return CompactionWork(tuple(self._running), self._runner.room)

    def take(self, order: CompactionOrder) -> None:
        known = self._attempts.get(order.plan_id)
        if known is not None and known >= order.attempt:
            return
        self.cancel((order.plan_id,))
        task = asyncio.create_task(self._run(order), name=f"compaction {order.plan_id}")
        self._attempts[order.plan_id] = order.attempt
        self._running[order.attempt] = task
        task.add_done_callback(lambda _: self._over(order))

    def cancel(self, plan_ids: tuple[int, ...]) -> None:
        for plan_id in plan_ids:
            task = self._running.get(self._attempts.get(plan_id, NO_ATTEMPT))
            if task is not None:
                task.cancel()

    def _over(self, order: CompactionOrder) -> None:
        del self._running[order.attempt]
        if self._attempts.get(order.plan_id) == order.attempt:  # a later attempt may have come and gone
            del self._attempts[order.plan_id]

    async def stop(self) -> None:
        """Cancel all jobs; return when none runs any more."""
        await cancel_and_wait(*self._running.values())

    async def _run(self, order: CompactionOrder) -> None:
        try:
            outputs = await self._runner.compact(order)
        except (ElanusError, Fault) as error:
            await self._report_failure(order.plan_id, f"{type(error).__name__}: {error}")
            return
        except Exception as error:  # noqa: BLE001 - it would fail the same way however often it is ordered
            _log.exception("compaction failed unexpectedly", plan=order.plan_id)
            await self._report_failure(order.plan_id, f"{type(error).__name__}: {error}")
            return
        commit = CompactionCommit(self.epoch, order.attempt, order.plan_id, outputs)
        try:
            await self._datacoord.commit_compaction(commit)
        except CommitRefused as error:
            _log.info("compaction refused at its commit", plan=order.plan_id, reason=error.message)
        except ElanusError as error:
            # Only datacoord knows whether it was committed; if not, it finds that the order was lost.
            _log.warning("compaction not committed", plan=order.plan_id, error=error.message)

    async def _report_failure(self, plan_id: int, reason: str) -> None:
        _log.warning("compaction failed", plan=plan_id, reason=reason)
        try:
            await self._datacoord.compaction_failed(self.epoch, plan_id, reason)
        except ElanusError as error:
            _log.info("compaction failure not reported", plan=plan_id, error=error.message)


class SparkCompactions:
    """Implements `CompactionRunner`. As many run at a time as there are slots but one, which is left to
    flushes, and at most ``at_once_max``."""

    def __init__(
        self, runner: JobRunner, store_url: str, scratch_dir: Path, at_once_max: int = AT_ONCE_MAX
    ) -> None:
        self._runner = runner
        self._at_once_max = at_once_max
        self._store_url = store_url
        self._scratch_dir = scratch_dir

    @property
    def room(self) -> int:
        return max(1, min(self._at_once_max, self._runner.slots - 1))

    async def compact(self, order: CompactionOrder) -> tuple[SegmentOutput, ...]:
        attempt = stamped(order.attempt, uuid.uuid4().hex[:8])
        if order.clustering is not None:
            return await self._cluster(order, attempt)
        task = CompactionTask(attempt, order, self._store_url, str(self._scratch_dir))
        cause = f"compaction {order.plan_id}"
        (output,) = await self._runner.run(compaction_job(task), cause)
        return (output,)

    async def _cluster(self, order: CompactionOrder, attempt: str) -> tuple[SegmentOutput, ...]:
        """Carry out the steps of `elanus.pipeline.clustering`. Jobs of one step run side by side."""
        cause = f"compaction {order.plan_id} by clustering key"

        def task(step: str, of: CompactionOrder) -> ClusterTask:
            return ClusterTask(f"{attempt}-{step}", of, self._store_url, str(self._scratch_dir))

        async def run(job: Job[ClusterTask, Outcome]) -> Outcome:
            (outcome,) = await self._runner.run(job, cause)
            return outcome

        found = await run(survey_job(task("survey", order)))
        parts = enumerate(parts_of(order))
        splits = [split_job(replace(task(f"{number}", part), found=found)) for number, part in parts]
        chunks = [chunk for part in await all_of(map(run, splits)) for chunk in part]
        assert order.clustering is not None
        steps = writes_of(order.clustering, chunks, found)
        writes = [write_job(replace(task(f"w{step.number}", order), step=step)) for step in steps]
        return checked(tuple(await all_of(map(run, writes))), chunks)


async def all_of(works: Iterable[Coroutine[object, object, Outcome]]) -> list[Outcome]:
    """Return the results in the order of the works. After an error or a cancellation none is left running."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for running in tasks:
            running.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
