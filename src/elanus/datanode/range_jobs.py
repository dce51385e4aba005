"""The jobs that write ranges: ranges due at the same time share a job, and are tried alone when it fails.

Sharing is cheap, but one damaged range would make the others fail with it. So when a job over several ranges
fails, each is tried in a job of its own. Those that fail alone too *rest*, longer each time, and share no
job until they have been written. The job ledger has a failed job for each attempt, with the
file and the position that could not be read.

A job has a deadline. One that passes it is cancelled, and counts as failed whether or not its tasks stop: a
read that hangs may not. Files that it still writes are never committed. Each further try may take twice
as long, so a range that is merely large is written in the end.

A range that the log no longer holds is a different case: then what this node knows is out of date,
and the error is raised to the caller. Only if its collection has been dropped meanwhile, nobody needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from elanus.api.datanode import FlushReason
from elanus.core.errors import DeadlineExceeded, ElanusError
from elanus.core.faults import Fault
from elanus.datanode.progress import ChannelProgress, Range
from elanus.log.port import TrimmedLog
from elanus.pipeline.port import JobCancelled
from elanus.pipeline.ranges import FlushPlan, RangeOutcome

REST_MIN_S, REST_MAX_S = 1.0, 60.0
TIMEOUT_MAX_S = 3600.0
"""The longest deadline of a repeated try, unless that of a first one is longer."""
_log = structlog.get_logger("datanode")


Ended = Callable[[Mapping[str, RangeOutcome | None]], Awaitable[None]]
"""Takes the outcomes of ranges, by vchannel; None: the range was not written."""


class FlushRunner(Protocol):
    """Makes the plan of a range, and runs plans as one Spark job. ``attempt``: see `elanus.core.attempts`;
    ``tries``: how many times these ranges have been tried, this one included."""

    def plan(self, progress: ChannelProgress, range_: Range, attempt: int) -> FlushPlan: ...
    async def run(
        self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int
    ) -> list[RangeOutcome]: ...


@dataclass(frozen=True, slots=True)
class RangeWork:
    """One range to write, why, and for whom."""

    progress: ChannelProgress
    range_: Range
    attempt: int
    causes: frozenset[str]
    waiting: frozenset[str]

    @property
    def vchannel(self) -> str:
        return self.progress.vchannel


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A range that failed ``tries`` times. ``until_s``: when it is tried again, on the loop's clock."""

    tries: int
    until_s: float


class RangeJobs:
    """Belongs to one event loop. ``is_live``: whether a vchannel is this node's, and its collection is not
    dropped."""

    def __init__(self, flushes: FlushRunner, is_live: Callable[[str], bool]) -> None:
        self._flushes = flushes
        self._is_live = is_live
        self._troubles: dict[str, _Trouble] = {}
        self._given_up: set[asyncio.Future[list[RangeOutcome]]] = set()
        """Jobs past their deadline whose tasks have not stopped."""

    def __len__(self) -> int:
        """How many vchannels have failed and are not forgotten."""
        return len(self._troubles)

    def rest_s(self, vchannel: str) -> float:
        """Return how long the vchannel must rest; 0: it may be tried."""
        trouble = self._troubles.get(vchannel)
        return 0.0 if trouble is None else max(0.0, trouble.until_s - asyncio.get_running_loop().time())

    def forget(self, vchannel: str) -> None:
        """Forget the vchannel: another node owns it now, or its collection is dropped."""
        self._troubles.pop(vchannel, None)

    def forget_all(self) -> None:
        """Forget all failures: all vchannels are treated alike again."""
        self._troubles.clear()

    async def write(self, works: Sequence[RangeWork], timeout_s: float, ended: Ended) -> None:
        """Write the ranges; return when all are written or have failed. Those that failed rest from now on.

        ``timeout_s``: the deadline of a first try. ``ended``: called with what each job wrote, as soon as
        that job ends: a range waits only for those it shares a job with. Raises what it raises, `TrimmedLog`,
        and `JobCancelled`.
        """
        sound = [work for work in works if work.vchannel not in self._troubles]
        troubled = [[work] for work in works if work.vchannel in self._troubles]
        jobs = [sound, *troubled] if sound else troubled
        await self._all(jobs, timeout_s, ended)

    async def _all(self, jobs: Sequence[Sequence[RangeWork]], timeout_s: float, ended: Ended) -> None:
        """Run these jobs concurrently, and wait for all of them."""
        results = await asyncio.gather(
            *(self._job(works, timeout_s, ended) for works in jobs), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _job(self, works: Sequence[RangeWork], timeout_s: float, ended: Ended) -> None:
        plans = [self._flushes.plan(work.progress, work.range_, work.attempt) for work in works]
        tries = max(self._tries(work.vchannel) for work in works) + 1
        try:
            deadline_s = min(timeout_s * 2 ** min(tries - 1, 10), max(timeout_s, TIMEOUT_MAX_S))
            outcomes = await self._run(plans, _reason(works), tries, deadline_s)
        except JobCancelled:
            raise  # it says nothing about the ranges
        except TrimmedLog:
            if all(self._is_live(work.vchannel) for work in works):
                raise
            if len(works) > 1:
                await self._all([[work] for work in works], timeout_s, ended)
            else:
                await ended({works[0].vchannel: None})
            return
        except (ElanusError, Fault) as error:
            if len(works) > 1:
                await self._all([[work] for work in works], timeout_s, ended)
            else:
                self._failed(works[0].vchannel, tries, error)
                await ended({works[0].vchannel: None})
            return
        for work in works:
            self._troubles.pop(work.vchannel, None)
        await ended({outcome.vchannel: outcome for outcome in outcomes})

    async def _run(
        self, plans: Sequence[FlushPlan], reason: FlushReason, tries: int, deadline_s: float
    ) -> list[RangeOutcome]:
        """Run a job until its deadline. Raises `DeadlineExceeded`, and what the job raises.

        Cancelling a job returns when its tasks have stopped. That is waited for when this task is cancelled,
        but not at the deadline.
        """
        job = asyncio.ensure_future(self._flushes.run(plans, reason, tries))
        try:
            await asyncio.wait([job], timeout=deadline_s)
        except asyncio.CancelledError:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            raise
        if job.done():
            return job.result()
        job.cancel()
        self._given_up.add(job)
        job.add_done_callback(self._ended_late)
        raise DeadlineExceeded(
            f"the flush job did not end within {deadline_s:g} s; pipeline.flush_timeout_s is the time of a "
            "first try"
        )

    def _ended_late(self, job: asyncio.Future[list[RangeOutcome]]) -> None:
        self._given_up.discard(job)
        error = None if job.cancelled() else job.exception()
        _log.info("abandoned job ended", error="" if error is None else f"{type(error).__name__}: {error}")

    def _tries(self, vchannel: str) -> int:
        trouble = self._troubles.get(vchannel)
        return 0 if trouble is None else trouble.tries

    def _failed(self, vchannel: str, tries: int, error: Exception) -> None:
        rest_s = min(REST_MAX_S, REST_MIN_S * 2 ** min(tries - 1, 10))
        self._troubles[vchannel] = _Trouble(tries, asyncio.get_running_loop().time() + rest_s)
        text = f"{type(error).__name__}: {error}"
        _log.error("range not written", vchannel=vchannel, error=text, tries=tries, next_try_s=rest_s)


def _reason(works: Sequence[RangeWork]) -> FlushReason:
    causes = frozenset[str]().union(*(work.causes for work in works))
    waiting = frozenset[str]().union(*(work.waiting for work in works))
    return FlushReason(", ".join(sorted(causes)), tuple(sorted(waiting)))
