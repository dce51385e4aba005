"""Jobs as the ledger tells of them: what kinds there are, what is known of one, and when it is forgotten.

A job is work that moves data in bulk and has a name: a flush, an index build. `JobEntry` is all that is
told about one, from the moment it waits until long after its end; the process that runs it (its *owner*)
makes new entries as it goes on, and the ledger of datacoord keeps the latest of each.

The ledger is an account for people. Nothing is decided by it: what is true of the data stands in the
manifests, so an entry that got lost with its process costs knowledge, never rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

NAMES_MAX = 20
"""Inputs, and outputs, that an entry names; of more it tells the number."""


class JobKind(StrEnum):
    FLUSH = "flush"
    INDEX_BUILD = "index build"
    IMPORT = "import"
    GC = "garbage collection"
    COMPACTION = "compaction"


LASTING: dict[JobKind, str] = {
    JobKind.FLUSH: "writers wait for the memory it frees, and it would be ordered again at once",
}
"""Kinds that nobody cancels, and why. Any other kind is cancelled with what it stands for: an index build
leaves its index failed."""


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its process ended, or is not heard of. Whoever ordered the job orders it again."""


OPEN = (JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is. ``share``: of the tasks that run, the sum of the parts done, in [0, tasks].

    ``rows`` and ``size_bytes`` are what has been written so far, as far as tasks have told.
    """

    tasks: int = 0
    tasks_done: int = 0
    share: float = 0.0
    rows: int = 0
    size_bytes: int = 0

    @property
    def percent(self) -> float:
        """Of the job's work, every task counted alike; 0 before its tasks are known."""
        return 100.0 * min(1.0, (self.tasks_done + self.share) / self.tasks) if self.tasks else 0.0


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One job. Times are Unix seconds, 0 for what has not come.

    ``owner``: the process that runs it. ``cause``: why it was ordered; ``waiting``: who waits for its
    end. ``inputs`` and ``outputs`` name what it reads and the objects it wrote, at most `NAMES_MAX` of
    ``input_count`` and ``output_count``. ``attempt`` counts the tries of the same work, from 1.
    ``rows`` and ``size_bytes``: of the outputs, 0 before the end. ``ui_url``: its page in Spark's own
    web interface, "" without one. ``error``: why it failed.
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

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def duration_ms(self, now_s: float) -> float:
        """From the start to the end, or until now; 0 for a job that never began."""
        if not self.started_s:
            return 0.0
        return max(0.0, ((self.ended_s or now_s) - self.started_s) * 1000)


def lost(entry: JobEntry, now_s: float) -> JobEntry:
    """The entry of a job whose process is gone."""
    return replace(
        entry,
        state=JobState.LOST,
        ended_s=now_s,
        error="its process ended, or does not answer; what it wrote counts only if it was committed",
    )


def follows(known: JobEntry | None, reported: JobEntry) -> bool:
    """Whether a report is news: reports may come twice, and late ones must not reopen what has ended.

    A lost job may come back: its process was only slow to answer.
    """
    if known is None:
        return True
    if known.state is JobState.LOST:
        return known.owner == reported.owner
    return known.is_open and known != reported


def forgotten(
    entries: Iterable[JobEntry], jobs_max: int, age_max_s: float, now_s: float
) -> tuple[JobEntry, ...]:
    """The ended jobs that the ledger lets go: those too old, and the oldest of too many. None that runs."""
    ended = sorted((e for e in entries if not e.is_open), key=lambda e: e.ended_s)
    surplus = max(0, len(ended) - jobs_max)
    return tuple(e for n, e in enumerate(ended) if n < surplus or now_s - e.ended_s > age_max_s)


def named(names: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """The first `NAMES_MAX` of the names, and how many there are."""
    known = tuple(names)
    return known[:NAMES_MAX], len(known)
