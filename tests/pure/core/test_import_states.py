"""Import tasks: which steps there are, whose turn it is, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.imports import (
    ENDED,
    OPEN,
    ImportState,
    ImportTask,
    failed,
    forgotten,
    next_task,
    stepped,
    waiting_for,
    with_progress,
)
from elanus.core.jobs import JobEntry, JobKind, JobProgress, JobState


def task(number: int = 1, state: ImportState = ImportState.PENDING, ended_ms: int = 0) -> ImportTask:
    known = ImportTask(TaskID(number), CollectionID(4), "docs", PartitionID(5), "_default", ("a",), 1000)
    return replace(known, state=state, ended_ms=ended_ms)


def test_the_steps_there_are() -> None:
    steps = set()
    for before, after in product(ImportState, ImportState):
        try:
            steps.add((before.name, stepped(task(state=before), after).state.name))
        except InvalidParameter:
            continue
    assert steps == {
        ("PENDING", "STARTED"),
        ("PENDING", "FAILED"),
        ("STARTED", "STARTED"),
        ("STARTED", "UNCOMMITTED"),
        ("UNCOMMITTED", "PERSISTED"),
        ("UNCOMMITTED", "FAILED"),
        ("STARTED", "PERSISTED"),
        ("STARTED", "FAILED"),
        ("PERSISTED", "COMPLETED"),
    }
    assert ENDED.isdisjoint(OPEN)


def test_what_has_committed_cannot_fail_any_more() -> None:
    with pytest.raises(InvalidParameter, match="import 1 is Persisted: it cannot become Failed"):
        failed(task(state=ImportState.PERSISTED), "cancelled", 5)
    assert failed(task(), "no disk", 5).reason == "no disk"


def test_what_was_interrupted_goes_on_before_the_next_one_begins() -> None:
    waiting = [task(3), task(2), task(5, ImportState.STARTED), task(1, ImportState.FAILED)]
    chosen = next_task(waiting)
    assert chosen is not None
    assert chosen.task_id == 5
    assert next_task(waiting[:2]) == task(2)
    assert next_task([task(1, ImportState.PERSISTED)]) is None


def test_only_what_has_ended_is_forgotten() -> None:
    old = task(1, ImportState.FAILED, ended_ms=1000)
    fresh = task(2, ImportState.COMPLETED, ended_ms=5000)
    assert forgotten([old, fresh, task(3)], now_ms=6000, retention_ms=2000) == (old,)


def test_a_task_is_as_far_as_the_job_that_it_waits_for() -> None:
    started = task(7, ImportState.STARTED)
    job = JobEntry("import-1", "me", JobKind.IMPORT, "cause", (), 0, waiting=(waiting_for(started.task_id),))
    running = replace(job, state=JobState.RUNNING, progress=JobProgress(tasks=4, tasks_done=1))
    assert with_progress(started, [running]).percent == 25.0
    assert with_progress(started, [replace(running, state=JobState.LOST)]).percent == 0.0
    assert with_progress(task(8, ImportState.STARTED), [running]).percent == 0.0
    assert with_progress(task(7), [running]) == task(7)


def test_the_reason_of_a_failure_has_a_bound() -> None:
    """It quotes files, and the metadata store refuses values of more than a megabyte or so."""
    assert failed(task(), "why", 1).reason == "why"
    assert len(failed(task(), "x" * 10_000_000, 1).reason) < 5000
