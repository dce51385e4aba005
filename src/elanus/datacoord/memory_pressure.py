"""Sealing under memory pressure: datacoord follows the growing data of the query nodes.

The figure is the one by which proxies slow and refuse writes: what the query nodes report to querycoord.
Datacoord alone knows which of their segments are sealed already. It seals the largest of the others
(`elanus.core.growing_memory`), and proxies learn from it how much is on its way out of memory.

While the growing data is within the soft limit, a look is one call that returns one number.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from elanus.api.querycoord import QueryCoordApi
from elanus.core.errors import ElanusError
from elanus.core.growing_memory import in_flight_bytes, segments_to_seal
from elanus.core.segments import SegmentState
from elanus.datacoord.context import DataContext
from elanus.datacoord.flushing import Flushing

_CAUSE = "memory"
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """``growing_soft_bytes``: the growing data of a query node above which segments are sealed; 0: none are.
    ``look_interval_s``: how often it is compared."""

    growing_soft_bytes: int
    look_interval_s: float


class MemoryPressure:
    """Implements `elanus.api.datacoord.MemoryCalls`."""

    def __init__(
        self, context: DataContext, flushing: Flushing, query: QueryCoordApi, policy: MemoryPolicy
    ) -> None:
        self._state = context.state
        self._lock = context.lock
        self._flushing = flushing
        self._query = query
        self._policy = policy
        self._flushing_bytes = 0

    async def flushing_bytes(self) -> int:
        return self._flushing_bytes

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._policy.look_interval_s)
            try:
                await self._seal_if_needed()
            except ElanusError as error:
                _log.info("growing data not known", error=error.message)
            except Exception:  # noqa: BLE001 - without this loop, writes are refused until segments are idle
                _log.exception("segments not sealed for memory")

    async def _seal_if_needed(self) -> None:
        if await self._query.growing_bytes() <= self._policy.growing_soft_bytes:
            self._flushing_bytes = 0
            return
        nodes = await self._query.growing_memory()
        growing = {s.segment_id for s in self._state.unflushed() if s.state is SegmentState.GROWING}
        for memory in nodes:
            chosen = segments_to_seal(memory, growing, self._policy.growing_soft_bytes)
            if chosen:
                async with self._lock:
                    await self._flushing.seal_for(_CAUSE, chosen)
                growing.difference_update(chosen)
        self._flushing_bytes = max((in_flight_bytes(memory, growing) for memory in nodes), default=0)
