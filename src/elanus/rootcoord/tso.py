"""The timestamp oracle in operation: the arithmetic of `elanus.core.oracle`, a clock, and a persisted bound.

`TimestampOracle.allocate` may be called from any thread and returns at once, because a background
task moves the persisted bound ahead of need. A request gets its timestamp after it has arrived; nothing is
prefetched.
"""

from __future__ import annotations

import asyncio
import threading

import msgspec
import structlog

from elanus.core.clock import Clock
from elanus.core.errors import Unavailable
from elanus.core.oracle import Oracle, Pace
from elanus.core.timestamps import Timestamp
from elanus.meta.port import MetaStore, Put
from elanus.meta.tasks import cancel_and_wait

_KEY = "rootcoord/timestamp"
_log = structlog.get_logger("rootcoord")


class TimestampOracle:
    """``window_ms``: how far ahead the bound is persisted; ``update_ms``: how often that is checked."""

    def __init__(self, meta: MetaStore, clock: Clock, *, window_ms: int, update_ms: int) -> None:
        self._meta = meta
        self._clock = clock
        self._window_ms = window_ms
        self._update_s = update_ms / 1000
        self._lock = threading.Lock()
        self._oracle = Oracle(0)
        self._pace = Pace(0, clock.monotonic_s())
        self._refusal = ""
        """Why the bound was not persisted at the last attempt."""
        self._task: asyncio.Task[None] | None = None

    async def saved_bound_ms(self) -> int:
        """Return the persisted bound: every timestamp that was handed out is below it. 0: there is none."""
        saved = await self._meta.get(_KEY)
        return msgspec.json.decode(saved.value, type=int) if saved else 0

    async def start(self, used_until_ms: int = 0) -> None:
        """Read the persisted bound and start above it.

        ``used_until_ms``: timestamps up to this millisecond are in use, whatever the metadata says.
        """
        bound_ms = max(await self.saved_bound_ms(), used_until_ms + 1 if used_until_ms else 0)
        self._oracle = Oracle(bound_ms)
        self._pace = Pace(bound_ms, self._clock.monotonic_s())
        await self._extend()
        self._task = asyncio.create_task(self._run(), name="tso")

    async def stop(self) -> None:
        await cancel_and_wait(self._task)

    def allocate(self, count: int = 1) -> Timestamp:
        """Return the first of ``count`` consecutive timestamps.

        Raises `Unavailable` when the bound could not be moved in time (the metadata store is stuck).
        """
        with self._lock:
            ts = self._oracle.allocate(count, self._now_ms())
        if ts is None:
            why = f" ({self._refusal})" if self._refusal else ""
            raise Unavailable(f"the timestamp oracle waits for its metadata store{why}; retry")
        return ts

    def _now_ms(self) -> int:
        return self._pace.now_ms(self._clock.wall_ms(), self._clock.monotonic_s())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._update_s)
            try:
                await self._extend()
                self._refusal = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, it may pass: without a bound all stops
                why = f"{type(error).__name__}: {error}"
                if why != self._refusal:  # once for each cause: it may last for hours
                    _log.error("timestamp bound not persisted", error=why)
                self._refusal = why

    async def _extend(self) -> None:
        with self._lock:
            bound_ms = self._oracle.bound_wanted_ms(self._now_ms(), self._window_ms)
        if bound_ms is None:
            return
        await self._meta.txn([Put(_KEY, msgspec.json.encode(bound_ms))])
        with self._lock:
            self._oracle.bound_persisted(bound_ms)
