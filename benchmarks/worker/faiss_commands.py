"""A worker's command for raw faiss only: pass its finished graph to the other workers."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.worker.commands import Command, Commands
from benchmarks.worker.engine import Vectors
from benchmarks.worker.faiss_engine import FaissEngine


class FaissCommands(Commands):
    """`Commands`, and saving the graph."""

    def __init__(self, engine: FaissEngine, vectors: Vectors) -> None:
        super().__init__(engine, vectors)
        self._save = engine.save

    def table(self) -> Mapping[str, Command]:
        """Call name → function."""
        return {**super().table(), "save": self._save}
