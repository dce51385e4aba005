"""Servers end with everything below them, and what ended children used is counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from polling import until

from benchmarks.processes import Meter, ServerProcess, Usage, wait_for_quiet


def everything(process: psutil.Process) -> str:
    return process.name()


def start(script: str, folder: Path) -> ServerProcess:
    return ServerProcess(["sh", "-c", script], folder / "log", everything)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["kill", "stop"])
def test_the_end_of_a_server_is_the_end_of_its_tree(tmp_path: Path, way: str) -> None:
    server = start("trap '' TERM; (trap '' TERM; sleep 600 & wait) & wait; sleep 600", tmp_path)
    root = psutil.Process(server.pid)
    until(lambda: len(root.children(recursive=True)) == 2, "it has two children")
    tree = [root, *root.children(recursive=True)]
    if way == "kill":
        server.kill()
    else:
        server.stop(grace_s=0.1)
    assert psutil.wait_procs(tree, timeout=10)[1] == []


def test_cpu_of_ended_children_counts_and_roles_are_distinguished(tmp_path: Path) -> None:
    busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    server = start(f"sh -c '{busy}'; touch {tmp_path}/done; sleep 600 & wait", tmp_path)
    try:
        until((tmp_path / "done").exists, "the file is there")
        until(lambda: "sleep" in server.usage().rss_mb, "it sleeps")
        usage = server.usage()
        assert usage.total_cpu_s >= 0.02
        assert set(usage.rss_mb) == {"sh", "sleep"}
        assert usage.total_rss_mb == pytest.approx(sum(usage.rss_mb.values()))
    finally:
        server.kill()


def test_a_server_that_ended_by_itself_is_reported_with_its_log(tmp_path: Path) -> None:
    server = start("echo the disk is full; exit 3", tmp_path)
    until(
        lambda: not psutil.pid_exists(server.pid) or psutil.Process(server.pid).status() == "zombie",
        "it has ended",
    )
    with pytest.raises(RuntimeError, match=r"code 3(.|\n)*the disk is full"):
        server.check_running()
    server.kill()


@pytest.mark.parametrize(
    ("roles", "looks"),
    [((), 3), (("jvm",), 6)],
    ids=["any two calm seconds", "calm seconds after the last role was seen"],
)
def test_quiet_is_two_calm_seconds_on_end(roles: tuple[str, ...], looks: int) -> None:
    online = {"online": 1.0}
    both = {"online": 1.0, "jvm": 3.0}
    later = {"online": 1.1, "jvm": 3.0}
    seen = [online, online, online, both, later, later]
    remaining = iter(seen)
    wait_for_quiet(lambda: Usage(next(remaining), {}), limit_s=60, roles=roles, sleep=lambda _: None)
    assert len(list(remaining)) == len(seen) - looks


_BUSY = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ninput()"


@pytest.mark.slow
def test_a_process_that_ended_keeps_its_share_of_the_sum() -> None:
    command = [sys.executable, "-c", f"{_BUSY.replace('input()', 'print(flush=True); input()')}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        meter = Meter(lambda _: "worker")
        before = meter.read([process.pid]).total_cpu_s
        process.communicate(b"\n", timeout=30)
    assert before >= 0.3
    assert meter.read([process.pid]).total_cpu_s == before
