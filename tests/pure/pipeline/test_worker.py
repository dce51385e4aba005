"""Errors of tasks on their way to the driver."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from elanus.core.errors import DiskFull
from elanus.core.faults import Fault
from elanus.log.port import CorruptLog, LogUnreadable, RewoundLog, TrimmedLog
from elanus.pipeline.port import JobFailed
from elanus.pipeline.worker import Guarded, TaskFailure, scratch_directory
from elanus.storage.port import CorruptObject, ObjectExists, ObjectMissing, StorageFailed

OWN = [
    DiskFull("full"),
    *(
        kind("why")
        for kind in (
            CorruptLog,
            TrimmedLog,
            RewoundLog,
            LogUnreadable,
            ObjectMissing,
            ObjectExists,
            CorruptObject,
            StorageFailed,
        )
    ),
]


def failed(error: Exception) -> Exception:
    """Return the error that the driver raises when a task raises this one."""

    def task(_plan: int) -> None:
        raise error

    failure = Guarded(task)(1)
    assert isinstance(failure, TaskFailure)
    arrived: TaskFailure = pickle.loads(pickle.dumps(failure))
    return arrived.as_error("flush: p0")


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_errors_of_our_own_are_raised_again_as_what_they_were(error: Exception) -> None:
    raised = failed(error)
    assert type(raised) is type(error)
    assert str(raised) == str(error)
    assert "in a task of: flush: p0" in raised.__notes__[0]


@pytest.mark.parametrize("error", [OSError("io"), KeyError("x"), RuntimeError("a bug")])
def test_errors_of_libraries_are_failed_jobs_with_their_names(error: Exception) -> None:
    raised = failed(error)
    assert isinstance(raised, JobFailed)
    assert f"flush: p0: {type(error).__name__}" in str(raised)
    assert not isinstance(error, Fault)


def test_the_directory_of_a_killed_task_is_removed_by_the_next(tmp_path: Path) -> None:
    """Spark kills the worker of a task that is cancelled: nothing runs there any more."""
    with scratch_directory(str(tmp_path)) as living:
        (living / "half").write_bytes(b"rows")
        killed = tmp_path / "task-killed"
        killed.mkdir()
        (killed / "half").write_bytes(b"rows")
        with scratch_directory(str(tmp_path)) as further:
            assert set(tmp_path.iterdir()) == {living, further}
            assert (living / "half").exists(), "its process lives"
    assert not list(tmp_path.iterdir())
