"""Jobs in the ledger: the kinds of jobs, the entry of a job, and when an entry is forgotten.

A job is work that moves data in bulk and has a name: a flush, an index build. A `JobEntry` holds all that is
recorded about a job, from the moment it waits until long after its end. The process that runs the job (its
*owner*) makes new entries as the job progresses, and the ledger of datacoord keeps the latest of each job.

The ledger exists for people. No decision depends on it: the manifests define the state of the data, so an
entry lost with its process loses information, never rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

NAMES_MAX = 20
"""How many inputs, and how many outputs, an entry names; beyond that it gives only the count."""


class JobKind(StrEnum):
    FLUSH = "flush"
    INDEX_BUILD = "index build"
    IMPORT = "import"
    GC = "garbage collection"
    COMPACTION = "compaction"


LASTING: dict[JobKind, str] = {
    JobKind.FLUSH: "writers wait for the memory it frees, and it would be ordered again at once",
}
"""Kinds that cannot be cancelled, and why. Cancelling any other kind also cancels the work it does: an index
whose build is cancelled has failed."""


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its process ended or does not respond. The role that ordered the job orders it again."""


OPEN = (JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job. ``share``: the sum of the completed shares of its running tasks, in [0, tasks].

    ``rows`` and ``size_bytes`` have been written so far, as far as tasks have reported.
    """

    tasks: int = 0
    tasks_done: int = 0
    share: float = 0.0
    rows: int = 0
    size_bytes: int = 0

    @property
    def percent(self) -> float:
        """Percent of the job's work done, with equal weight for every task; 0 before its tasks are known."""
        return 100.0 * min(1.0, (self.tasks_done + self.share) / self.tasks) if self.tasks else 0.0


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One job. Times are Unix seconds, 0 for events that have not happened.

    ``owner``: the process that runs it. ``cause``: why it was ordered; ``waiting``: what waits for its
    end. ``inputs`` and ``outputs`` name what it reads and the objects it wrote, at most `NAMES_MAX` of
    ``input_count`` and ``output_count``. ``attempt`` counts the tries of the same work, from 1.
    ``rows`` and ``size_bytes``: of the outputs, 0 before the end. ``ui_url``: its page in Spark's own
    web interface, "" if there is none. ``error``: why it failed. ``index_type``: of a finished index build,
    and ``planned_s``: what it was estimated to take (`elanus.core.build_speed`).
    """

    job_id: str
    owner: str
    kind: JobKind
    cause: str
    inputs: tuple[str, ...]
    input_count: int
    attempt: int = 1
    waiting: tuple[str, ...] = ()
    state: JobState = JobState.WAITING
    ordered_s: float = 0.0
    started_s: float = 0.0
    ended_s: float = 0.0
    outputs: tuple[str, ...] = ()
    output_count: int = 0
    rows: int = 0
    size_bytes: int = 0
    progress: JobProgress = JobProgress()
    ui_url: str = ""
    error: str = ""
    index_type: str = ""
    planned_s: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def duration_ms(self, now_s: float) -> float:
        """Time from the start to the end, or until now; 0 for a job that never started."""
        if not self.started_s:
            return 0.0
        return max(0.0, ((self.ended_s or now_s) - self.started_s) * 1000)


def lost(entry: JobEntry, now_s: float) -> JobEntry:
    """Return the entry of a job whose process is gone."""
    return replace(
        entry,
        state=JobState.LOST,
        ended_s=now_s,
        error="its process ended, or does not answer; what it wrote counts only if it was committed",
    )


def follows(known: JobEntry | None, reported: JobEntry) -> bool:
    """Whether a report is newer: reports may be duplicated, and late ones must not reopen ended jobs.

    A lost job may reappear: its process was only slow to answer.
    """
    if known is None:
        return True
    if known.state is JobState.LOST:
        return known.owner == reported.owner
    return known.is_open and known != reported


def forgotten(
    entries: Iterable[JobEntry], jobs_max: int, age_max_s: float, now_s: float
) -> tuple[JobEntry, ...]:
    """Return the ended jobs that the ledger drops: those too old, and the oldest ones above ``jobs_max``.

    Running jobs are never dropped.
    """
    ended = sorted((e for e in entries if not e.is_open), key=lambda e: e.ended_s)
    surplus = max(0, len(ended) - jobs_max)
    return tuple(e for n, e in enumerate(ended) if n < surplus or now_s - e.ended_s > age_max_s)


def named(names: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Return the first `NAMES_MAX` of the names, and the number of all."""
    known = tuple(names)
    return known[:NAMES_MAX], len(known)
