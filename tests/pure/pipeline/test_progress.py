"""What a long task tells of itself, how seldom, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elanus.core.errors import DiskFull
from elanus.core.jobs import JobProgress
from elanus.pipeline.progress import TELL_S, ProgressBoard, TaskProgress, Told, combined
from elanus.storage.objects import LocalStore, open_store
from elanus.storage.paths import parse, progress_path

JOB = "build-7-1-abc"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def told_by(tmp_path: Path, *steps: tuple[float, float, int], store: Any = None) -> list[Told]:
    """Steps of one task: (seconds from the start, share, rows)."""
    clock = Clock()
    progress = TaskProgress(store or open_store(tmp_path.as_uri()), JOB, 3, 5, clock)
    for clock.now_s, share, rows in steps:
        progress(share, rows)
    return sorted(ProgressBoard(tmp_path.as_uri(), JOB).read())


def test_a_long_task_tells_at_a_bounded_rate(tmp_path: Path) -> None:
    steps = [(0.1 * n, n / 100, 10 * n) for n in range(1, 100)]
    told = told_by(tmp_path, *steps)
    assert [t.thousandths for t in told] == [200, 400, 600, 800]
    assert [t.rows for t in told] == [200, 400, 600, 800]
    assert {(t.task, t.attempt) for t in told} == {(3, 5)}


def test_a_short_task_tells_nothing(tmp_path: Path) -> None:
    assert told_by(tmp_path, (0.9 * TELL_S, 0.9, 9)) == []
    progress = TaskProgress(open_store(tmp_path.as_uri()), JOB)
    progress.done(10)
    assert ProgressBoard(tmp_path.as_uri(), JOB).read() == []


def test_one_that_told_says_when_it_is_done(tmp_path: Path) -> None:
    clock = Clock()
    progress = TaskProgress(open_store(tmp_path.as_uri()), JOB, clock_s=clock)
    clock.now_s = TELL_S
    progress(0.5, 5)
    progress.done(10)
    assert max(ProgressBoard(tmp_path.as_uri(), JOB).read()) == Told(0, 0, 1000, 10)


def test_what_stands_still_is_told_once(tmp_path: Path) -> None:
    assert len(told_by(tmp_path, (2, 0.5, 5), (4, 0.5, 5), (6, 0.5, 5))) == 1


@pytest.mark.parametrize("error", [DiskFull("full"), OSError("no connection")])
def test_what_cannot_be_told_disturbs_no_work(tmp_path: Path, error: Exception) -> None:
    class Broken(LocalStore):
        def put(self, path: str, data: Any) -> None:
            raise error

    assert told_by(tmp_path, (2, 0.5, 5), store=Broken(tmp_path)) == []


def test_a_board_holds_its_own_job_and_is_cleared(tmp_path: Path) -> None:
    told_by(tmp_path, (2, 0.5, 5))
    other = ProgressBoard(tmp_path.as_uri(), "build-8")
    assert other.read() == []
    other.clear()
    board = ProgressBoard(tmp_path.as_uri(), JOB)
    assert len(board.read()) == 1
    board.clear()
    assert board.read() == []


def test_garbage_collection_knows_what_a_driver_left(tmp_path: Path) -> None:
    name = parse(progress_path(JOB, Told(0, 0, 5, 1).name))
    assert name is not None
    assert (name.owner, name.attempt, name.build_id) == (JOB, 0, 0), "judged by age"


def test_running_tasks_add_their_shares() -> None:
    seen = combined(JobProgress(4, 1), [Told(0, 1, 1000, 100), Told(1, 2, 500, 50), Told(2, 3, 250, 25)])
    assert (seen.tasks_done, seen.share, seen.rows) == (1, 0.75, 175)
    assert seen.percent == 43.75


def test_the_latest_try_of_a_task_counts() -> None:
    seen = combined(JobProgress(1, 0), [Told(0, 1, 900, 90), Told(0, 2, 100, 10), Told(0, 2, 50, 5)])
    assert (seen.share, seen.rows) == (0.1, 10)


def test_a_task_that_ended_without_a_word_is_not_counted_twice() -> None:
    assert combined(JobProgress(2, 2), [Told(1, 1, 900, 90)]).percent == 100.0
