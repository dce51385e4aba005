"""Keep a standalone's data node running: start it in the background, start it again when its Spark dies.

Each start has a session of its own in the metadata, so datacoord learns of an end at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from elanus.core.errors import ElanusError
from elanus.meta.session import Session

_STEADY_S = 60.0
"""A data node that ran this long resets the back-off."""
_log = structlog.get_logger("supervisor")


class Supervised(Protocol):
    """What is kept running."""

    @property
    def pid(self) -> int | None:
        """Of its pipeline process, if there is one."""
        ...

    async def run(self, session: Session) -> None:
        """Run until cancelled, or until it ends by itself; raises the error that it ended with."""
        ...


class PipelineSupervisor:
    """Runs a data node, and runs it again when it ends.

    ``join`` registers the one that is about to start; ``restarted`` is called at each restart, for the
    metrics.
    """

    def __init__(
        self,
        supervised: Supervised,
        join: Callable[[], Awaitable[Session]],
        backoff_ms: int,
        backoff_max_ms: int,
        restarted: Callable[[], None],
    ) -> None:
        self._supervised = supervised
        self._join = join
        self._backoff_s = backoff_ms / 1000
        self._backoff_max_s = backoff_max_ms / 1000
        self._restarted = restarted
        self._task: asyncio.Task[None] | None = None
        self._running = False
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Of the pipeline process; ``None`` while there is none, because Spark sleeps or has died."""
        return self._supervised.pid if self._running else None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="pipeline supervisor")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._backoff_s
        while True:
            started = loop.time()
            try:
                session = await self._join()
            except ElanusError as error:
                _log.warning("data node waits for its session", error=error.message)
                await asyncio.sleep(wait_s)
                continue
            try:
                cause = await self._run(session)
            finally:
                await session.close()
            if loop.time() - started >= _STEADY_S:
                wait_s = self._backoff_s
            self._restarted()
            _log.warning("data node ended; restarting it", cause=cause, wait_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, self._backoff_max_s)

    async def _run(self, session: Session) -> str:
        """Run until it or its session ends: without a session it may not do anything. Returns the cause."""
        running = asyncio.ensure_future(self._supervised.run(session))
        lost = asyncio.ensure_future(session.lost.wait())
        self._running = True
        try:
            await asyncio.wait((running, lost), return_when=asyncio.FIRST_COMPLETED)
            cause = "its session was lost" if not running.done() else "Spark ended"
        finally:
            for waiting in (running, lost):
                waiting.cancel()
            (ended, _) = await asyncio.gather(running, lost, return_exceptions=True)
            self._running = False
            self.restarts += 1
        if isinstance(ended, Exception):
            cause = f"{type(ended).__name__}: {ended}"
        return cause
