"""A whole server under test: `elanus serve` as a child process that can be stopped, killed and restarted.

It listens on free loopback ports and keeps its data in the given directory. Its output goes to a file
next to the data directory; `conftest` shows the end of it when a test fails. No process outlives
a test: the children of a killed server must end by themselves, and that is checked.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
from pymilvus import MilvusClient
from spark_classes import lend

from elanus.cli import remote
from elanus.server.announce import find

T = TypeVar("T")

START_DEADLINE_S = 180.0
SPARK_DEADLINE_S = 280.0
STOP_DEADLINE_S = 30.0
ORPHANS_DEADLINE_S = 15.0
POLL_S = 0.02

ROLES = ("rootcoord", "datacoord", "indexcoord", "querynode", "querycoord", "proxy")

QUICK: Mapping[str, object] = {
    "proxy.port": 0,
    "metrics.port": 0,
    "http.port": 0,
    "logging.level": "info",
    "pipeline.driver_memory_mb": 512,
    "pipeline.spark_master": "local[2]",
    "pipeline.restart_backoff_ms": 50,
    "pipeline.nice": 0,
}
"""Settings of every server under test: little memory, and a pipeline that comes back at once. The pipeline
does not make way for others: among several tests that compute, it would come up after minutes."""


def until(condition: Callable[[], T], deadline_s: float, what: str, poll_s: float = POLL_S) -> T:
    """The first true value of the condition. Fails the test, saying ``what``, when there is none in time."""
    deadline = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s:g} s: {what} (last: {value!r})")
        time.sleep(poll_s)


def fresh_timestamp(client: MilvusClient) -> int:
    """From the server's oracle."""
    return int(client._get_connection().alloc_timestamp())


def as_of(moment: int) -> dict[str, object]:
    """The arguments that pin a query to a moment of the past."""
    return {"iterator": "True", "guarantee_timestamp": moment}


