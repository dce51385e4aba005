"""The benchmark's view of a system: how its clients start and how its server lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from benchmarks.processes import Usage


@dataclass(frozen=True)
class Place:
    """Where one system keeps what it writes during a run.

    Attributes:
        folder: its own folder; removed after the run.
        vectors: folder of the run's arrays, shared by all systems.
    """

    folder: Path
    vectors: Path

    @property
    def data(self) -> Path:
        """The server's data directory."""
        return self.folder / "data"

    @property
    def server_log(self) -> Path:
        """Output of the server."""
        return self.folder / "server.log"

    @property
    def client_log(self) -> Path:
        """Standard error of its clients."""
        return self.folder / "client.log"


class System(Protocol):
    """Something that stores vectors and finds the nearest."""

    @property
    def name(self) -> str:
        """Key in the results, such as ``milvus``."""

    @property
    def version(self) -> str:
        """Release measured, and of the client where that differs."""

    def worker_command(self) -> list[str]:
        """Arguments that start one client process."""

    def close(self) -> None:
        """End everything that was started for this system."""


@runtime_checkable
class Server(System, Protocol):
    """A system that runs as a process of its own behind the Milvus protocol."""

    def start(self) -> None:
        """Start the server on its data directory; does not wait for it to answer."""

    def crash(self) -> None:
        """Kill every process of the server at once."""

    def check_running(self) -> None:
        """Raise `RuntimeError` with the end of the log when the server has ended by itself."""

    def usage(self) -> Usage:
        """CPU and memory of the server's process tree, by role."""

    @property
    def roles(self) -> Sequence[str]:
        """Names under which `usage` counts."""
