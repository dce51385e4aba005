"""The threads of a process, one small pool for each purpose (`elanus.core.offload.Pools`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from elanus.core.offload import Offload, Pools

_THREADS = {
    "encoding": 2,
    "loading": 4,
    "deletes": 2,
    "arrivals": 1,
    "interim": 1,
    "files": 4,
    "delta_logs": 1,
}
"""How many threads each purpose has at most. A pool starts threads only as they are needed."""


class ProcessThreads:
    """``pools``: where work of each purpose runs. Threads are named after their purpose."""

    def __init__(self) -> None:
        self._executors = {
            purpose: ThreadPoolExecutor(threads, thread_name_prefix=f"elanus-{purpose}")
            for purpose, threads in _THREADS.items()
        }
        self.pools = Pools(**{purpose: offload_to(executor) for purpose, executor in self._executors.items()})

    def shutdown(self) -> None:
        """Wait until all work has ended, and end the threads."""
        for executor in self._executors.values():
            executor.shutdown()


def offload_to(executor: ThreadPoolExecutor) -> Offload:
    """Return a way to run blocking work in these threads."""

    async def offload(function: Callable[..., Any], /, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(executor, partial(function, *args))

    return offload
