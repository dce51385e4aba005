"""The development services: they start, come back on the same port with their data, and never stay behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.process import ServiceFailed, ServiceProcess, free_port
from elanus.devcluster.swift import Swift
from elanus.storage.objects import open_store

pytestmark = pytest.mark.services

TIMEOUT_S = 30


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def listening(address: str) -> bool:
    host, _, port = address.removeprefix("nats://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


class Command:
    """``elanus dev-cluster`` as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "elanus", "dev-cluster", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.addresses: dict[str, str] = {}
        self.said = ""

    def wait_ready(self) -> Command:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if found := re.fullmatch(r"(\w+) +(\S+)\n", line):
                self.addresses[found[1]] = found[2]
            if line.startswith("ready"):
                self.children = psutil.Process(self.process.pid).children(recursive=True)
                return self
        raise AssertionError(self.said)

    def close(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> int:
        rest, _ = self.process.communicate(timeout=TIMEOUT_S)
        self.said += rest
        return self.process.returncode


@pytest.fixture
def command() -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.parametrize("service", [Etcd, Nats])
@pytest.mark.parametrize("end", [ServiceProcess.stop, ServiceProcess.kill])
def test_a_service_comes_back_where_it_was(
    service: Callable[[Path], ServiceProcess], end: Callable[[ServiceProcess], None], tmp_path: Path
) -> None:
    started = service(tmp_path)
    (address,) = started.endpoints.values()
    for _ in range(2):
        started.start()
        assert started.running
        assert listening(address)
        end(started)
        assert not started.running
        assert not listening(address)


def test_objects_outlive_the_death_of_their_server(tmp_path: Path) -> None:
    server = Swift(tmp_path)
    store = open_store(server.store_url("data"))
    server.start()
    store.put("a/one", b"content")
    server.kill()
    server.start()
    assert store.get("a/one").to_pybytes() == b"content"
    server.stop()
    again = Swift(tmp_path)  # with other ports and keys, as after a restart of the command
    again.start()
    assert open_store(again.store_url("data")).get("a/one").to_pybytes() == b"content"
    again.stop()


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('the disk is on fire'); raise SystemExit(3)"]
    service = ServiceProcess("doomed", command, tmp_path / "doomed.log", lambda: False)
    with pytest.raises(ServiceFailed, match=r"doomed ended.*\n.*disk is on fire"):
        service.start()


def test_a_service_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    service = ServiceProcess("idle", ["sleep", "1000"], tmp_path / "idle.log", lambda: False)
    service.launch()
    pid = service.pid
    with pytest.raises(ServiceFailed, match=r"idle was not ready after 0\.1 s"):
        service.wait_ready(0.1)
    service.stop()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_paused_service_stands_still_and_goes_on(tmp_path: Path) -> None:
    service = ServiceProcess("idle", ["sleep", "1000"], tmp_path / "idle.log", lambda: True)
    service.start()
    process = psutil.Process(service.pid)
    service.pause()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    service.resume()
    wait_until(lambda: process.status() != psutil.STATUS_STOPPED)
    service.pause()
    service.stop()
    assert not process.is_running()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_stops_what_it_started_and_leaves_no_files(
    command: Callable[..., Command], ending: signal.Signals
) -> None:
    running = command("--with", "etcd,nats,s3").wait_ready()
    assert set(running.addresses) == {"etcd", "nats", "s3"}
    assert listening(running.addresses["etcd"])
    assert listening(running.addresses["nats"])
    open_store(running.addresses["s3"]).check()
    assert len(running.children) == 3
    running.process.send_signal(ending)
    assert running.end() == 0
    assert not any(child.is_running() for child in running.children)
    directory = re.search(r"ready in (\S+);", running.said)
    assert directory is not None
    assert not Path(directory[1]).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_the_services_end_with_a_command_that_is_killed(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    running = command("--dir", str(tmp_path), "--with", "etcd,nats").wait_ready()
    running.process.kill()
    running.end()
    wait_until(lambda: not any(child.is_running() for child in running.children))


def test_a_service_that_is_killed_is_reported_and_comes_back_on_its_own(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    running = command("--dir", str(tmp_path), "--with", "etcd,nats").wait_ready()
    (nats,) = [child for child in running.children if "nats" in child.name()]
    (etcd,) = [child for child in running.children if "etcd" in child.name()]
    os.kill(nats.pid, signal.SIGKILL)
    assert running.process.stdout is not None
    for line in running.process.stdout:
        running.said += line
        if "nats is ready again" in line:
            break
    assert "nats has ended by signal 9; started again in 1 s" in running.said
    assert listening(running.addresses["nats"])
    assert etcd.is_running(), "the others went on"
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0


def test_an_unknown_service_is_refused_by_name(command: Callable[..., Command], tmp_path: Path) -> None:
    running = command("--dir", str(tmp_path), "--with", "etcd,kafka")
    output, _ = running.process.communicate(timeout=TIMEOUT_S)
    assert running.process.returncode == 1
    assert "no service 'kafka'" in output
    assert list(tmp_path.iterdir()) == []


def test_a_free_port_is_one_that_nobody_listens_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert free_port() not in (0, taken.getsockname()[1])
