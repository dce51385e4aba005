"""The reports of a long task: their rate, and the progress computed from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elanus.core.errors import DiskFull
from elanus.core.jobs import JobProgress
from elanus.pipeline.progress import REPORT_INTERVAL_S, ProgressBoard, ProgressReport, TaskProgress, combined
from elanus.storage.local import LocalStore
from elanus.storage.objects import open_store
from elanus.storage.paths import parse, progress_path
from elanus.storage.port import StorageFailed

JOB = "build-7-1-abc"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def reported_by(tmp_path: Path, *steps: tuple[float, float, int], store: Any = None) -> list[ProgressReport]:
    """Steps of one task: (seconds from the start, share, rows)."""
    clock = Clock()
    progress = TaskProgress(store or open_store(tmp_path.as_uri()), JOB, 3, 5, clock)
    for clock.now_s, share, rows in steps:
        progress(share, rows)
    return sorted(ProgressBoard(tmp_path.as_uri(), JOB).read())


def test_a_long_task_reports_at_a_bounded_rate(tmp_path: Path) -> None:
    steps = [(0.1 * n, n / 100, 10 * n) for n in range(1, 100)]
    reports = reported_by(tmp_path, *steps)
    assert [t.thousandths for t in reports] == [200, 400, 600, 800]
    assert [t.rows for t in reports] == [200, 400, 600, 800]
    assert {(t.task, t.attempt) for t in reports} == {(3, 5)}


def test_a_short_task_reports_nothing(tmp_path: Path) -> None:
    assert reported_by(tmp_path, (0.9 * REPORT_INTERVAL_S, 0.9, 9)) == []
    progress = TaskProgress(open_store(tmp_path.as_uri()), JOB)
    progress.done(10)
    assert ProgressBoard(tmp_path.as_uri(), JOB).read() == []


def test_a_task_that_has_reported_reports_its_end(tmp_path: Path) -> None:
    clock = Clock()
    progress = TaskProgress(open_store(tmp_path.as_uri()), JOB, clock_s=clock)
    clock.now_s = REPORT_INTERVAL_S
    progress(0.5, 5)
    progress.done(10)
    assert max(ProgressBoard(tmp_path.as_uri(), JOB).read()) == ProgressReport(0, 0, 1000, 10)


def test_unchanged_progress_is_reported_once(tmp_path: Path) -> None:
    assert len(reported_by(tmp_path, (2, 0.5, 5), (4, 0.5, 5), (6, 0.5, 5))) == 1


@pytest.mark.parametrize("error", [DiskFull("full"), StorageFailed("no connection")])
def test_a_report_that_fails_disturbs_no_work(tmp_path: Path, error: Exception) -> None:
    class Broken(LocalStore):
        def put(self, path: str, data: Any) -> None:
            raise error

    assert reported_by(tmp_path, (2, 0.5, 5), store=Broken(tmp_path)) == []


def test_a_board_holds_its_own_job_and_is_cleared(tmp_path: Path) -> None:
    reported_by(tmp_path, (2, 0.5, 5))
    other = ProgressBoard(tmp_path.as_uri(), "build-8")
    assert other.read() == []
    other.clear()
    board = ProgressBoard(tmp_path.as_uri(), JOB)
    assert len(board.read()) == 1
    board.clear()
    assert board.read() == []


def test_garbage_collection_knows_what_a_driver_left(tmp_path: Path) -> None:
    name = parse(progress_path(JOB, ProgressReport(0, 0, 5, 1).name))
    assert name is not None
    assert (name.owner, name.attempt, name.build_id) == (JOB, 0, 0), "judged by age"


def test_running_tasks_add_their_shares() -> None:
    seen = combined(
        JobProgress(4, 1),
        [ProgressReport(0, 1, 1000, 100), ProgressReport(1, 2, 500, 50), ProgressReport(2, 3, 250, 25)],
    )
    assert (seen.tasks_done, seen.share, seen.rows) == (1, 0.75, 175)
    assert seen.percent == 43.75


def test_the_latest_try_of_a_task_counts() -> None:
    seen = combined(
        JobProgress(1, 0),
        [ProgressReport(0, 1, 900, 90), ProgressReport(0, 2, 100, 10), ProgressReport(0, 2, 50, 5)],
    )
    assert (seen.share, seen.rows) == (0.1, 10)


def test_a_task_that_ended_without_a_word_is_not_counted_twice() -> None:
    assert combined(JobProgress(2, 2), [ProgressReport(1, 1, 900, 90)]).percent == 100.0
