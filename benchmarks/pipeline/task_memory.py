"""The memory of Spark's tasks: of the Python workers, which do the work of each job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

PIPELINE = "elanus.pipeline.daemon"
USERS = "pyspark.daemon"
"""The modules that workers are forked from, for Elanus' own jobs and for a user's Spark session."""
_MB = 1_000_000
_SAMPLE_S = 0.1


class TaskMemory:
    """The most resident memory that any one Python worker below a process was seen to have.

    ``most_mb``: in units of 10⁶ bytes. The libraries that workers share are counted in each. ``above``: the
    process, by default this one. ``daemon``: what the workers are forked from.
    """

    def __init__(self, above: psutil.Process | None = None, daemon: str = PIPELINE) -> None:
        self._here = above or psutil.Process()
        self._daemon = daemon
        self.most_mb = 0.0

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_SAMPLE_S)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again within the context, in a thread."""
        ends = threading.Event()

        def work() -> None:
            while not ends.wait(_SAMPLE_S):
                self.look()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def look(self) -> None:
        for process in self._here.children(recursive=True):
            try:
                if self._daemon in process.cmdline():
                    self.most_mb = max(self.most_mb, process.memory_info().rss / _MB)
            except psutil.NoSuchProcess:
                continue
