"""The steps of every task around its work, in the Python worker.

An error in a task would reach the driver as a Java exception with a Python traceback in its text. So
tasks return errors as values: `Guarded` wraps a task, `TaskFailure` carries the error, and the driver
raises it again as what it was. Spark therefore does not retry such a task, and is right not to: ours
fail for reasons that stay (a damaged file, a full disk), and the role that ordered the job decides. On
a cluster Spark does retry the tasks of lost workers, and names that hold `attempt_name` keep those tries
apart.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from elanus.core.errors import ElanusError
from elanus.core.faults import Fault
from elanus.pipeline.port import JobFailed

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")

_LIBRARIES = (
    "elanus.pipeline.flush",
    "elanus.pipeline.index_build",
    "elanus.pipeline.import_job",
    "elanus.pipeline.sweep",
    "elanus.pipeline.compact",
)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An error as a value. ``error`` is set for errors of our own (`ElanusError`, `Fault`), which survive the
    way to the driver."""

    error: Exception | None
    summary: str
    trace: str

    def as_error(self, job: str) -> Exception:
        """Return the error that the driver raises, with the task's traceback as a note."""
        error = self.error or JobFailed(f"{job}: {self.summary}")
        error.add_note(f"in a task of: {job}\n{self.trace}")
        return error


@dataclass(frozen=True, slots=True)
class Guarded(Generic[Plan, Outcome]):
    """A task whose errors are values."""

    task: Callable[[Plan], Outcome]

    def __call__(self, plan: Plan) -> Outcome | TaskFailure:
        try:
            return self.task(plan)
        except Exception as error:  # noqa: BLE001 - the boundary between worker and driver
            known = error if isinstance(error, ElanusError | Fault) else None
            return TaskFailure(known, f"{type(error).__name__}: {error}", traceback.format_exc())


def attempt_name(attempt: str) -> str:
    """A name for this try of this task: the job's attempt, and Spark's number for the task's try.

    Outside a Spark task it is the attempt itself.
    """
    from pyspark import TaskContext  # only here: what is tested without Spark must not import it

    context = TaskContext.get()
    return attempt if context is None else f"{attempt}-{context.taskAttemptId()}"


@contextlib.contextmanager
def scratch_directory(parent: str) -> Iterator[Path]:
    """An empty directory of its own for a task, below ``parent``, gone at the end."""
    Path(parent).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="task-", dir=parent) as directory:
        yield Path(directory)


def load_libraries() -> None:
    """Import what tasks need, so that the first one does not wait for it."""
    for name in _LIBRARIES:
        importlib.import_module(name)


def process_id(_plan: int) -> int:
    """The smallest task: which worker ran it."""
    return os.getpid()
