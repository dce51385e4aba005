"""Rules about the job ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from elanus.core.jobs import JobKind
from elanus.server.doctor.finding import Finding, critical, some, warning
from elanus.server.status import JobStatus, Status

SAME_ERROR_MIN = 3
ATTEMPTS_MANY = 3
BUILDS_MANY = 16
RUNNING_MS = 3_600_000.0
"""A job without any progress after this time is stuck."""
_BAD = ("failed", "lost")
_WITH_DIGITS = re.compile(r"\S*\d\S*")
"""Words in which errors of one cause differ: ids, and files, whose names are new in each attempt."""


def jobs_fail_alike(status: Status) -> Iterator[Finding]:
    """Three or more jobs of one kind ended with the same error, and what they worked on is not done yet."""
    alike: dict[tuple[str, str], list[JobStatus]] = {}
    for job in status.jobs:
        if job.state in _BAD and not _is_done_since(job, status.jobs):
            error = job.error.partition("\n")[0]
            alike.setdefault((job.kind, _WITH_DIGITS.sub("…", error)), []).append(job)
    for (kind, _), jobs in alike.items():
        if len(jobs) >= SAME_ERROR_MIN:
            error = jobs[-1].error.partition("\n")[0]
            yield critical(
                f"jobs of the kind {kind!r} fail again and again with the same error",
                f"{len(jobs)} times: {error or 'no error was reported'}",
                f"`elanus jobs show {jobs[-1].job_id}` has the whole error",
                min(job.ended for job in jobs),
            )


def _is_done_since(failed: JobStatus, jobs: Sequence[JobStatus]) -> bool:
    """Whether later jobs of the kind have finished with all of its inputs."""
    done = {
        read
        for job in jobs
        if job.kind == failed.kind and job.state == "finished" and job.ended >= failed.ended
        for read in job.inputs
    }
    return bool(failed.inputs) and done.issuperset(failed.inputs)


def job_retried(status: Status) -> Iterator[Finding]:
    """Work that waits or runs has been tried three times or more."""
    again = [j for j in status.jobs if not j.ended and j.attempt >= ATTEMPTS_MANY]
    if again:
        yield warning(
            "jobs are tried over and over",
            some([f"{j.job_id} ({j.kind}) attempt {j.attempt}" for j in again]),
            f"`elanus jobs show {again[0].job_id}`, and the failed jobs before it, have the reason",
            min(j.ordered for j in again),
        )


def job_stuck(status: Status) -> Iterator[Finding]:
    """A job has run for an hour and has completed nothing."""
    stuck = [j for j in status.jobs if j.state == "running" and j.duration_ms > RUNNING_MS and j.percent == 0]
    if stuck:
        yield warning(
            "jobs run without progress",
            some([f"{j.job_id} ({j.kind}) {j.duration_ms / RUNNING_MS:.1f} h" for j in stuck]),
            "see whether Spark has free cores (pipeline.cores_max) and reaches the object store; "
            f"`elanus jobs cancel {stuck[0].job_id}` ends one that is not a flush",
            min(j.started for j in stuck),
        )


def index_behind(status: Status) -> Iterator[Finding]:
    """Many index builds wait or run: searches scan segments that have no index yet."""
    builds = [j for j in status.jobs if j.kind == JobKind.INDEX_BUILD and not j.ended]
    if len(builds) >= BUILDS_MANY:
        yield warning(
            "index builds lag behind",
            f"{len(builds)} builds are waiting or running",
            "give Spark more cores, or build a cheaper index (a lower efConstruction or nlist)",
            min((j.ordered for j in builds if j.ordered), default=""),
        )


RULES = (jobs_fail_alike, job_retried, job_stuck, index_behind)
