"""Flushes as Spark jobs: the plan of a range, and running plans."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from elanus.api.datanode import FlushReason
from elanus.core.attempts import stamped
from elanus.core.channels import pchannel_of
from elanus.datanode.progress import ChannelProgress, Range
from elanus.log.port import Position
from elanus.pipeline.flush import flush_job
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.ranges import FlushPlan, RangeOutcome


class SparkFlushes:
    """Implements `elanus.datanode.range_jobs.FlushRunner`."""

    def __init__(self, runner: JobRunner, log_url: str, store_url: str, scratch_dir: Path) -> None:
        self._runner = runner
        self._log_url = log_url
        self._store_url = store_url
        self._scratch_dir = scratch_dir

    def plan(self, progress: ChannelProgress, range_: Range, attempt: int) -> FlushPlan:
        assignment = progress.assignment
        return FlushPlan(
            attempt=stamped(attempt, uuid.uuid4().hex[:8]),
            collection_id=assignment.collection_id,
            schema=assignment.schema,
            vchannel=assignment.vchannel,
            pchannel=pchannel_of(assignment.vchannel),
            start=range_.start,
            until=range_.end.ts,
            stop=Position(range_.stop),
            log_url=self._log_url,
            store_url=self._store_url,
            scratch_dir=str(self._scratch_dir),
        )

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int) -> list[RangeOutcome]:
        job = flush_job(plans, self._runner.slots)
        tasks = await self._runner.run(job, reason.cause, tries, reason.waiting)
        return [outcome for task in tasks for outcome in task]
