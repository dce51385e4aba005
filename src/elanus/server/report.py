"""The report of a process about itself and its system, gathered from the roles: health and status.

Called from the observation port's threads; state that belongs to the event loop is queried there. A role that
does not answer in time is shown as abnormal, and does not keep the rest from being shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from elanus import __version__
from elanus.api.datacoord import DataCoordApi
from elanus.api.gc import GcStatus
from elanus.api.ledger import JobLedgerApi
from elanus.api.pipeline import PipelineApi, SparkState
from elanus.api.querycoord import QueryCoordApi
from elanus.api.rootcoord import RootCoordApi
from elanus.api.serving import ServingObserved
from elanus.core.catalog import Collection
from elanus.core.clock import SystemClock
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.privileges import ROOT
from elanus.core.recall import merged
from elanus.core.slow_requests import SlowRequest
from elanus.log.port import Log
from elanus.proxy.read_watch import SLOW_KEPT, ReadWatch
from elanus.querynode.recall import RecallSampler
from elanus.server.http_port import Health
from elanus.server.job_status import job_status
from elanus.server.loop_lag import LoopLag
from elanus.server.own_resources import OwnResources
from elanus.server.roles import RoleHost
from elanus.server.serving.pool import ServingPool
from elanus.server.status import (
    JobStatus,
    PipelineStatus,
    RecallStatus,
    ResourceGroup,
    RoleStatus,
    Status,
)
from elanus.server.status_parts import (
    channel_statuses,
    collection_statuses,
    garbage_status,
    group_status,
    recall_statuses,
)
from elanus.server.supervise import PipelineSupervisor
from elanus.storage.port import ObjectStore

T = TypeVar("T")
_ANSWER_S = 5.0
_PATIENCE_S = 3.0
"""How long to wait for each role when gathering the status."""
_ABNORMAL = "Abnormal"
_PING_S = 1.0
_RESTART_S = 60.0
_CANCEL_S = 60.0
_JOBS_SHOWN = 20
"""Ended jobs shown in the status; the ledger has more."""


class Subject(Protocol):
    """The process that a report describes: its roles, and the coordinators wherever they run."""

    roles: RoleHost
    clock: SystemClock
    log: Log
    store: ObjectStore
    root: RootCoordApi
    data: DataCoordApi
    ledger: JobLedgerApi
    query: QueryCoordApi

    def elsewhere(self) -> list[RoleStatus]:
        """Roles of other processes."""
        ...

    recall: RecallSampler

    def growing_bytes(self) -> int: ...


class Report:
    """Implements `elanus.server.http_port.Observed`.

    ``supervisor`` and ``pipeline`` are those of a standalone server.
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
        """The proxies' addresses for clients, by role, once their ports are open."""
        self.loop_lag: LoopLag | None = None
        """The delays of this process's event loop, once they are measured."""
        self.resources: OwnResources | None = None
        """The figures of this process, once the settings are known."""
        self.watch = ReadWatch()
        """Follows reads; has the slow ones of this process."""
        self.serving: ServingPool | None = None
        """The further serving processes of a standalone server."""

    def health(self) -> Health:
        roles = self._roles()
        states = {role.state for role in roles}
        return Health(states <= {"Healthy"}, states <= {"Healthy", "Standby"}, roles)

    def status(self) -> Status:
        status = self._ask(self._status())
        if self.resources is None:
            return status
        # Files and directories are looked at in this thread, and not on the event loop.
        return replace(status, resources=self.resources.read(self._root_unchanged()))

    def _root_unchanged(self) -> bool:
        """Whether root's password was never changed; asked only where that would be the default one."""
        if self.resources is None or not self.resources.may_have_default_password:
            return False
        asked = _Asked()
        policy = self._ask(asked("rootcoord", self._subject.root.access_policy(), None))
        return policy is not None and not policy.users[ROOT].password_hash

    def restart_role(self, role: str) -> None:
        if role not in self._subject.roles.names():
            raise InvalidParameter(f"no role {role!r}: there are {', '.join(self._subject.roles.names())}")
        self._ask(self._subject.roles.restart(role), _RESTART_S)

    def jobs(self) -> Sequence[JobStatus]:
        return self._ask(self._jobs())

    def job(self, job_id: str) -> JobStatus:
        return job_status(self._ask(self._subject.ledger.job(job_id)), self._now_s())

    def slow_requests(self) -> Sequence[SlowRequest]:
        found = self.watch.slow_requests()
        if self.serving is not None:
            others = self._ask(self.serving.observed())
            found = sorted([*found, *(s for one in others for s in one.slow)], key=lambda one: one.at_ms)
        return found[-SLOW_KEPT:]

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
        """Return the roles of this process: each with why it could not be started, or its address."""
        roles = self._subject.roles
        return [
            RoleStatus(n, roles.state(n), roles.why_not(n) or self.addresses.get(n, ""))
            for n in roles.names()
        ]

    async def _status(self) -> Status:
        """Ask every coordinator at the same time. Answers that do not arrive in time are left out."""
        subject, asked = self._subject, _Asked()
        async with asyncio.TaskGroup() as group:
            begin = group.create_task
            segments = begin(asked("datacoord", subject.data.segments(CollectionID(0)), ()))
            owners = begin(asked("datacoord", subject.data.channel_owners(), {}))
            quarantined = begin(asked("datacoord", subject.data.quarantined(), {}))
            garbage = begin(asked("datacoord", subject.data.gc_status(), None))
            jobs = begin(asked("datacoord", self._jobs(), []))
            ticks = begin(asked("rootcoord", subject.root.ticks(), {}))
            holders = begin(asked("rootcoord", subject.root.tick_holders(), {}))
            refused = begin(asked("rootcoord", subject.root.refused_channels(), {}))
            databases = begin(asked("rootcoord", subject.root.list_databases(), ()))
            collections = begin(asked("rootcoord", subject.root.list_collections(""), ()))
            loads = begin(asked("querycoord", subject.query.loads(), ()))
            groups = begin(asked("querycoord", self.resource_groups(), []))
            spark = begin(self.spark_state())
            serving = begin(self._serving())
        names = {d.database_id: d.name for d in databases.result()}
        loaded = {load.collection_id: load for load in loads.result()}
        running = [job for job in jobs.result() if not job.ended]
        processes = [] if self.serving is None else self.serving.statuses()
        return Status(
            version=__version__,
            uptime_s=time.monotonic() - self._started_s,
            slow_requests=self.watch.slow_count + sum(one.slow_requests for one in processes),
            recalls=self._recalls(serving.result(), collections.result(), names),
            loop_lag_ms=0.0 if self.loop_lag is None else self.loop_lag.longest_s * 1000,
            roles=asked.marked([*self._roles(), *subject.elsewhere()]),
            channels=channel_statuses(
                ticks.result(),
                owners.result(),
                quarantined.result(),
                holders.result(),
                refused.result(),
                subject.clock.wall_ms(),
                subject.log.size_bytes,
            ),
            collections=collection_statuses(collections.result(), names, loaded, segments.result()),
            jobs=[*[job for job in jobs.result() if job.ended][-_JOBS_SHOWN:], *running],
            pipeline=self._pipeline_status(spark.result()),
            garbage=garbage_status(garbage.result()),
            resource_groups=groups.result(),
            serving=processes,
        )

    def _recalls(
        self,
        serving: Sequence[ServingObserved],
        collections: Sequence[Collection],
        databases: Mapping[DatabaseID, str],
    ) -> list[RecallStatus]:
        """Return the measured recall of the searches of all processes. ``databases``: their names."""
        own = self._subject.recall
        measured = merged([own.measured(), *(one.recalls for one in serving)], own.target)
        return recall_statuses(measured, own.target, collections, databases)

    async def _jobs(self) -> list[JobStatus]:
        now_s = self._now_s()
        return [job_status(entry, now_s) for entry in await self._subject.ledger.jobs()]

    def _now_s(self) -> float:
        return self._subject.clock.wall_ms() / 1000

    async def _serving(self) -> list[ServingObserved]:
        return [] if self.serving is None else await self.serving.observed()

    def has_data_node(self) -> bool:
        """Whether a process of the cluster, this one or another, runs a data node with a Spark session."""
        roles = [*self._roles(), *self._subject.elsewhere()]
        return any(role.role.startswith("datanode") and role.state == "Healthy" for role in roles)

    async def spark_state(self) -> SparkState | None:
        """Return the state of Spark in a standalone server; ``None`` if its data node is disabled or
        silent."""
        if self._pipeline is None or self._supervisor is None:
            return None
        try:
            async with asyncio.timeout(_PING_S):
                return await self._pipeline.ping()
        except (ElanusError, TimeoutError):
            return None

    async def resource_groups(self) -> list[ResourceGroup]:
        return [group_status(group) for group in await self._subject.query.resource_groups()]

    def _pipeline_status(self, spark: SparkState | None) -> PipelineStatus:
        if self._pipeline is None:
            return PipelineStatus("Healthy" if self.has_data_node() else "Abnormal", None, 0)
        if self._supervisor is None:
            return PipelineStatus("Disabled", None, 0)
        state = "Healthy" if spark else "Initializing" if self._supervisor.pid else "Abnormal"
        supervisor = self._supervisor
        return PipelineStatus(state, supervisor.pid, supervisor.restarts, spark or "", supervisor.cause)


class _Asked:
    """Asks the roles, and records which of them did not answer."""

    def __init__(self) -> None:
        self._silent: dict[str, str] = {}

    async def __call__(self, role: str, question: Awaitable[T], otherwise: T) -> T:
        """The answer, or ``otherwise`` if the role refuses or does not answer within `_PATIENCE_S`."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await question
        except ElanusError as error:
            self._silent[role] = error.message
        except TimeoutError:
            self._silent[role] = f"does not answer within {_PATIENCE_S:g} s"
        return otherwise

    def marked(self, roles: Sequence[RoleStatus]) -> list[RoleStatus]:
        """Mark the roles that did not answer as abnormal, and add those of them that are not in the list."""
        found = {role.role.partition(" ")[0] for role in roles}
        missing = [RoleStatus(r, _ABNORMAL, why) for r, why in self._silent.items() if r not in found]
        return [*(self._mark(role) for role in roles), *missing]

    def _mark(self, role: RoleStatus) -> RoleStatus:
        why = self._silent.get(role.role.partition(" ")[0])
        if why is None or role.state != "Healthy":
            return role
        return RoleStatus(role.role, _ABNORMAL, f"{role.detail}: {why}" if role.detail else why)
