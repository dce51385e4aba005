"""Which report about a job is newer, and when a job is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elanus.core.jobs import JobEntry, JobKind, JobProgress, JobState, follows, forgotten, lost, named

RUNNING = JobEntry(
    "flush-1", "life-1", JobKind.FLUSH, "size", ("ch",), 1, state=JobState.RUNNING, started_s=5.0
)
FINISHED = replace(RUNNING, state=JobState.FINISHED, ended_s=9.0)


def test_progress_and_ends_are_news_and_repetitions_are_not() -> None:
    assert follows(None, RUNNING)
    assert not follows(RUNNING, RUNNING)
    assert follows(RUNNING, replace(RUNNING, progress=JobProgress(2, 1)))
    assert follows(RUNNING, FINISHED)
    assert not follows(FINISHED, RUNNING), "a late report must not reopen what has ended"


def test_a_lost_job_comes_back_with_its_own_process_only() -> None:
    gone = lost(RUNNING, 20.0)
    assert (gone.state, gone.ended_s) == (JobState.LOST, 20.0)
    assert follows(gone, FINISHED)
    assert not follows(gone, replace(FINISHED, owner="life-2"))


def test_the_oldest_of_too_many_and_the_too_old_are_forgotten_but_none_that_runs() -> None:
    ended = [replace(FINISHED, job_id=str(n), ended_s=float(n)) for n in (4, 2, 3, 1)]
    entries = [*ended, RUNNING]
    assert [e.job_id for e in forgotten(entries, 2, 1000.0, 10.0)] == ["1", "2"]
    assert [e.job_id for e in forgotten(entries, 9, 7.0, 10.0)] == ["1", "2"]
    assert forgotten(entries, 4, 9.0, 10.0) == ()
    assert RUNNING not in forgotten(entries, 0, 0.0, 1e9)


@pytest.mark.parametrize(
    ("progress", "percent"),
    [
        (JobProgress(), 0.0),
        (JobProgress(4, 1), 25.0),
        (JobProgress(4, 1, 0.5), 37.5),
        (JobProgress(1, 1, 0.5), 100.0),
    ],
)
def test_every_task_counts_alike(progress: JobProgress, percent: float) -> None:
    assert progress.percent == percent


def test_a_duration_runs_until_the_end_or_now() -> None:
    assert replace(RUNNING, started_s=0.0).duration_ms(7.0) == 0.0
    assert RUNNING.duration_ms(7.0) == 2000.0
    assert FINISHED.duration_ms(700.0) == 4000.0


def test_many_names_become_the_first_and_their_number() -> None:
    names, count = named(str(n) for n in range(50))
    assert (len(names), names[0], count) == (20, "0", 50)
