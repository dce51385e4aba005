"""One service process: start it, wait until it answers, end it.

Each service gets an OS session of its own, so that Ctrl-C in a terminal reaches only the process that started
it, which then ends its services in order. A service is ended by its own id (or its group's, if it starts
children), never by name. Output is written to a file, whose end is shown when the process dies before it is
ready.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from elanus.devcluster import die_with_parent as leash

READY_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.02
_OUTPUT_SHOWN_BYTES = 2000
_PORTS = range(20_000, 32_000)
"""Below the ports that systems hand out to outgoing connections, so that a service that is restarted
finds its port free."""
_PORT_ATTEMPTS = 200
_reserved_ports: list[int] = []
"""The locked files of `free_port`, open until this process ends."""


class ServiceFailed(Exception):
    """A service did not start or did not become ready. The text contains the end of its output."""


@dataclass
class ServiceProcess:
    """A service that can be started again after it was stopped or killed, on the same port and data.

    ``ready`` returns whether it answers; an `OSError` from it means no. ``output`` collects what it prints.
    ``endpoints`` contains its addresses by name.
    Start it from a thread that lives as long as the service (`elanus.devcluster.die_with_parent`).
    """

    name: str
    command: Sequence[str]
    output: Path
    ready: Callable[[], bool]
    endpoints: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """The process id; ``None`` when it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code if it ended on its own, or minus the signal's number; ``None`` otherwise."""
        return None if self._process is None else self._process.poll()

    @property
    def processes(self) -> Sequence[ServiceProcess]:
        """The service itself: it has one process."""
        return (self,)

    def launch(self) -> None:
        """Start the process without waiting for it. Does nothing when it is already running."""
        if self.running:
            return
        self.output.parent.mkdir(parents=True, exist_ok=True)
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *self.command]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                cwd=self.output.parent,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once it answers. Raises `ServiceFailed` if it ends or takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            answers = self.answers()
            if not self.running:  # what answered was then another process on its port
                raise ServiceFailed(f"{self.name} ended before it was ready{self._last_output()}")
            if answers:
                return
            if time.monotonic() > deadline_s:
                raise ServiceFailed(f"{self.name} was not ready after {timeout_s:g} s{self._last_output()}")
            time.sleep(_POLL_S)

    def start(self) -> None:
        """Launch it and wait until it is ready. If that fails, end it and raise `ServiceFailed`."""
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not. Does nothing when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it immediately, with no chance to save anything."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend it, like a machine that hangs; return when it is. `resume` lets it continue."""
        self._signal(signal.SIGSTOP)
        # On a busy machine its other threads go on until the one that takes the signal gets a processor.
        while (pid := self.pid) is not None and psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            time.sleep(_POLL_S)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def answers(self) -> bool:
        """Whether it is ready now."""
        try:
            return self.ready()
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:  # otherwise its id may belong to another process by now
            os.killpg(process.pid, how)
            os.killpg(process.pid, signal.SIGCONT)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _signal(self, what: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, what)

    def _last_output(self) -> str:
        if not self.output.exists():
            return ""
        return "; it said:\n" + self.output.read_bytes()[-_OUTPUT_SHOWN_BYTES:].decode(errors="replace")


def free_port() -> int:
    """Return a loopback port that nobody listens on now, and that no other call returns on this machine as
    long as this process lives: a service takes its port only seconds later, and takes it again after a
    restart. Raises `ServiceFailed` when none is found."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of so many consecutive ports, each like that of `free_port`."""
    chance = random.SystemRandom()
    for _ in range(_PORT_ATTEMPTS):
        first = chance.choice(_PORTS)
        ports = range(first, first + count)
        if all(_is_free(port) for port in ports) and all(_reserve(port) for port in ports):
            return first
    raise ServiceFailed(f"no free port found between {_PORTS.start} and {_PORTS.stop}")


def _is_free(port: int) -> bool:
    """Whether nobody listens on it."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _reserve(port: int) -> bool:
    """Lock the file that stands for a port; the system unlocks it when this process ends. Whether it was
    free."""
    directory = Path(tempfile.gettempdir()) / f"elanus-ports-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    file = os.open(directory / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _reserved_ports.append(file)
    return True


def http_ok(url: str, expected: str = "") -> bool:
    """Whether the URL answers 200 with the expected text in its body. An `OSError` means it does not."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return expected in answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        error.close()
        return False
