"""The job ledger: what every bulk job was for, what it did, and how it ended. Implements `JobLedgerApi`.

Processes that run jobs report them (`elanus.rpc.jobbook`); here the latest entry of each is kept, shown,
and persisted when its state changes, one record a job. How far a job is changes too often for that, and is
kept in memory only. The ledger has bounds, in number and in age, beyond which ended jobs are forgotten.

A process that falls silent for some seconds is taken for dead, and its open jobs for lost. Should it have
been merely slow, its next report puts that right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from elanus.core.errors import JobNotFound, NotCancellable, Unavailable
from elanus.core.jobs import LASTING, JobEntry, follows, forgotten, lost
from elanus.core.world import Clock
from elanus.meta.port import TXN_OPERATIONS_MAX, Delete, MetaStore, Put
from elanus.meta.whole import whole
from elanus.rpc.pipeline import PipelineApi

_JOBS = "datacoord/job/"
_LOOK_S = 1.0
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class LedgerPolicy:
    """``jobs_max``, ``age_max_s``: ended jobs that are kept; ``silence_s``: when an owner counts as dead."""

    jobs_max: int
    age_max_s: float
    silence_s: float = 10.0


@dataclass(slots=True)
class _Owner:
    address: str
    heard_s: float


class JobLedger:
    """``dial`` makes a client of the process at an address; ``ended`` hears of every job's end, once."""

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
        """Read the ledger back. Owners have as long as ever to be heard of."""
        for key, stored in await self._meta.list(_JOBS):
            try:
                entry = msgspec.json.decode(stored.value, type=JobEntry)
            except msgspec.DecodeError as error:
                # of another release: no reason for a server not to start
                _log.warning("a job's entry cannot be read and is left out", key=key, error=str(error))
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
            raise Unavailable(f"the process that runs {job_id} has not been heard of; retry when it is back")
        await self._dial(owner.address).cancel_job(job_id)

    # what time does

    async def keep(self) -> None:
        """Look for silent owners and for what is to be forgotten, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - an account for people; the next look may succeed
                _log.exception("looking after the job ledger failed")

    async def look(self) -> None:
        """One look: the open jobs of owners that have fallen silent are lost, what is too old goes."""
        now_s = self._clock.wall_ms() / 1000
        silent_since = self._clock.monotonic_s() - self._policy.silence_s
        silent = {name for name, owner in self._owners.items() if owner.heard_s < silent_since}
        await self._take([lost(e, now_s) for e in self._entries.values() if e.is_open and e.owner in silent])
        for name in silent:
            del self._owners[name]
        await self._forget(
            forgotten(self._entries.values(), self._policy.jobs_max, self._policy.age_max_s, now_s)
        )

    async def _take(self, entries: Sequence[JobEntry]) -> None:
        changed = [e for e in entries if self._state_of(e) is not e.state]
        for batch in _batches(changed):
            await self._put(batch)
        for entry in entries:
            self._entries[entry.job_id] = entry  # of those not persisted, only the progress is new

    def _state_of(self, entry: JobEntry) -> object:
        known = self._entries.get(entry.job_id)
        return known.state if known is not None else None

    @whole
    async def _put(self, entries: Sequence[JobEntry]) -> None:
        await self._meta.txn([Put(f"{_JOBS}{e.job_id}", msgspec.json.encode(e)) for e in entries])
        for entry in entries:
            self._entries[entry.job_id] = entry
            if not entry.is_open:
                self._ended(entry)

    async def _forget(self, entries: Sequence[JobEntry]) -> None:
        for batch in _batches(entries):
            await self._meta.txn([Delete(f"{_JOBS}{e.job_id}") for e in batch])
            for entry in batch:
                self._entries.pop(entry.job_id, None)


def _batches(entries: Sequence[JobEntry]) -> Iterable[Sequence[JobEntry]]:
    for first in range(0, len(entries), TXN_OPERATIONS_MAX):
        yield entries[first : first + TXN_OPERATIONS_MAX]
