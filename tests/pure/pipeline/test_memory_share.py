"""Index builds of one machine claim their memory, and wait while it is taken."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from test_index_build import plan, store

from elanus.pipeline import index_build
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.pipeline.memory_share import claimed_memory
from elanus.storage.local import LocalStore

__all__ = ["plan", "store"]
HOLDER = """
import sys
from pathlib import Path
from elanus.pipeline.memory_share import claimed_memory
with claimed_memory(60, 100, Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


class Waited(Exception):
    pass


def waits(_: float) -> None:
    raise Waited


def held_in_another_process(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_claims_that_fit_do_not_wait(tmp_path: Path) -> None:
    with claimed_memory(60, 100, tmp_path, waits), claimed_memory(40, 100, tmp_path, waits):
        with claimed_memory(0, 100, tmp_path, waits):
            pass
        with pytest.raises(Waited), claimed_memory(1, 100, tmp_path, waits):
            pass
    with claimed_memory(200, 100, tmp_path, waits):
        """One that is alone never waits."""


def test_a_claim_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    with held_in_another_process(tmp_path) as process:
        with pytest.raises(Waited), claimed_memory(50, 100, tmp_path, waits):
            pass
        process.kill()
        process.wait()
        with claimed_memory(50, 100, tmp_path, waits):
            assert len(list(tmp_path.glob("*.claim"))) == 1, "that of the dead one is removed"


def test_one_that_waits_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with held_in_another_process(tmp_path) as process:
        naps = []

        def sleep(nap_s: float) -> None:
            naps.append(nap_s)
            process.communicate()

        with claimed_memory(50, 100, tmp_path, sleep):
            assert len(naps) == 1


def test_without_a_place_for_claims_a_build_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with claimed_memory(50, 100, tmp_path / "file", waits):
        pass


def test_a_build_claims_its_memory_before_it_reads(
    plan: IndexBuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_build, "builds_bytes_max", lambda: 100)
    monkeypatch.setattr(index_build, "claims_directory", lambda: tmp_path / "claims")
    monkeypatch.setattr(index_build, "claimed_memory", partial(claimed_memory, sleep=waits))
    with held_in_another_process(tmp_path / "claims") as process:
        with pytest.raises(Waited):
            build_index_file(plan, LocalStore(tmp_path / "empty"), tmp_path, "a1")
        process.kill()
