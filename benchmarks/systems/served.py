"""A Milvus-compatible server on loopback: what all three have in common."""

from __future__ import annotations

import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

import psutil

from benchmarks.processes import ServerProcess, Usage
from benchmarks.systems.protocol import Place

HOST = "127.0.0.1"


class ServedSystem(ABC):
    """Starts, kills and looks at one server process; subclasses say which.

    Attributes:
        name: key in the results.
        roles: names under which `usage` counts the processes of the tree.
        stop_grace_s: how long the server gets to end by itself after SIGTERM.
    """

    name: str
    roles: Sequence[str] = ("server",)
    stop_grace_s = 20.0

    def __init__(self, place: Place) -> None:
        self._place = place
        self._process: ServerProcess | None = None
        self._port = free_port()

    @property
    @abstractmethod
    def version(self) -> str:
        """Release measured."""

    @abstractmethod
    def server_command(self) -> list[str]:
        """Arguments that start the server."""

    def worker_python(self) -> str:
        """Interpreter that holds the client library for this server."""
        return sys.executable

    def role_of(self, process: psutil.Process) -> str:
        """Role of one process of the tree."""
        return self.roles[0]

    def inside(self, command: list[str]) -> list[str]:
        """Wrap a command so that it runs where the server can be reached; loopback needs nothing."""
        return command

    def start(self) -> None:
        """Start the server on its data directory."""
        self._place.data.mkdir(parents=True, exist_ok=True)
        command = self.inside(self.server_command())
        self._process = ServerProcess(command, self._place.server_log, self.role_of)

    def crash(self) -> None:
        """Kill every process of the server at once.

        The next start uses another port: the kernel keeps this one for the connections that were cut, and
        Milvus's launcher refuses to start on it.
        """
        self._running().kill()
        self._process = None
        self._port = free_port()

    def close(self) -> None:
        """Stop the server if it runs."""
        if self._process is not None:
            self._process.stop(self.stop_grace_s)
            self._process = None

    def check_running(self) -> None:
        """Raise `RuntimeError` with the end of the log when the server has ended by itself."""
        self._running().check_running()

    def usage(self) -> Usage:
        """CPU and memory of the process tree now."""
        return self._running().usage()

    def worker_command(self) -> list[str]:
        """A pymilvus worker for this server's address."""
        vectors, port = str(self._place.vectors), str(self._port)
        command = [self.worker_python(), "-m", "benchmarks.worker", "--data", vectors]
        return self.inside([*command, "milvus", "--host", HOST, "--port", port])

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process


def free_port() -> int:
    """A TCP port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
