"""Keep a standalone's data node running: start it in the background, start it again when its Spark dies.

Each start has a session of its own in the metadata, so datacoord learns of an end at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from elanus.api.querycoord import LoadStatus
from elanus.core.errors import ElanusError
from elanus.core.faults import MetaFault
from elanus.meta.session import Session
from elanus.meta.tasks import cancel_and_wait

_STEADY_S = 60.0
"""A data node that ran this long resets the back-off."""
_LOADED_LIMIT_S = 2.0
_LOADED_LOOK_S = 0.05
_log = structlog.get_logger("supervisor")


class Supervised(Protocol):
    """The thing that is kept running."""

    @property
    def pid(self) -> int | None:
        """The id of its pipeline process, if there is one."""
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
        self.cause = ""
        """Why it ended the last time; "" if it never did."""

    @property
    def pid(self) -> int | None:
        """The id of the pipeline process; ``None`` while there is none, because Spark sleeps or has died."""
        return self._supervised.pid if self._running else None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="pipeline supervisor")

    async def stop(self) -> None:
        if self._task is None:
            return
        await cancel_and_wait(self._task)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._backoff_s
        refusal = ""
        while True:
            started = loop.time()
            try:
                session = await self._join()
            except (ElanusError, MetaFault) as error:
                if str(error) != refusal:  # once for each cause: a full disk may last for hours
                    refusal = str(error)
                    _log.warning("data node waits for its session", error=refusal)
                await asyncio.sleep(wait_s)
                continue
            refusal = ""
            try:
                cause = await self._run(session)
            finally:
                await session.close()
            if loop.time() - started >= _STEADY_S:
                wait_s = self._backoff_s
            self._restarted()
            self.cause = cause
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


class LatePipeline:
    """Implements `Supervised` by a data node that is made, and its modules imported, when clients are served.

    ``loads``: the collections that should be loaded. Those that were loaded before a restart come first:
    clients that query them wait, and jobs can wait. ``make`` runs in a thread.
    """

    def __init__(
        self,
        loads: Callable[[], Awaitable[Sequence[LoadStatus]]],
        make: Callable[[], Supervised],
        in_thread: Callable[[Callable[[], Supervised]], Awaitable[Supervised]] = asyncio.to_thread,
    ) -> None:
        self._loads = loads
        self._make = make
        self._in_thread = in_thread
        self._made: Supervised | None = None

    @property
    def pid(self) -> int | None:
        return None if self._made is None else self._made.pid

    async def run(self, session: Session) -> None:
        if self._made is None:
            await self._until_loaded()
            self._made = await self._in_thread(self._make)
        await self._made.run(session)

    async def _until_loaded(self) -> None:
        """Return when everything is loaded that should be, or after `_LOADED_LIMIT_S`."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + _LOADED_LIMIT_S
        while loop.time() < limit_s:
            try:
                loads = await self._loads()
            except ElanusError as error:
                _log.info("loads not known", error=error.message)
            else:
                if all(percent == 100 for load in loads for percent in load.percentages.values()):
                    return
            await asyncio.sleep(_LOADED_LOOK_S)
