"""Which failed tests `.ci/run` runs once more (``tools/test_again.py``)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "test_again.py"))
VERDICT = TOOL["verdict"]
SERVER, CLUSTER = (
    "tests/e2e/test_serve.py::test_it_stops",
    "tests/services/test_dev_cluster.py::test_ready[1]",
)


def test_few_tests_that_start_processes_get_a_second_try() -> None:
    assert VERDICT([SERVER, CLUSTER]) == ""


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([], "no failed test is on record"),
        (
            [SERVER, "tests/pure/core/test_ticks.py::test_order"],
            "start no process: tests/pure/core/test_ticks.py",
        ),
        ([f"{SERVER}[{n}]" for n in range(13)], "13 tests failed; at most 12"),
    ],
)
def test_others_get_none(failed: list[str], why: str) -> None:
    assert why in VERDICT(failed)


def test_whole_files_are_run_again_each_once() -> None:
    """A test may read what an earlier one of its file wrote."""
    assert TOOL["files"]([f"{SERVER}[b]", CLUSTER, SERVER]) == [
        "tests/e2e/test_serve.py", "tests/services/test_dev_cluster.py"
    ]  # fmt: skip
