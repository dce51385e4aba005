"""The memory of Spark's tasks: of the Python workers, which do the work of each job."""

from __future__ import annotations

import asyncio

import psutil

_DAEMON = "elanus.pipeline.daemon"
_MB = 1_000_000
_SAMPLE_S = 0.1


class TaskMemory:
    """The most resident memory that any one Python worker below a process was seen to have.

    ``most_mb``: in units of 10⁶ bytes. The libraries that workers share are counted in each. ``above``: the
    process, by default this one.
    """

    def __init__(self, above: psutil.Process | None = None) -> None:
        self._here = above or psutil.Process()
        self.most_mb = 0.0

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_SAMPLE_S)

    def look(self) -> None:
        for process in self._here.children(recursive=True):
            try:
                if _DAEMON in process.cmdline():
                    self.most_mb = max(self.most_mb, process.memory_info().rss / _MB)
            except psutil.NoSuchProcess:
                continue
