"""Jobs, and the part of a Spark session that they use.

A `Job` is a value: a task (a plain function of one plan), the plans, and how to account for the outcomes.
Modules such as `elanus.pipeline.flush` and `elanus.pipeline.index_build` make jobs, and
`elanus.pipeline.jobs` runs them on a `JobSession`. Nothing here imports Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from elanus.core.faults import JobFault
from elanus.core.jobs import JobKind, JobProgress
from elanus.pipeline.progress import ProgressBoard

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The output of a job: objects written, rows in them, their size. ``index_type`` and ``planned_s``: see
    `elanus.core.jobs.JobEntry`."""

    objects: tuple[str, ...]
    rows: int
    size_bytes: int
    index_type: str = ""
    planned_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Job(Generic[Plan, Outcome]):
    """Work for Spark: one task per plan.

    ``inputs`` names what the job reads, for people. ``task`` and the plans travel to Python workers, so
    the task is a module-level function and plans pickle. ``output`` sums up the outcomes. ``board``: where
    long tasks report their progress. ``cpus``: the cores of each task, of those of one executor.
    ``memory_bytes``: what its tasks take together at least, 0 if that is not known.
    """

    kind: JobKind
    inputs: tuple[str, ...]
    task: Callable[[Plan], Outcome]
    plans: tuple[Plan, ...]
    output: Callable[[Sequence[Outcome]], JobOutput]
    board: ProgressBoard | None = None
    cpus: int = 1
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The progress of a running job. ``ui_url``: its page in Spark's web interface, "" without one."""

    progress: JobProgress
    ui_url: str = ""


class JobSession(Protocol):
    """Runs tasks. Synchronous, for any number of threads at once."""

    @property
    def slots(self) -> int:
        """How many tasks run at a time."""
        ...

    def run(
        self,
        task: Callable[[Plan], Outcome],
        plans: Sequence[Plan],
        *,
        group: str,
        description: str,
        pool: str,
        cpus: int = 1,
    ) -> list[Outcome]:
        """Run one task per plan; their outcomes in the order of the plans.

        Jobs of different pools share the slots fairly. Each task takes ``cpus`` of them, where Spark's master
        can count them by job. Raises what a task raised where that is an error
        of our own, `JobFailed` for anything else, `JobLost` for an end of Spark itself, and `JobCancelled`.
        A task that fails for a reason that may pass is tried again; any other failure ends the job's other
        tasks at once.
        """
        ...

    def running_job(self, group: str) -> RunningJob | None:
        """Return how far the running job of that group is; None when that is not known."""
        ...

    def is_alive(self) -> bool:
        """Whether jobs can still run, now or after a start."""
        ...

    def cancel(self, group: str) -> None:
        """Cancel the running job of that group. Only what has begun is hit: repeat until `run` ends."""
        ...


class JobFailed(JobFault):
    """A task failed, or Spark did. The text says which job and why."""


class JobLost(JobFailed):
    """Spark ended the job: its JVM or its workers died. The same job may succeed when it is run again."""


class JobCancelled(JobFault):
    """The job was cancelled while it ran."""
