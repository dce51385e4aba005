"""The pipeline under simulation: a data node and an index node whose jobs run in this process.

A job runs its own code (`elanus.pipeline.ranges`, `elanus.pipeline.range_files`,
`elanus.pipeline.index_build`), without Spark. Its duration is drawn at random. The scenario decides whether
it fails or runs twice, as Spark does with tasks it considers lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from elanus.api.datacoord import DataCoordApi, SegmentOutput
from elanus.api.datanode import CompactionOrder, FlushReason
from elanus.api.gc import SweepOrder, SweepOutcome
from elanus.api.imports import ImportNodeApi, ImportOrder, ImportOutcome
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.indexnode import BuildIndex
from elanus.core.attempts import stamped
from elanus.core.channels import pchannel_of
from elanus.core.errors import ElanusError, Internal
from elanus.core.ids import NodeID
from elanus.core.segments import IndexFile
from elanus.datanode.node import DataNode
from elanus.datanode.policy import DataNodePolicy
from elanus.datanode.progress import ChannelProgress, Range
from elanus.log.port import Position
from elanus.pipeline.clustering import outputs_of
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.pipeline.jobs import AT_ONCE_MAX
from elanus.pipeline.port import JobFailed
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range
from elanus.pipeline.sweep import SweptStore, sweep
from elanus.sim.chance import Chance
from elanus.sim.incarnation import Life
from elanus.sim.log import LogHandle
from elanus.sim.scenario import FaultKind
from elanus.storage.port import ObjectStore

T = TypeVar("T")

_USUAL_S = 0.8
_HEARTBEAT_S = 5.0
_DELETIONS_BEFORE_DEATH = 2


class Jobs:
    """The jobs of one life. Implements `FlushRunner` and `CompactionRunner` of `elanus.datanode`."""

    def __init__(self, life: Life, log: LogHandle, store: ObjectStore, scratch: Path, chance: Chance) -> None:
        self._life = life
        self._log = log
        self._store = store
        self._scratch = scratch
        self._chance = chance
        self._delays = chance.delays(f"jobs of {life.name}", _USUAL_S)
        self._attempts = 0

    def plan(self, progress: ChannelProgress, range_: Range, attempt: int) -> FlushPlan:
        assignment = progress.assignment
        return FlushPlan(
            attempt=stamped(attempt, self._attempt()),
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

    async def run(self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int) -> list[RangeOutcome]:
        """Write the ranges. Raises `JobFailed`, and what the tasks raise."""
        return await self._run(
            reason.cause, lambda again: [self._write(plan, plan.attempt + again) for plan in plans]
        )

    async def build_index(self, request: BuildIndex) -> IndexFile:
        """Build as `elanus.indexnode.node.IndexNode` does. Raises `Internal`, and what the build raises."""
        plan = IndexBuildPlan(
            attempt=self._attempt(),
            build_id=request.build_id,
            version=request.version,
            index_id=request.index_id,
            field=request.field,
            params=request.params,
            manifest=request.manifest,
            threads=1,
            store_url="",
            scratch_dir=str(self._scratch),
            schema=request.schema,
        )
        try:
            return await self._run("index build", lambda again: self._build(plan, plan.attempt + again))
        except JobFailed as error:
            raise Internal(f"the build failed: {error}") from error

    @property
    def room(self) -> int:
        """How many compactions run at a time: as on a large cluster, so datacoord's limit counts."""
        return AT_ONCE_MAX

    async def compact(self, order: CompactionOrder) -> tuple[SegmentOutput, ...]:
        """Compact segments. Raises `JobFailed`, and what the task raises."""
        name = stamped(order.attempt, self._attempt())
        return await self._run(
            "compaction", lambda again: outputs_of(order, self._store, self._scratch, name + again)
        )

    async def run_job(self, cause: str, attempt: int, work: Callable[[str], T]) -> T:
        """Run a job whose files have the name that ``work`` receives.

        Raises `JobFailed`, and what ``work`` raises.
        """
        name = stamped(attempt, self._attempt())
        return await self._run(cause, lambda again: work(name + again))

    async def _run(self, cause: str, work: Callable[[str], T]) -> T:
        """Run a job. ``work`` receives a suffix for its file names. A job that runs twice leaves both
        sets."""
        slow = self._chance.meets(FaultKind.JOB_SLOW)
        await self._pass(self._delays.next_s() + (slow.amount if slow else 0.0))
        if self._chance.meets(FaultKind.JOB_FAILED):
            raise JobFailed(f"{cause}: the job failed")
        outcome = work("")
        if self._chance.meets(FaultKind.JOB_TWICE):
            outcome = work("-again")
        await self._pass(self._delays.next_s())
        return outcome

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._life.gate()

    def _attempt(self) -> str:
        self._attempts += 1
        return f"{self._life.name}-{self._attempts}"

    def _write(self, plan: FlushPlan, name: str) -> RangeOutcome:
        entries = self._log.read_range(plan.pchannel, Position(plan.start.position), plan.stop)
        return write_range(plan, writes_in_range(entries, plan), self._store, self._scratch, name)

    def _build(self, plan: IndexBuildPlan, name: str) -> IndexFile:
        return build_index_file(plan, self._store, self._scratch, name)


