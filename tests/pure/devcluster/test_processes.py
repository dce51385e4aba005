"""A service's process and its port: who holds them, and who answers in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elanus.devcluster import process
from elanus.devcluster.process import ServiceFailed, ServiceProcess, free_port

PICK = "from elanus.devcluster.process import free_port; print(free_port(), flush=True); input()"


COUNTING = """
import itertools, pathlib, sys
for n in itertools.count(1):
    pathlib.Path(sys.argv[1]).write_text(str(n))
"""


def test_a_port_is_given_to_one_process_for_as_long_as_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on it yet, or it is between the two lives of a service."""
    with subprocess.Popen(
        [sys.executable, "-c", PICK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr(process, "_PORTS", range(port, port + 1))
        with pytest.raises(ServiceFailed, match="no free port found"):
            free_port()
        other.communicate("\n")
    assert free_port() == port
    with pytest.raises(ServiceFailed, match="no free port found"):
        free_port()


def test_a_service_that_ended_is_not_ready_though_another_answers_on_its_port(tmp_path: Path) -> None:
    failed = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    service = ServiceProcess("second", failed, tmp_path / "second.log", ready=lambda: not service.running)
    with pytest.raises(ServiceFailed, match="ended before it was ready; it said:\nthe port is taken"):
        service.start()


def test_a_paused_service_does_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    file = tmp_path / "count"
    service = ServiceProcess(
        name="one that counts",
        command=[sys.executable, "-c", COUNTING, str(file)],
        output=tmp_path / "output",
        ready=file.exists,
        endpoints={},
    )
    service.start()
    try:
        service.pause()
        seen = file.read_text()
        service.pause()
        assert file.read_text() == seen
        service.resume()
        while file.read_text() in ("", seen):
            assert service.running
    finally:
        service.kill()
