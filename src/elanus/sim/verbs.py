"""What a client asks of a proxy: the front's verbs, for callers on the event loop.

`elanus.proxy.front` runs in gRPC threads and blocks; these do the same steps with the same parts (cache,
queues, tasks, reader), and await instead. Reads run in a thread here as there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyarrow as pa

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.timestamps import Timestamp
from elanus.proxy.api import DEFAULT_DATABASE, Query, QueryResult, Search, SearchResult
from elanus.proxy.cache import CachedCollection
from elanus.proxy.ddl import DdTask
from elanus.proxy.mutations import row_write
from elanus.proxy.proxy import Proxy
from elanus.proxy.writes import DeleteTask, InsertTask, keys_by_shard
from elanus.sim.turns import Turns

T = TypeVar("T")

READ_TIMEOUT_S = 8.0


class Verbs:
    """One proxy's."""

    def __init__(self, proxy: Proxy, turns: Turns) -> None:
        self._proxy = proxy
        self._turns = turns

    async def collection(self, name: str) -> CachedCollection:
        cached = self._proxy.cache.get(DEFAULT_DATABASE, name)
        return cached if cached is not None else await self._proxy.cache.fill(DEFAULT_DATABASE, name)

    async def define(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        task = DdTask(name, work)
        await self._proxy.dd_queue.run(task)
        return task.result

    async def write(
        self, name: str, partition: str, rows: pa.RecordBatch, *, replaces: bool
    ) -> tuple[CachedCollection, Timestamp]:
        cached = await self.collection(name)
        partition_id = cached.partition_id(partition)
        first_id = await self._proxy.coordinators.root.alloc_ids(rows.num_rows)
        _, write = row_write(cached, partition_id, rows, first_id, replaces=replaces)
        task = InsertTask(self._proxy.writer, write, cached.view.pchannels)
        await self._proxy.dm_queue.run(task)
        return cached, task.ts

    async def delete(self, name: str, text: str) -> tuple[CachedCollection, Timestamp, list[int]]:
        """By a filter: keys that it names, or those of the rows that it matches."""
        cached = await self.collection(name)
        keys: pa.Array = cached.plans.filter(text, {}).primary_keys()
        if keys is None:
            matching_keys = self._proxy.reader.matching_keys
            keys = await self._turns.run_thread(lambda: matching_keys(cached, text, {}, ""))
        if len(keys) == 0:
            return cached, self._proxy.stamp(), []
        shards = keys_by_shard(keys, cached.view.vchannels)
        task = DeleteTask(
            self._proxy.writer, cached.collection_id, ALL_PARTITIONS, shards, cached.view.pchannels
        )
        await self._proxy.dm_queue.run(task)
        return cached, task.ts, keys.to_pylist()

    async def query(self, request: Query) -> tuple[CachedCollection, QueryResult]:
        cached = await self.collection(request.collection)
        return cached, await self._turns.run_thread(lambda: self._proxy.reader.query(cached, request))

    async def search(self, request: Search) -> tuple[CachedCollection, SearchResult]:
        cached = await self.collection(request.collection)
        return cached, await self._turns.run_thread(lambda: self._proxy.reader.search(cached, request))
