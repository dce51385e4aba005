"""The figures of growing data that back-pressure uses, fetched from the coordinators once a second.

The sum of a node is one number. Which collections have how much of it, and how much is being flushed, grows
with the number of collections. It matters above the soft limit only, and is fetched from half of that on.
"""

from __future__ import annotations

import asyncio

import structlog

from elanus.api.datacoord import MemoryCalls
from elanus.api.querycoord import QueryCoordApi
from elanus.core.errors import ElanusError
from elanus.proxy.verbs.pressure import GrowingData

_LOOK_S = 1.0
_log = structlog.get_logger("backpressure")


class GrowingWatch:
    """``latest``: the figures of the last look."""

    def __init__(self, query: QueryCoordApi, data: MemoryCalls, soft_bytes: int) -> None:
        self._query = query
        self._data = data
        self._soft_bytes = soft_bytes
        self.latest = GrowingData(0)

    async def run(self) -> None:
        """Fetch the figures until cancelled. While a coordinator is away, the last figures count."""
        while True:
            try:
                self.latest = await self._fetch()
            except ElanusError as error:
                _log.info("growing data not known", error=error.message)
            await asyncio.sleep(_LOOK_S)

    async def _fetch(self) -> GrowingData:
        total_bytes = await self._query.growing_bytes()
        if total_bytes <= self._soft_bytes // 2:
            return GrowingData(total_bytes)
        collections = await self._query.growing_collections()
        return GrowingData(total_bytes, collections, await self._data.flushing_bytes())
