"""Tests that share something run in one process; those that need the machine run when nothing else does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from side_by_side import ALONE, TOGETHER, faults_of, group_of

ROOT = Path(__file__).parents[3]
PAIRS = 3
TEST = "tests/e2e/test_serve.py::test_it_answers_soon_after_its_start"

CONFTEST = """
import side_by_side

ALONE = ["tests/test_alone_first.py", "tests/test_alone_second.py"]

def pytest_xdist_make_scheduler(config, log):
    return side_by_side.AloneLast(config, log, ALONE)
"""

MODULE = """
import json, os, time
from pathlib import Path
import pytest

@pytest.fixture(scope="module", autouse=True)
def once():
    yield
    time.sleep(0.3)
    note("end of module")

def note(what):
    line = {"module": __name__, "what": what, "process": os.getpid(), "at": time.monotonic()}
    with open(Path(__file__).with_name("notes"), "a") as notes:
        notes.write(json.dumps(line) + chr(10))

@pytest.mark.parametrize("n", range(PAIRS))
def test_begins_and_ends(n):
    note("begin")
    time.sleep(0.1)
    note("end")
"""


@dataclass
class Item:
    nodeid: str
    marks: tuple[str, ...] = ()
    fixturenames: list[str] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return getattr(pytest.mark, name).mark if name in self.marks else None


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/pure/core/test_gc.py::test_a[b::c]", "tests/pure/core/test_gc.py"),
        ("tests/e2e/test_spark.py::test_a", "one server"),
        ("tests/e2e/test_serve.py::test_it_serves_without_its_pipeline", "tests/e2e/test_serve.py"),
        (f"{TEST}[3]", TEST),
        ("tests/pipeline/test_session.py::test_a", "one Spark session"),
    ],
)
def test_tests_that_share_something_are_in_one_group(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


@pytest.mark.parametrize(
    ("item", "faults"),
    [
        (Item("tests/e2e/test_serve.py::test_a"), ["lacks the mark e2e"]),
        (Item("tests/e2e/test_api_rows.py::test_a", ("e2e",), ["shared"]), ["lacks the mark jvm"]),
        (
            Item("tests/e2e/test_serve.py::test_a", ("e2e", "jvm"), ["shared"]),
            ["uses the fixture shared: name its file in side_by_side.TOGETHER['one server']"],
        ),
        (
            Item("tests/contracts/test_m.py::test_a[etcd]", (), ["etcd_server"]),
            ["lacks the mark services"],
        ),
        (Item("tests/contracts/test_meta.py::test_a[sqlite]"), []),
        (Item("tests/pipeline/test_session.py::test_a", ("jvm",), ["session"]), []),
        (Item("tests/pure/sim/test_simulator.py::test_a"), ["lacks the mark sim"]),
        (Item("tests/pure/core/test_gc.py::test_a", ("jvm",)), ["has the mark jvm in tests/pure"]),
    ],
)
def test_a_test_in_the_wrong_place_or_without_a_mark_is_found(item: Item, faults: list[str]) -> None:
    assert faults_of(item) == faults


def test_the_files_and_tests_that_are_named_exist() -> None:
    for name in (*ALONE, *chain(*TOGETHER.values())):
        file, _, test = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert f"def {test}" in (ROOT / file).read_text(), name


def test_one_target_runs_what_the_other_leaves_out() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r'^test:.*\n.*-m "not long"', makefile, re.MULTILINE)
    assert re.search(r"^test-long:.*\n.*-m long", makefile, re.MULTILINE)


@pytest.mark.slow
def test_files_that_run_alone_begin_when_every_other_process_has_gone(tmp_path: Path) -> None:
    directory = tmp_path / "tests"
    directory.mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("alone_first", "alone_second", "c", "d", "e"):
        (directory / f"test_{name}.py").write_text(MODULE.replace("PAIRS", str(PAIRS)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    command += ["-p", "xdist", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # pytest-xdist is all it needs
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), environment.get("PYTHONPATH", "")])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{5 * PAIRS} passed" in done.stdout
    notes = [json.loads(line) for line in (directory / "notes").read_text().splitlines()]
    notes.sort(key=lambda note: note["at"])
    processes = {
        note["module"]: {n["process"] for n in notes if n["module"] == note["module"]} for note in notes
    }
    assert len(processes) == 5
    assert all(len(of_module) == 1 for of_module in processes.values()), "a file stays in one process"
    alone = [n for n, note in enumerate(notes) if note["module"].startswith("test_alone")]
    assert alone == list(range(len(notes) - len(alone), len(notes))), "whatever the others started has ended"
    assert processes["test_alone_first"] == processes["test_alone_second"]
