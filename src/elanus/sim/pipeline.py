"""The pipeline process under simulation: a data node whose jobs run here and now, without Spark.

What a job does is the job's own code (`elanus.pipeline.ranges`, `elanus.pipeline.range_files`); how long it
takes, whether it fails, and whether it is done twice (as Spark does with tasks it thinks lost) is seeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from elanus.core.attempts import stamped
from elanus.core.channels import pchannel_of
from elanus.datanode.progress import ChannelProgress, Range
from elanus.log.port import Position
from elanus.pipeline.port import JobFailed
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range
from elanus.rpc.datanode import FlushReason
from elanus.sim.chance import Chance, Delays
from elanus.sim.life import Life
from elanus.sim.log import LogHandle
from elanus.storage.port import ObjectStore

_TWICE = 0.1


class Jobs:
    """Implements `elanus.datanode.node.FlushRunner` for one life."""

    def __init__(self, life: Life, log: LogHandle, store: ObjectStore, scratch: Path, chance: Chance) -> None:
        self._life = life
        self._log = log
        self._store = store
        self._scratch = scratch
        self._chance = chance
        self._random = chance.stream(f"jobs of {life.name}")
        self._delays = Delays(chance, f"job delays of {life.name}", 0.8, 6.0)
        self._attempts = 0

    def plan(self, progress: ChannelProgress, range_: Range, attempt: int) -> FlushPlan:
        assignment = progress.assignment
        self._attempts += 1
        return FlushPlan(
            attempt=stamped(attempt, f"{self._life.name}-{self._attempts}"),
            collection_id=assignment.collection_id,
            schema=assignment.schema,
            vchannel=assignment.vchannel,
            pchannel=pchannel_of(assignment.vchannel),
            start=range_.start,
            until=range_.end.ts,
            stop=Position(range_.stop),
            log_url="",
            store_url="",
            scratch_dir=str(self._scratch),
        )

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason) -> list[RangeOutcome]:
        """Raises `JobFailed`, and what the tasks raise."""
        await asyncio.sleep(self._delays.next_s())
        await self._life.gate()
        if self._random.random() < self._chance.faults.job_failed:
            raise JobFailed(f"{reason.cause}: the job failed")
        outcomes = [self._write(plan, plan.attempt) for plan in plans]
        if self._random.random() < _TWICE:
            outcomes = [self._write(plan, f"{plan.attempt}-again") for plan in plans]
        await asyncio.sleep(self._delays.next_s())
        await self._life.gate()
        return outcomes

    def _write(self, plan: FlushPlan, name: str) -> RangeOutcome:
        entries = self._log.read_range(plan.pchannel, Position(plan.start.position), plan.stop)
        return write_range(plan, writes_in_range(entries, plan), self._store, self._scratch, name)
