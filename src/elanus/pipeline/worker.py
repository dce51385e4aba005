"""The steps of every task around its work, in the Python worker.

An error in a task would reach the driver as a Java exception with a Python traceback in its text. So
tasks return errors as values: `Guarded` wraps a task, `TaskFailure` carries the error, and the driver
raises it again as what it was. Spark does not retry such a task: a damaged file or a full disk stays what it
is, and the role that ordered the job decides. The driver receives such an error when its task ends, not with
the job's last one, through ``report``, and ends the job.

An error that may pass (an object store that does not answer, an input error, lack of memory) is raised, so
that Spark tries the task again, elsewhere if it can; the last try returns it as a value. Spark also retries
the tasks of lost workers. Names that hold `attempt_name` keep all these tries apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from elanus.core.errors import ElanusError, Unavailable
from elanus.core.faults import Fault
from elanus.pipeline.port import JobFailed

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")

_SCRATCH = "task-"
_LIBRARIES = (
    "elanus.pipeline.flush",
    "elanus.pipeline.index_build",
    "elanus.pipeline.import_job",
    "elanus.pipeline.import_keys",
    "elanus.pipeline.import_survey",
    "elanus.pipeline.delete_job",
    "elanus.pipeline.sweep",
    "elanus.pipeline.compact",
    "elanus.pipeline.cluster_jobs",
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


def may_pass(error: Exception) -> bool:
    """Whether the same task may succeed when it is tried again."""
    return isinstance(error, Unavailable | OSError | MemoryError)


class Report(Protocol):
    """Sends failures to the driver when their task ends."""

    def add(self, term: tuple[tuple[str, TaskFailure], ...]) -> None: ...


@dataclass(frozen=True, slots=True)
class Guarded(Generic[Plan, Outcome]):
    """A task whose errors are values.

    ``tries_max``: how often Spark runs a task that raises. ``report`` receives a failure under the name of
    the job's ``group``.
    """

    task: Callable[[Plan], Outcome]
    tries_max: int = 1
    group: str = ""
    report: Report | None = None

    def __call__(self, plan: Plan) -> Outcome | TaskFailure:
        try:
            return self.task(plan)
        except Exception as error:
            if may_pass(error) and tries_before() + 1 < self.tries_max:
                raise
            known = error if isinstance(error, ElanusError | Fault) else None
            failure = TaskFailure(known, f"{type(error).__name__}: {error}", traceback.format_exc())
            if self.report is not None:
                self.report.add(((self.group, failure),))
            return failure


def tries_before() -> int:
    """Return how often Spark has tried the task that runs here before; 0 outside of a Spark task."""
    from pyspark import TaskContext  # only here: what is tested without Spark must not import it

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def attempt_name(attempt: str) -> str:
    """Return a name for this try of this task: the job's attempt, and Spark's number for the task's try.

    Outside a Spark task it is the attempt itself.
    """
    from pyspark import TaskContext  # only here: what is tested without Spark must not import it

    context = TaskContext.get()
    return attempt if context is None else f"{attempt}-{context.taskAttemptId()}"


@contextlib.contextmanager
def scratch_directory(parent: str) -> Iterator[Path]:
    """An empty directory of its own for a task, below ``parent``, gone at the end.

    The worker of a task that is cancelled is killed, and its directory stays. So each holds a lock while its
    process lives, and the next task removes those that nobody holds.
    """
    Path(parent).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        with _locked(Path(parent), fcntl.LOCK_EX):
            _remove_abandoned(Path(parent))
            directory = held.enter_context(tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=parent))
            held.enter_context(_locked(Path(directory), fcntl.LOCK_EX | fcntl.LOCK_NB))
        yield Path(directory)


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    """Raises `OSError` if it is locked by another and ``how`` does not wait."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, how)
        yield
    finally:
        os.close(opened)


def _remove_abandoned(parent: Path) -> None:
    """Remove the directories of tasks that were killed. The parent is locked, so none is just being made."""
    for directory in parent.glob(f"{_SCRATCH}*"):
        # In use, or gone since.
        with contextlib.suppress(OSError), _locked(directory, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(directory, ignore_errors=True)


def load_libraries() -> None:
    """Import what tasks need, so that the first one does not wait for it."""
    from elanus.index.library import load_library

    for name in _LIBRARIES:
        importlib.import_module(name)
    load_library()


def process_id(_plan: int) -> int:
    """The smallest task: which worker ran it."""
    return os.getpid()
