"""Periodic balancing: the segments of each collection that has changed are spread evenly over its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from elanus.core.errors import ElanusError
from elanus.core.ids import CollectionID
from elanus.querycoord.fleet import Statuses
from elanus.querycoord.loader import CollectionLoader

_log = structlog.get_logger("querycoord")


class Balancing:
    """``loaders``: those of the loaded collections. ``statuses``: asks the nodes about one collection."""

    def __init__(
        self,
        loaders: Mapping[CollectionID, CollectionLoader],
        statuses: Callable[[CollectionID], Awaitable[Statuses]],
        interval_s: float,
    ) -> None:
        self._loaders = loaders
        self._statuses = statuses
        self._interval_s = interval_s
        self._changed: set[CollectionID] = set()
        """The collections that have changed since their segments were balanced."""

    def changed(self, collection_ids: Iterable[CollectionID]) -> None:
        """Note that the segments or the nodes of these collections may have changed."""
        self._changed.update(collection_ids)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            for collection_id in sorted(self._changed):
                loader = self._loaders.get(collection_id)
                try:
                    moves = loader.balance(await self._statuses(collection_id)) if loader else 0
                except ElanusError:
                    break  # no node answers, which `NodeWatch` logs
                self._changed.discard(collection_id)
                if moves:
                    _log.info("segments balanced", collection=collection_id, segments=moves)
