"""Keep the pipeline process running: start it in the background, restart it when it dies.

The child ends with its parent: its standard input is a pipe that only the parent holds open. The child cannot
reach the metadata, so the parent holds its session there, from the child's start to its end; datacoord
therefore learns of its end at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

import structlog

from elanus.core.errors import ElanusError
from elanus.meta.session import Session

_STOP_GRACE_S = 10.0
_STEADY_S = 60.0
"""A process that ran this long resets the back-off."""
_log = structlog.get_logger("supervisor")


async def end_child(process: asyncio.subprocess.Process, what: str) -> None:
    """Have a child end by closing its standard input, and kill it if it does not. ``what``: for the log."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_GRACE_S):
            await process.wait()
    except TimeoutError:
        _log.warning(f"{what} killed: it did not end in time", pid=process.pid)
        process.kill()
        await process.wait()


class PipelineSupervisor:
    """Starts the pipeline process and restarts it when it ends.

    ``join`` registers the process that is about to start; ``restarted`` is called at each restart, for
    the metrics.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        join: Callable[[], Awaitable[Session]],
        backoff_ms: int,
        backoff_max_ms: int,
        restarted: Callable[[], None],
    ) -> None:
        self._arguments = arguments
        self._join = join
        self._backoff_s = backoff_ms / 1000
        self._backoff_max_s = backoff_max_ms / 1000
        self._restarted = restarted
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="pipeline supervisor")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._process is not None:
            await end_child(self._process, "pipeline process")

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._backoff_s
        while True:
            started = loop.time()
            try:
                session = await self._join()
            except ElanusError as error:
                _log.warning("pipeline process waits for its session", error=error.message)
                await asyncio.sleep(wait_s)
                continue
            try:
                code = await self._run(session)
            finally:
                await session.close()
            if loop.time() - started >= _STEADY_S:
                wait_s = self._backoff_s
            self.restarts += 1
            self._restarted()
            _log.warning("pipeline process ended; restarting it", code=code, wait_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, self._backoff_max_s)

    async def _run(self, session: Session) -> int | None:
        """Run one process until it or its session ends: without a session it may not do anything."""
        arguments = (*self._arguments, f"--node-id={session.node_id}")
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "elanus", "pipeline", *arguments, stdin=asyncio.subprocess.PIPE
        )
        ended = asyncio.ensure_future(process.wait())
        lost = asyncio.ensure_future(session.lost.wait())
        try:
            await asyncio.wait((ended, lost), return_when=asyncio.FIRST_COMPLETED)
            await end_child(process, "pipeline process")
        finally:
            for waiting in (ended, lost):
                waiting.cancel()
        self._process = None
        return process.returncode
