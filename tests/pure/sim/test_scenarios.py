"""A finding is cut down to little, kept in a file, and found again from there."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import planted
import psutil
import pytest
from planted_profiles import OLDER

from elanus.cli.simulate import replay_scenario
from elanus.core.errors import InvalidParameter
from elanus.sim.plan import draw
from elanus.sim.report import Summary, run_seeds
from elanus.sim.run import run
from elanus.sim.scenario import FaultKind, load, save
from elanus.sim.shrink import shrink

pytestmark = pytest.mark.sim


def test_a_scenario_survives_its_file(tmp_path: Path) -> None:
    scenario = draw(3)
    save(scenario, tmp_path / "deep" / "scenario.json")
    assert load(tmp_path / "deep" / "scenario.json") == scenario


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]"])
def test_a_file_without_a_scenario_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "scenario.json").write_bytes(content)
    with pytest.raises(InvalidParameter, match="holds no scenario"):
        load(tmp_path / "scenario.json")
    with pytest.raises(InvalidParameter, match="cannot be read"):
        load(tmp_path / "another.json")


def test_leaving_an_operation_out_leaves_the_others_as_they_were() -> None:
    scenario = draw(3)
    first, *others = scenario.operations
    assert scenario.without([first], scenario.faults) == replace(
        scenario, operations=tuple(others), faults=()
    )


def test_kinds_of_faults_come_and_go_with_the_seed() -> None:
    kinds = [{fault.kind for fault in draw(seed).faults} for seed in range(1, 21)]
    assert set().union(*kinds) == set(FaultKind) - {FaultKind.REPLACE_ROOT}
    assert any(
        fault.kind is FaultKind.REPLACE_ROOT for seed in range(240, 260) for fault in draw(seed).faults
    )
    assert any(FaultKind.LOSE_CALL not in of_seed for of_seed in kinds)


@pytest.mark.timeout(300)
def test_a_finding_is_shrunk_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted.deletes.deletes_reach_growing_rows_only(monkeypatch)
    scenario = draw(1, OLDER)
    outcome = run(scenario)
    assert outcome.broken == "DEL1"
    shrunk = shrink(scenario, outcome, runs_max=60)
    assert shrunk.outcome.broken == "DEL1"
    assert shrunk.runs <= 60
    assert len(shrunk.scenario.faults) < 10 < len(scenario.faults)
    assert len(shrunk.scenario.operations) < len(scenario.operations) / 4
    save(shrunk.scenario, tmp_path / "scenario.json")
    assert not replay_scenario(tmp_path / "scenario.json")
    printed = capsys.readouterr().out
    assert shrunk.outcome.message in printed
    for operation in shrunk.scenario.operations:
        assert str(operation) in printed
    monkeypatch.undo()
    assert replay_scenario(tmp_path / "scenario.json"), "without the bug the same scenario finds nothing"


def test_who_interrupts_gets_the_summary_so_far() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    summary = run_seeds(1, 50, print, processes=1, progress=interrupt)
    assert summary.interrupted
    assert summary.runs == 1
    assert summary.lines()[0].startswith("1 runs of ")


def test_workers_end_with_a_parent_that_is_killed() -> None:
    script = "import os, sys, time; from elanus.sim.report import _pool\n"
    script += "pool = _pool(1); print(pool.submit(os.getpid).result(), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        psutil.wait_procs([worker], timeout=20)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_a_summary_names_what_was_broken() -> None:
    summary = Summary()
    summary.add(replace(run(replace(draw(1), operations=(), faults=(), work_s=1.0)), broken="VIS1"))
    assert any(line.startswith("VIS1 broken in 1 runs: A row that lives") for line in summary.lines())
