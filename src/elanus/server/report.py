"""What a process says about itself and its system, gathered from the roles: health and status.

Called from the observation port's threads; what lives on the event loop is asked there. A role that does
not answer in time shows as such, and does not keep the rest from being shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

from elanus import __version__
from elanus.core.channels import pchannel_of
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.ids import CollectionID, NodeID
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import lag_ms
from elanus.core.world import SystemClock
from elanus.log.port import Log
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.gc import GcStatus
from elanus.rpc.ledger import JobLedgerApi
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.querycoord import LoadStatus, QueryCoordApi, ResourceGroupStatus
from elanus.rpc.rootcoord import RootCoordApi
from elanus.server.job_status import job_status
from elanus.server.observe import Health
from elanus.server.roles import RoleHost
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    GarbageStatus,
    JobStatus,
    PipelineStatus,
    ResourceGroup,
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


class Subject(Protocol):
    """A process as the report sees it: its roles, and the coordinators wherever they are."""

    roles: RoleHost
    clock: SystemClock
    log: Log
    root: RootCoordApi
    data: DataCoordApi
    ledger: JobLedgerApi
    query: QueryCoordApi

    def elsewhere(self) -> list[RoleStatus]:
        """Roles of other processes."""
        ...

    def growing_bytes(self) -> int: ...


class Report:
    """Implements `elanus.server.observe.Observed`.

    ``supervisor`` and ``pipeline``: of a standalone server.
    """

    def __init__(
        self,
        subject: Subject,
        supervisor: PipelineSupervisor | None,
        pipeline: PipelineApi | None,
    ) -> None:
        self._subject = subject
        self._supervisor = supervisor
        self._pipeline = pipeline
        self._loop = asyncio.get_running_loop()
        self._started_s = time.monotonic()
        self.addresses: Mapping[str, str] = {}
        """Where clients reach the proxies, by role, once they are open."""

    def health(self) -> Health:
        roles = self._roles()
        states = {role.state for role in roles}
        return Health(states <= {"Healthy"}, states <= {"Healthy", "Standby"}, roles)

    def status(self) -> Status:
        return self._ask(self._status())

    def restart_role(self, role: str) -> None:
        if role not in self._subject.roles.names():
            raise InvalidParameter(f"no role {role!r}: there are {', '.join(self._subject.roles.names())}")
        self._ask(self._subject.roles.restart(role), _RESTART_S)

    def jobs(self) -> Sequence[JobStatus]:
        return self._ask(self._jobs())

    def job(self, job_id: str) -> JobStatus:
        return job_status(self._ask(self._subject.ledger.job(job_id)), self._now_s())

    def garbage(self) -> GcStatus:
        return self._ask(self._subject.data.gc_status())

    def collect_garbage(self, *, delete: bool) -> None:
        self._ask(self._subject.data.collect_garbage(delete))

    def cancel_job(self, job_id: str) -> None:
        self._ask(self._subject.ledger.cancel_job(job_id), _CANCEL_S)

    def _ask(self, work: Awaitable[T], timeout_s: float = _ANSWER_S) -> T:
        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(timeout_s)

    def _roles(self) -> list[RoleStatus]:
        roles = self._subject.roles
        return [RoleStatus(n, roles.state(n), self.addresses.get(n, "")) for n in roles.names()]

    async def _status(self) -> Status:
        segments = await self._subject.data.segments(CollectionID(0))
        jobs = await self._jobs()
        running = [job for job in jobs if not job.ended]
        return Status(
            version=__version__,
            uptime_s=time.monotonic() - self._started_s,
            roles=[*self._roles(), *self._subject.elsewhere()],
            channels=await self._channels(),
            collections=await self._collections(segments),
            jobs=[*[job for job in jobs if job.ended][-_JOBS_SHOWN:], *running],
            pipeline=self._pipeline_status(answers=await self.pipeline_answers()),
            garbage=_garbage(await self._subject.data.gc_status()),
            resource_groups=await self.resource_groups(),
        )

    async def _jobs(self) -> list[JobStatus]:
        now_s = self._now_s()
        return [job_status(entry, now_s) for entry in await self._subject.ledger.jobs()]

    def _now_s(self) -> float:
        return self._subject.clock.wall_ms() / 1000

    async def pipeline_answers(self) -> bool:
        if self._pipeline is None:
            return any(role.role.startswith("datanode") for role in self._subject.elsewhere())
        try:
            async with asyncio.timeout(_PING_S):
                await self._pipeline.ping()
        except (ElanusError, TimeoutError):
            return False
        return True

    async def _channels(self) -> list[ChannelStatus]:
        now_ms, log = self._subject.clock.wall_ms(), self._subject.log
        owners: dict[str, list[NodeID]] = {}
        for vchannel, node_id in (await self._subject.data.channel_owners()).items():
            owners.setdefault(pchannel_of(vchannel), []).append(node_id)
        return [
            ChannelStatus(
                pchannel,
                tick,
                float(lag_ms(now_ms, tick)),
                log.size_bytes(pchannel),
                len(owners.get(pchannel, ())),
                max(owners.get(pchannel, ()), default=0),
            )
            for pchannel, tick in (await self._subject.root.ticks()).items()
        ]

    async def _collections(self, segments: tuple[SegmentInfo, ...]) -> list[CollectionStatus]:
        databases = {d.database_id: d.name for d in await self._subject.root.list_databases()}
        loads = {load.collection_id: load for load in await self._subject.query.loads()}
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
            for c in await self._subject.root.list_collections("")
        ]

    async def resource_groups(self) -> list[ResourceGroup]:
        return [_group(group) for group in await self._subject.query.resource_groups()]

    def _pipeline_status(self, *, answers: bool) -> PipelineStatus:
        if self._pipeline is None:
            return PipelineStatus("Healthy" if answers else "Abnormal", None, 0)
        if self._supervisor is None:
            return PipelineStatus("Disabled", None, 0)
        state = "Healthy" if answers else "Initializing" if self._supervisor.pid else "Abnormal"
        return PipelineStatus(state, self._supervisor.pid, self._supervisor.restarts)


def _garbage(status: GcStatus) -> GarbageStatus:
    error = status.last.error if status.last else ""
    return GarbageStatus(status.state.value, status.waiting_bytes, status.reclaimed_bytes, error)


def _group(group: ResourceGroupStatus) -> ResourceGroup:
    is_default = group.name == DEFAULT_RESOURCE_GROUP  # which has room for any number, and lacks none
    missing = 0 if is_default else max(0, group.capacity - len(group.nodes))
    return ResourceGroup(group.name, group.nodes, missing, sum(group.loaded.values()))


def _percent(load: LoadStatus | None) -> int | None:
    if load is None:
        return None
    return min(load.percentages.values(), default=0)
