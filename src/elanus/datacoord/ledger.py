"""The job ledger: what every bulk job was for, what it did, and how it ended. Implements `JobLedgerApi`.

Processes that run jobs report them (`elanus.api.job_book`). The ledger keeps and shows the latest entry of
each job, and persists it when the job's state changes, in one record per job. A job's progress changes too
often for that, and is kept in memory only. Ended jobs beyond a maximum number or age are removed.

A process that has not reported for some seconds counts as dead, and its open jobs as lost. If it was only
slow, its next report corrects this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from elanus.api.pipeline import PipelineApi
from elanus.core.batches import batched
from elanus.core.clock import Clock
from elanus.core.errors import JobNotFound, NotCancellable, Unavailable
from elanus.core.jobs import LASTING, JobEntry, follows, forgotten, lost
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import TXN_OPERATIONS_MAX, Delete, MetaStore, Put

_JOBS = "datacoord/job/"
_LOOK_S = 1.0
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class LedgerPolicy:
    """``jobs_max``, ``age_max_s``: the number and age of ended jobs that are kept. ``silence_s``: how long
    after its last report an owner counts as dead."""

    jobs_max: int
    age_max_s: float
    silence_s: float = 10.0


@dataclass(slots=True)
class _Owner:
    address: str
    reported_s: float


class JobLedger:
    """``dial`` makes a client for the process at an address; ``ended`` is called once when a job ends."""

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        dial: Callable[[str], PipelineApi],
        policy: LedgerPolicy,
        ended: Callable[[JobEntry], None] = lambda entry: None,
    ) -> None:
        self._meta = meta
        self._clock = clock
        self._dial = dial
        self._policy = policy
        self._ended = ended
        self._entries: dict[str, JobEntry] = {}
        self._owners: dict[str, _Owner] = {}

    async def start(self) -> None:
        """Load the ledger. Owners of open jobs have the usual time to report again."""
        for key, stored in await self._meta.list(_JOBS):
            try:
                entry = msgspec.json.decode(stored.value, type=JobEntry)
            except msgspec.DecodeError as error:
                # written by another release: this must not keep a server from starting
                _log.warning("job entry skipped: not readable", key=key, error=str(error))
                continue
            self._entries[entry.job_id] = entry
            if entry.is_open:
                self._owners.setdefault(entry.owner, _Owner("", self._clock.monotonic_s()))

    # the interface

    async def report_jobs(self, owner: str, address: str, entries: tuple[JobEntry, ...]) -> None:
        self._owners[owner] = _Owner(address, self._clock.monotonic_s())
        await self._take([e for e in entries if follows(self._entries.get(e.job_id), e)])

    async def jobs(self) -> tuple[JobEntry, ...]:
        return tuple(sorted(self._entries.values(), key=lambda e: e.ordered_s))

    async def job(self, job_id: str) -> JobEntry:
        try:
            return self._entries[job_id]
        except KeyError:
            raise JobNotFound(f"no job {job_id!r}: `elanus jobs` lists those that are known") from None

    async def cancel_job(self, job_id: str) -> None:
        entry = await self.job(job_id)
        if not entry.is_open:
            raise NotCancellable(f"job {job_id} has ended: it is {entry.state}")
        if reason := LASTING.get(entry.kind):
            raise NotCancellable(f"a {entry.kind} is not cancelled: {reason}")
        owner = self._owners.get(entry.owner)
        if owner is None or not owner.address:
            raise Unavailable(f"the process that runs {job_id} has not reported yet; retry when it is back")
        await self._dial(owner.address).cancel_job(job_id)

    # expiry

    async def keep(self) -> None:
        """Call `expire` regularly, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.expire()
            except Exception:  # noqa: BLE001 - an account for people; the next round may succeed
                _log.exception("job ledger not updated; trying again")

    async def expire(self) -> None:
        """Mark the open jobs of silent owners as lost, and remove entries beyond the bounds."""
        now_s = self._clock.wall_ms() / 1000
        silent_since = self._clock.monotonic_s() - self._policy.silence_s
        silent = {name for name, owner in self._owners.items() if owner.reported_s < silent_since}
        await self._take([lost(e, now_s) for e in self._entries.values() if e.is_open and e.owner in silent])
        for name in silent:
            del self._owners[name]
        await self._forget(
            forgotten(self._entries.values(), self._policy.jobs_max, self._policy.age_max_s, now_s)
        )

    async def _take(self, entries: Sequence[JobEntry]) -> None:
        changed = [e for e in entries if self._state_of(e) is not e.state]
        for batch in batched(changed, TXN_OPERATIONS_MAX):
            await self._put(batch)
        for entry in entries:
            self._entries[entry.job_id] = entry  # not persisted: only the progress is new

    def _state_of(self, entry: JobEntry) -> object:
        known = self._entries.get(entry.job_id)
        return known.state if known is not None else None

    @uncancellable
    async def _put(self, entries: Sequence[JobEntry]) -> None:
        await self._meta.txn([Put(f"{_JOBS}{e.job_id}", msgspec.json.encode(e)) for e in entries])
        for entry in entries:
            self._entries[entry.job_id] = entry
            if not entry.is_open:
                self._ended(entry)

    async def _forget(self, entries: Sequence[JobEntry]) -> None:
        for batch in batched(entries, TXN_OPERATIONS_MAX):
            await self._meta.txn([Delete(f"{_JOBS}{e.job_id}") for e in batch])
            for entry in batch:
                self._entries.pop(entry.job_id, None)
