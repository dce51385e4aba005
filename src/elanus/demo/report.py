"""The demo's output while it runs: one line per step, with its duration and its outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status

_NAME_CHARS = 38


@dataclass(slots=True)
class Step:
    """A step in progress. ``outcome`` is the text that its line will show."""

    name: str
    display: Status
    outcome: str = ""

    def progress(self, text: str) -> None:
        """Show the progress of the step, if the output is a terminal."""
        self.display.update(f"{self.name}: {text}")


class Report:
    """A table that grows as the steps end. On a terminal, the current step is an animated line."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._started = time.perf_counter()

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Time a step. A step that raises gets no line: the error names it."""
        started = time.perf_counter()
        with self._console.status(name) as display:
            step = Step(name, display)
            yield step
        self._line(name, time.perf_counter() - started, step.outcome)

    def end(self, outcome: str) -> None:
        self._line("all", time.perf_counter() - self._started, outcome)

    def _line(self, name: str, seconds: float, outcome: str) -> None:
        self._console.print(f"{name:<{_NAME_CHARS}} {seconds:7.2f} s  {outcome}", soft_wrap=True)
