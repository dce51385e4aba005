"""What the server says about itself, gathered from its roles: health, status, and the gauges.

Called from the observation port's threads; what lives on the event loop is asked there. A role that does
not answer in time shows as such, and does not keep the rest from being shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from elanus import __version__
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.ids import CollectionID
from elanus.core.jobs import JobKind, JobState
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import lag_ms
from elanus.metrics import Metrics
from elanus.rpc.gc import GcStatus
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.querycoord import LoadStatus
from elanus.server.job_status import job_status
from elanus.server.observe import Health
from elanus.server.online import Online
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    GarbageStatus,
    JobStatus,
    PipelineStatus,
    RoleStatus,
    Status,
)
from elanus.server.supervise import PipelineSupervisor

T = TypeVar("T")
_ANSWER_S = 5.0
_PING_S = 1.0
_RESTART_S = 60.0
_CANCEL_S = 60.0
_JOBS_SHOWN = 20
"""Ended jobs in the status; the ledger knows more."""
_GAUGES_INTERVAL_S = 5.0


class Report:
    """Implements `elanus.server.observe.Observed`."""

    def __init__(
        self, online: Online, supervisor: PipelineSupervisor | None, pipeline: PipelineApi, metrics: Metrics
    ) -> None:
        self._online = online
        self._supervisor = supervisor
        self._pipeline = pipeline
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._started_s = time.monotonic()
        self.addresses: Mapping[str, str] = {}
        """Where clients reach the proxies, by role, once they are open."""

    def health(self) -> Health:
        roles = self._roles()
        return Health(all(role.state == "Healthy" for role in roles), roles)

    def status(self) -> Status:
        return self._ask(self._status())

    def restart_role(self, role: str) -> None:
        if role not in self._online.roles.names():
            raise InvalidParameter(f"no role {role!r}: there are {', '.join(self._online.roles.names())}")
        self._ask(self._online.roles.restart(role), _RESTART_S)

    def jobs(self) -> Sequence[JobStatus]:
        return self._ask(self._jobs())

    def job(self, job_id: str) -> JobStatus:
        return job_status(self._ask(self._online.ledger.job(job_id)), self._now_s())

    def garbage(self) -> GcStatus:
        return self._ask(self._online.data.gc_status())

    def collect_garbage(self, *, delete: bool) -> None:
        self._ask(self._online.data.collect_garbage(delete))

    def cancel_job(self, job_id: str) -> None:
        self._ask(self._online.ledger.cancel_job(job_id), _CANCEL_S)

    def _ask(self, work: Awaitable[T], timeout_s: float = _ANSWER_S) -> T:
        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(timeout_s)

    def _roles(self) -> list[RoleStatus]:
        running = self._online.roles.is_running
        return [
            RoleStatus(name, "Healthy" if running(name) else "Initializing", self.addresses.get(name, ""))
            for name in self._online.roles.names()
        ]

    async def _status(self) -> Status:
        segments = await self._online.data.segments(CollectionID(0))
        jobs = await self._jobs()
        running = [job for job in jobs if not job.ended]
        return Status(
            version=__version__,
            uptime_s=time.monotonic() - self._started_s,
            roles=self._roles(),
            channels=await self._channels(),
            collections=await self._collections(segments),
            jobs=[*[job for job in jobs if job.ended][-_JOBS_SHOWN:], *running],
            pipeline=self._pipeline_status(answers=await self._pipeline_answers()),
            garbage=_garbage(await self._online.data.gc_status()),
        )

    async def _jobs(self) -> list[JobStatus]:
        now_s = self._now_s()
        return [job_status(entry, now_s) for entry in await self._online.ledger.jobs()]

    def _now_s(self) -> float:
        return self._online.clock.wall_ms() / 1000

    async def _pipeline_answers(self) -> bool:
        try:
            async with asyncio.timeout(_PING_S):
                await self._pipeline.ping()
        except (ElanusError, TimeoutError):
            return False
        return True

    async def _channels(self) -> list[ChannelStatus]:
        now_ms = self._online.clock.wall_ms()
        return [
            ChannelStatus(pchannel, tick, float(lag_ms(now_ms, tick)), self._online.log.size_bytes(pchannel))
            for pchannel, tick in (await self._online.root.ticks()).items()
        ]

    async def _collections(self, segments: tuple[SegmentInfo, ...]) -> list[CollectionStatus]:
        databases = {d.database_id: d.name for d in await self._online.root.list_databases()}
        loads = {load.collection_id: load for load in await self._online.query.loads()}
        states: dict[CollectionID, Counter[str]] = {}
        rows: Counter[CollectionID] = Counter()
        for segment in segments:
            states.setdefault(segment.collection_id, Counter())[segment.state.name.capitalize()] += 1
            if segment.state is not SegmentState.DROPPED:
                rows[segment.collection_id] += segment.rows
        return [
            CollectionStatus(
                databases[c.database_id],
                c.name,
                _percent(loads.get(c.collection_id)),
                rows[c.collection_id],
                dict(states.get(c.collection_id, {})),
            )
            for c in await self._online.root.list_collections("")
        ]

    def _pipeline_status(self, *, answers: bool) -> PipelineStatus:
        if self._supervisor is None:
            return PipelineStatus("Disabled", None, 0)
        state = "Healthy" if answers else "Initializing" if self._supervisor.pid else "Abnormal"
        return PipelineStatus(state, self._supervisor.pid, self._supervisor.restarts)

    # gauges

    async def keep_gauges(self) -> None:
        """Refresh the gauges until cancelled."""
        while True:
            await asyncio.sleep(_GAUGES_INTERVAL_S)
            try:
                await self._refresh_gauges()
            except ElanusError:
                continue  # a role is restarting; the next round shows it again

    async def _refresh_gauges(self) -> None:
        metrics = self._metrics
        metrics.pipeline_up.set(await self._pipeline_answers())
        running = Counter(e.kind for e in await self._online.ledger.jobs() if e.state is JobState.RUNNING)
        for kind in JobKind:
            metrics.jobs_running.labels(kind.value).set(running[kind])
        for channel in await self._channels():
            metrics.channel_lag_ms.labels(channel.pchannel).set(channel.lag_ms)
        states = Counter(s.state.name.lower() for s in await self._online.data.segments(CollectionID(0)))
        for state in SegmentState:
            if state.name.lower() in states or state in _SHOWN_STATES:
                metrics.segments.labels(state.name.lower()).set(states[state.name.lower()])
        garbage = await self._online.data.gc_status()
        metrics.gc_waiting_bytes.set(garbage.waiting_bytes)
        metrics.gc_reclaimed_bytes.set(garbage.reclaimed_bytes)
        metrics.growing_bytes.set(self._online.growing_bytes())
        metrics.log_bytes.set(self._online.log.size_bytes())


_SHOWN_STATES = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHING, SegmentState.FLUSHED)


def _garbage(status: GcStatus) -> GarbageStatus:
    error = status.last.error if status.last else ""
    return GarbageStatus(status.state.value, status.waiting_bytes, status.reclaimed_bytes, error)


def _percent(load: LoadStatus | None) -> int | None:
    if load is None:
        return None
    return min(load.percentages.values(), default=0)