class Sweeps:
    """Implements `elanus.api.gc.SweeperApi` for one life."""

    def __init__(self, life: Life, store: ObjectStore, chance: Chance) -> None:
        self._life = life
        self._store = store
        self._chance = chance
        self._delays = chance.delays(f"sweeps of {life.name}", _USUAL_S / 2)

    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        """Sweep the store. Raises `Internal` half-way if the job fails."""
        slow = self._chance.meets(FaultKind.JOB_SLOW)
        await self._pass(self._delays.next_s() + (slow.amount if slow else 0.0))
        store: SweptStore = self._store
        if self._chance.meets(FaultKind.JOB_FAILED):
            store = _Dying(self._store)
        outcome = sweep(order, store)
        await self._pass(self._delays.next_s())
        return outcome

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._life.gate()


class _Dying:
    """The part of a store that a sweep uses. It fails after some deletions."""

    def __init__(self, store: ObjectStore) -> None:
        self.list = store.list
        self._store = store
        self._left = _DELETIONS_BEFORE_DEATH

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not self._left:
                raise Internal("the sweep died half-way")
            self._left -= 1
            self._store.delete(path)


class PipelineProcess(DataNode):
    """The process that coordinators reach at the pipeline's address: a data node that is also an index node.

    ``ended`` is called when its work ends by itself, with the error that ended it or None.
    """

    def __init__(
        self,
        node_id: NodeID,
        life: Life,
        log: LogHandle,
        datacoord: DataCoordApi,
        indexcoord: IndexCoordApi,
        jobs: Jobs,
        sweeps: Sweeps,
        imports: ImportNodeApi,
        policy: DataNodePolicy,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(node_id, log, datacoord, jobs, jobs, policy)
        self._address = life.role
        self._indexcoord = indexcoord
        self._jobs = jobs
        self._sweeps = sweeps
        self._imports = imports
        self._ended = ended
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self.run()), asyncio.create_task(self._beat())]
        self._tasks[0].add_done_callback(self._one_ended)

    async def stop(self) -> None:
        for task in self._tasks:
            task.remove_done_callback(self._one_ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _one_ended(self, running: asyncio.Task[None]) -> None:
        self._tasks[1].cancel()
        if not running.cancelled():
            self._ended(running.exception())

    async def build_index(self, request: BuildIndex) -> IndexFile:
        return await self._jobs.build_index(request)

    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        return await self._sweeps.sweep(order, cause)

    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        return await self._imports.import_files(order)

    async def _beat(self) -> None:
        """The index node's heartbeat, as in `elanus.server.pipeline_role`."""
        while True:
            try:
                await self._indexcoord.register_indexnode(self.node_id, self._address)
            except ElanusError:
                pass  # not reached: the next heartbeat registers it again
            await asyncio.sleep(_HEARTBEAT_S)
