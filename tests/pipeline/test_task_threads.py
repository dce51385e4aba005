"""No task has more threads at work than cores: the libraries take as many as Spark gives the task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("thread_watch.py")
UNSEEN_MAX = 0.25
"""The share of processor time that may belong to threads that came and went between two looks."""


@pytest.mark.parametrize("cpus", [pytest.param(1, marks=pytest.mark.long), 2])
def test_no_more_threads_work_for_a_task_than_it_has_cores(cpus: int, tmp_path: Path) -> None:
    modules = os.pathsep.join([str(PROGRAM.parents[2]), str(PROGRAM.parent)])
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), str(cpus), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": modules},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    reports = json.loads(ran.stdout.splitlines()[-1])
    for name in ("build", "join"):
        report = reports[name]
        assert report["cpus"] == cpus, "what Spark counts"
        assert 1 <= report["working"] <= cpus, reports
        assert report["unseen"] <= UNSEEN_MAX, reports
        assert report["cpu_s"] >= 0.5, "a task too short says nothing"
    assert reports["build"]["working"] == cpus, "a build uses all its cores"
    assert reports["too many"]["working"] == cpus + 1, "the count finds a thread too many"
