"""Raw faiss: the same index in the client's own process, as the limit that no server can pass."""

from __future__ import annotations

import os
import sys

import faiss

from benchmarks.systems.protocol import Place


class FaissSystem:
    """No server: every worker holds its own copy of the graph."""

    name = "faiss"

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def version(self) -> str:
        """The version of the library imported here."""
        return str(faiss.__version__)

    def worker_command(self) -> list[str]:
        """A faiss worker that may use every core for a build or a batch."""
        threads = str(os.cpu_count() or 1)
        command = [sys.executable, "-m", "benchmarks.worker", "--data", str(self._place.vectors)]
        return [*command, "faiss", "--folder", str(self._place.folder), "--threads", threads]

    def close(self) -> None:
        """Nothing runs between calls."""
