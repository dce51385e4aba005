"""The requests that a client can make of a proxy: its verbs, for callers on the event loop.

`elanus.proxy.verbs` runs in gRPC threads and blocks. These verbs do the same steps with the same parts
(cache, queues, tasks), but await. Reads run the proxy's own verbs, in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pyarrow as pa

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.names import DEFAULT_DATABASE, DEFAULT_PARTITION
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.query import Query, QueryResult
from elanus.proxy.api.search import Search, SearchResult
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.role.shards import keys_by_shard, rows_by_shard
from elanus.proxy.role.writes import KeyDelete, RowWrite
from elanus.proxy.verbs.pressure import GrowingData, Pressure, PressureLimits
from elanus.proxy.verbs.proxy_verbs import ProxyVerbs
from elanus.proxy.verbs.query import matching_keys
from elanus.proxy.verbs.row_writes import row_write, write_partition
from elanus.sim.coop_threads import Turns
from elanus.sim.incarnation import Life

T = TypeVar("T")

READ_TIMEOUT_S = 8.0
_KEYS_MAX = 100_000
_NO_LIMITS = PressureLimits(1 << 62, 1 << 62, disk_reserve_bytes=0, delayed_writers_max=1)


class ClientVerbs:
    """The verbs of one proxy, in its ``life``."""

    def __init__(self, proxy: Proxy, life: Life, turns: Turns) -> None:
        self._proxy = proxy
        self._life = life
        self._turns = turns
        unlimited = Pressure(_NO_LIMITS, lambda: GrowingData(0), lambda: 1, turns.sleep, NoMeasures())
        self._front = ProxyVerbs(lambda: proxy, unlimited, tuple)

    async def collection(self, name: str) -> CachedCollection:
        cached = self._proxy.cache.get(DEFAULT_DATABASE, name)
        return cached if cached is not None else await self._proxy.cache.fill(DEFAULT_DATABASE, name)

    async def define(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Have the proxy carry out a definition. ``work`` calls a coordinator as the clients do, not as the
        proxy, so the proxy's gate is passed here: what it had not sent when it died is never sent."""

        async def in_its_life() -> T:
            if self._life.is_held:
                await self._life.gate()
            return await work()

        return await self._proxy.dd_queue.run(name, in_its_life)

    async def write(
        self,
        name: str,
        partition: str,
        rows_for: Callable[[CollectionSchema], pa.RecordBatch],
        *,
        replaces: bool,
    ) -> tuple[CachedCollection, Timestamp]:
        """Write rows. ``rows_for`` makes the rows for a schema; it replaces decoding a request."""
        cached = await self.collection(name)
        rows = rows_for(cached.view.schema)
        first_id = await self._proxy.coordinators.root.alloc_ids(rows.num_rows)
        return await self.write_rows(cached, partition, rows, first_id, replaces=replaces)

    async def write_rows(
        self, cached: CachedCollection, partition: str, rows: pa.RecordBatch, first_id: int, *, replaces: bool
    ) -> tuple[CachedCollection, Timestamp]:
        """Write rows that are already decoded for this collection."""
        partition_id = write_partition(cached, partition)
        _, write = row_write(cached, partition_id, rows, lambda _: first_id, replaces=replaces)
        return cached, await self._proxy.write_rows(write, cached.view.pchannels)

    async def write_automatic(
        self,
        name: str,
        partition: str,
        rows_for: Callable[[CollectionSchema], pa.RecordBatch],
        *,
        replaces: bool,
    ) -> tuple[CachedCollection, Timestamp, list[int]]:
        """Write rows into a collection with automatic keys. Returns the keys they got, too."""
        cached = await self.collection(name)
        rows, partition_id = rows_for(cached.view.schema), write_partition(cached, partition)
        alloc_ids = self._proxy.coordinators.root.alloc_ids

        def take(count: int) -> int:
            return self._turns.wait(alloc_ids(count))

        keys, write = await self._turns.run_thread(
            lambda: row_write(cached, partition_id, rows, take, replaces=replaces)
        )
        return cached, await self._proxy.write_rows(write, cached.view.pchannels), keys.to_pylist()

    async def write_misfit(self, name: str, rows: pa.RecordBatch) -> tuple[CachedCollection, Timestamp]:
        """Write rows that do not fit the collection's schema, as a defective proxy would."""
        cached = await self.collection(name)
        view = cached.view
        first_id = await self._proxy.coordinators.root.alloc_ids(rows.num_rows)
        write = RowWrite(
            cached.collection_id,
            cached.partition_id(DEFAULT_PARTITION),
            rows_by_shard(rows, rows.column(view.schema.primary_field.name), view.vchannels),
            first_id,
            replaces=False,
        )
        return cached, await self._proxy.write_rows(write, view.pchannels)

    async def delete(self, name: str, text: str) -> tuple[CachedCollection, Timestamp, list[int]]:
        """Delete by a filter: the keys that it names, or the keys of the rows that it matches."""
        cached = await self.collection(name)
        keys: pa.Array = cached.plans.filter(text, {}).primary_keys()
        if keys is None:
            reads = self._proxy.reads
            found = partial(matching_keys, reads, cached, text, {}, "", _KEYS_MAX)
            keys = pa.concat_arrays(
                [pa.array([], pa.int64()), *await self._turns.run_thread(lambda: list(found()))]
            )
        if len(keys) == 0:
            return cached, self._proxy.stamp(), []
        shards = keys_by_shard(keys, cached.view.vchannels)
        delete = KeyDelete(cached.collection_id, ALL_PARTITIONS, shards)
        return cached, await self._proxy.delete_keys(delete, cached.view.pchannels), keys.to_pylist()

    async def query(
        self, name: str, request_of: Callable[[CachedCollection], Query]
    ) -> tuple[CachedCollection, QueryResult]:
        cached = await self.collection(name)
        request = request_of(cached)
        return cached, await self._turns.run_thread(lambda: self._front.query(request))

    async def search(
        self, name: str, request_of: Callable[[CachedCollection], Search]
    ) -> tuple[CachedCollection, SearchResult]:
        cached = await self.collection(name)
        request = request_of(cached)
        return cached, await self._turns.run_thread(lambda: self._front.search(request))