class Server:
    """One data directory and the server on it. ``settings``: dotted names, as ``--set`` takes them."""

    running: list[Server] = []  # noqa: RUF012 - every server that has been started, for the report of a failure

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        self.data_dir = data_dir
        self.settings = {**QUICK, **(settings or {})}
        self.output_file = data_dir.with_name(data_dir.name + ".log")
        self.address = ""
        self.other_addresses: tuple[str, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[MilvusClient] = []

    # its life

    def start(self) -> Server:
        """Start and wait until it answers."""
        process = self.spawn()
        announced = until(lambda: self._announced(process), START_DEADLINE_S, "the server announces itself")
        self.address, self.other_addresses = announced.address, announced.other_addresses
        return self

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start without waiting."""
        assert self._process is None, "it runs already"
        Server.running.append(self)
        if self._has_spark:
            lend(self.data_dir / "scratch")
        with self.output_file.open("ab") as output:
            self._process = subprocess.Popen(self.command(), stdout=output, stderr=output)
        return self._process

    @property
    def _has_spark(self) -> bool:
        return str(self.settings.get("pipeline.enabled")).lower() != "false"

    def command(self) -> list[str]:
        """How it is started."""
        assignments = [part for item in self.settings.items() for part in ("--set", "{}={}".format(*item))]
        return [sys.executable, "-m", "elanus", "serve", "--data-dir", str(self.data_dir), *assignments]

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Ask it to stop; it must end with exit code 0 and leave no process. The seconds it took."""
        process = self._taken()
        family = _descendants(process.pid)
        began = time.monotonic()
        process.send_signal(number)
        try:
            code = process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            _end(process, family)
            raise AssertionError(f"it had not stopped after {STOP_DEADLINE_S:g} s") from None
        took_s = time.monotonic() - began
        _expect_gone(family)
        assert code == 0, f"exit code {code} after signal {number}"
        return took_s

    def kill(self) -> None:
        """``kill -9`` the online process. The pipeline process must end by itself."""
        process = self._taken()
        family = _descendants(process.pid)
        process.kill()
        process.wait()
        _expect_gone(family)

    def kill_pipeline(self) -> int:
        """``kill -9`` the pipeline process; the supervisor starts another. The killed one's process id."""
        child = self.pipeline_process()
        family = child.children(recursive=True)
        child.kill()
        until(lambda: self.pipeline_pid != child.pid, START_DEADLINE_S, "the death is noticed")
        _expect_gone(family)
        return child.pid

    def kill_both(self) -> None:
        """``kill -9`` both processes at once, the pipeline first."""
        process = self._taken()
        family = _descendants(process.pid)
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
        process.wait()
        _expect_gone(family)

    def restart(self) -> Server:
        """A clean stop and a start."""
        self.stop()
        return self.start()

    def restart_role(self, role: str) -> None:
        """Replace one role inside the online process; returns when it serves again."""
        remote.restart_role(self.observe_url, role)

    def close(self) -> None:
        """End whatever is left of it, without asking. For finalizers."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._process is not None:
            process = self._taken()
            _end(process, _descendants(process.pid))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # what it shows

    @property
    def uri(self) -> str:
        return f"http://{self.address}"

    @property
    def uris(self) -> list[str]:
        """Of every proxy."""
        return [f"http://{address}" for address in (self.address, *self.other_addresses)]

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def observe_url(self) -> str:
        announced = find(self.data_dir)
        assert announced is not None
        return announced.observe_url

    @property
    def http_url(self) -> str:
        """The REST API's."""
        announced = find(self.data_dir)
        assert announced is not None
        return announced.http_url

    @property
    def pipeline_pid(self) -> int | None:
        pid: int | None = self._pipeline()["pid"]
        return pid

    def pipeline_process(self) -> psutil.Process:
        """The running pipeline process, whether Spark is up in it or not."""
        pid = until(lambda: self.pipeline_pid, START_DEADLINE_S, "the pipeline process runs")
        return psutil.Process(pid)

    def status(self) -> dict[str, Any]:
        """The answer of ``/status``."""
        return msgspec.json.decode(remote.get(self.observe_url + "/status"), type=dict[str, Any])

    def _pipeline(self) -> dict[str, Any]:
        pipeline: dict[str, Any] = self.status()["pipeline"]
        return pipeline

    def wait_for_spark(self) -> Server:
        """Until the pipeline process takes orders."""
        until(lambda: self._pipeline()["state"] == "Healthy", SPARK_DEADLINE_S, "Spark is up", poll_s=0.1)
        return self

    def client(self, proxy: int = 0, **arguments: Any) -> MilvusClient:
        """A client of this server's n-th proxy, closed with the server."""
        client = MilvusClient(self.uris[proxy], **arguments)
        self._clients.append(client)
        return client

    def output(self) -> str:
        return self.output_file.read_text(errors="replace") if self.output_file.exists() else ""

    def _announced(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.poll() is None, f"it ended with exit code {process.returncode}"
        announced = find(self.data_dir)
        # a killed server leaves its announcement behind, with its own process id
        return announced if announced is not None and announced.pid == process.pid else None

    def _taken(self) -> subprocess.Popen[bytes]:
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        Server.running.remove(self)
        return process


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _expect_gone(family: list[psutil.Process]) -> None:
    """The processes end by themselves; those that do not are ended, and fail the test."""
    deadline = time.monotonic() + ORPHANS_DEADLINE_S
    while (alive := [process for process in family if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for process in alive:
        process.kill()
    assert not alive, f"outlived its server by {ORPHANS_DEADLINE_S:g} s: {alive}"


def _lives(process: psutil.Process) -> bool:
    try:
        # one that has ended stays a zombie until the process that inherited it looks
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _end(process: subprocess.Popen[bytes], family: list[psutil.Process]) -> None:
    for member in [process, *family]:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
    psutil.wait_procs(family, timeout=ORPHANS_DEADLINE_S)
