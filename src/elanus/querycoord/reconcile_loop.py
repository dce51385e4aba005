"""When a loaded collection is reconciled: whenever something has changed, and again after a failure.

A failure is tried again after a pause that doubles each time. News shorten the pause, but never below the
first one: a collection that fails at once must not keep the coordinator busy.

A round looks at every segment of the collection, and thousands of segments may change one after the other, as
their indexes are built. So a round over many segments is followed by a rest, in which changes gather: about
four times as long as the round.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID
from elanus.meta.tasks import cancel_and_wait
from elanus.rpc.tracing import untraced

_RETRY_PAUSE_S = 0.5
_RETRY_PAUSE_MAX_S = 15.0
_MANY_SEGMENTS = 200
_REST_S_PER_SEGMENT = 0.00015
"""Four times what a round takes per segment."""
_log = structlog.get_logger("querycoord")


class ReconcileLoop:
    """``reconcile`` is called in turns until it raises `CollectionNotFound`, or `stop`. It returns how many
    segments it has looked at."""

    def __init__(self, collection_id: CollectionID, reconcile: Callable[[], Awaitable[int]]) -> None:
        self._collection_id = collection_id
        self._reconcile = reconcile
        self._wake = asyncio.Event()
        self._wake.set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = untraced(self._run(), f"load {self._collection_id}")

    def wake(self) -> None:
        """Something has changed: reconcile now, or after the shortest pause if the last attempt failed."""
        self._news.set()
        self._wake.set()

    def reconcile_again(self) -> None:
        """Reconcile again: what is served is not what it should be. A pause after a failure still applies."""
        self._wake.set()

    async def stop(self) -> None:
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        pause_s = _RETRY_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._news.clear()
            try:
                segments = await self._reconcile()
            except CollectionNotFound:
                return
            except Exception as error:  # noqa: BLE001 - an unreadable file must not end the load forever
                _log.warning(
                    "load incomplete; trying again", collection=self._collection_id, error=text_of(error)
                )
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _RETRY_PAUSE_MAX_S)
                self._wake.set()
            else:
                pause_s = _RETRY_PAUSE_S
                if segments >= _MANY_SEGMENTS:
                    await asyncio.sleep(segments * _REST_S_PER_SEGMENT)

    async def _pause(self, pause_s: float) -> None:
        """Back off after a failure. `wake` shortens the pause, but never below the first one."""
        await asyncio.sleep(_RETRY_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s - _RETRY_PAUSE_S):
                await self._news.wait()


def text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
