"""Zeros for a search's scores, one array per thread: to make it again costs more than a short search."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from elanus.index.hits import Scores


class Scratch:
    """Arrays of zeros that go from search to search of a thread. Four bytes for each row of its largest."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def zeros(self, rows: int) -> Iterator[Scores]:
        """Yields float32 (rows,), which the caller leaves as zeros. After an error they are dropped."""
        kept: Scores | None = getattr(self._of_thread, "scores", None)
        self._of_thread.scores = None
        scores = np.zeros(rows, dtype=np.float32) if kept is None or len(kept) < rows else kept
        yield scores[:rows]
        self._of_thread.scores = scores


SCRATCH = Scratch()
