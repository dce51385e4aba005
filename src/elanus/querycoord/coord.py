"""The query coordinator role: one loader per loaded collection.

A loader is woken by every change of the data or of its indexes, and when its query node is seen not to
serve it: a node that was restarted knows nothing, and tells nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from elanus.core.errors import CollectionNotFound, ElanusError
from elanus.core.ids import CollectionID, NodeID, PartitionID
from elanus.querycoord.loader import CollectionLoader, Peers
from elanus.querycoord.state import LoadState, with_partitions, without_partitions
from elanus.rpc.querycoord import LoadStatus
from elanus.rpc.querynode import SegmentServing

_FOLLOW_TIMEOUT_S = 5.0
_RETRY_PAUSE_S = 1.0
_NODE_LOOK_S = 1.0
_log = structlog.get_logger("querycoord")


class QueryCoord:
    """Implements `elanus.rpc.querycoord.QueryCoordApi`, over one query node."""

    def __init__(self, state: LoadState, peers: Peers) -> None:
        self._state = state
        self._peers = peers
        self._loaders: dict[CollectionID, CollectionLoader] = {}
        self._lock = asyncio.Lock()
        self._followers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Serve again what was loaded; returns at once, the loads go on in the background."""
        now = await self._peers.root.alloc_timestamp(1)
        for load in await self._state.all():
            self._begin(CollectionLoader(load, self._peers, now))
        self._followers = [
            asyncio.create_task(self._follow(self._peers.data.wait_change), name="follow datacoord"),
            asyncio.create_task(self._follow(self._peers.index.wait_change), name="follow indexcoord"),
            asyncio.create_task(self._watch_node(), name="watch the query node"),
        ]

    async def stop(self) -> None:
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        await asyncio.gather(*(loader.stop() for loader in self._loaders.values()))

    async def load(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None:
        async with self._lock:
            await self._peers.root.collection_by_id(collection_id)
            loader = self._loaders.get(collection_id)
            load = with_partitions(loader.load if loader else None, collection_id, partition_ids)
            if loader is not None and loader.load == load:
                return
            await self._state.put(load)
            now = await self._peers.root.alloc_timestamp(1)
            if loader is None:
                self._begin(CollectionLoader(load, self._peers, now))
            else:
                await loader.change(load, now)

    async def release(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None:
        async with self._lock:
            loader = self._loaders.get(collection_id)
            if loader is None:
                return
            rest = None
            if partition_ids:
                collection = await self._peers.root.collection_by_id(collection_id)
                if not set(partition_ids) & set(loader.load.partitions_of(collection)):
                    loader.wake()  # partitions that were dropped, or are not loaded
                    return
                rest = without_partitions(loader.load, collection, partition_ids)
            if rest is not None:
                await self._state.put(rest)
                await loader.change(rest, await self._peers.root.alloc_timestamp(1))
                return
            await self._state.remove(collection_id)
            await self._loaders.pop(collection_id).stop()
            await self._peers.node.release_collection(collection_id)

    async def loads(self) -> tuple[LoadStatus, ...]:
        status = await self._peers.node.status()
        found = []
        for loader in tuple(self._loaders.values()):
            try:
                percentages = await loader.percentages(status)
            except CollectionNotFound:
                continue
            found.append(LoadStatus(loader.collection_id, loader.load.whole, percentages))
        return tuple(found)

    async def serving(self, collection_id: CollectionID) -> tuple[tuple[NodeID, SegmentServing], ...]:
        status = await self._peers.node.status()
        return tuple((status.node_id, s) for s in status.segments if s.collection_id == collection_id)

    def _begin(self, loader: CollectionLoader) -> None:
        self._loaders[loader.collection_id] = loader
        loader.start()

    async def _follow(self, wait_change: Callable[[int, float], Awaitable[int]]) -> None:
        seen = 0
        while True:
            try:
                now = await wait_change(seen, _FOLLOW_TIMEOUT_S)
            except ElanusError as error:
                _log.info("cannot follow a coordinator", error=error.message)
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            if now != seen:
                seen = now
                for loader in self._loaders.values():
                    loader.wake()

    async def _watch_node(self) -> None:
        while True:
            await asyncio.sleep(_NODE_LOOK_S)
            try:
                status = await self._peers.node.status()
            except ElanusError as error:
                _log.info("cannot see the query node", error=error.message)
                continue
            for loader in self._loaders.values():
                if not loader.is_served(status):
                    loader.wake()
