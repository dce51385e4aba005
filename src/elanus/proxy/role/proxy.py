"""The proxy role: the part that lives on the event loop.

It puts together the queues, the caches, the time ticker and the read path, and receives the coordinators'
calls. The verbs that clients call (`elanus.proxy.verbs`) call it from gRPC threads through `Proxy.call`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.rootcoord import RootCoordApi, TickReport
from elanus.core.errors import DeadlineExceeded, NotReady
from elanus.core.ids import CollectionID
from elanus.core.lease import Lease
from elanus.core.offload import Offload
from elanus.core.rate_limits import EVERYTHING, Allowed, Rate
from elanus.core.requests import RequestLimits
from elanus.core.timestamps import Timestamp
from elanus.log.port import Appender
from elanus.proxy.embedding import Embedder, EmbeddingPolicy
from elanus.proxy.role.admission import Admission
from elanus.proxy.role.cache import CachedCollection, MetaCache
from elanus.proxy.role.disk_limits import DiskLimits
from elanus.proxy.role.ids import IdBatch
from elanus.proxy.role.measures import Measures
from elanus.proxy.role.own_writes import OwnWrites
from elanus.proxy.role.policy_cache import PolicyCache
from elanus.proxy.role.queues import DdQueue, DmQueue, DqQueue
from elanus.proxy.role.read_path import ReadNodes, ReadPath, ReadPolicy
from elanus.proxy.role.segments import SegmentAssigner
from elanus.proxy.role.stamps import Stamps
from elanus.proxy.role.time_ticker import TimeTicker
from elanus.proxy.role.writes import KeyDelete, LogWriter, RowWrite
from elanus.rpc.serving.waiting import about_to_wait

T = TypeVar("T")

_STOP_PATIENCE_S = 5.0
"""How long tasks may take to finish when the proxy stops, before they are cancelled."""


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """``call_timeout_s``: the longest a client's thread waits for the event loop."""

    tick_interval_ms: int
    tasks_max: int
    reads: ReadPolicy
    call_timeout_s: float
    allocation_rows_min: int
    limits: RequestLimits = field(default_factory=RequestLimits)
    rates: Mapping[Rate, float] = field(default_factory=dict)
    """The limits a second of all collections and proxies together."""
    disk_max_bytes: float | None = None
    """The most that the files of all collections may take; None for no limit."""
    embedding: EmbeddingPolicy = field(default_factory=EmbeddingPolicy)


@dataclass(frozen=True, slots=True)
class Coordinators:
    """Clients of the coordinators, wherever they run."""

    root: RootCoordApi
    data: DataCoordApi
    index: IndexCoordApi
    query: QueryCoordApi


class Proxy:
    """Implements `elanus.api.proxy.ProxyApi`.

    ``lease``: the proxy's writes are valid only while it is held. When it is lost, the proxy is stopped and
    replaced by another under a new id. ``now_s``: the clock by which reads wait and
    rates count. ``live_proxies``: how many proxies share the rates.

    ``is_reader``: the proxy of a serving process (`elanus.server.serving`), to which no writes come. It has
    no part in time ticks. ``own_writes``: what it knows of its clients' writes. ``ticked`` is called when a
    tick that was asked for has been written.
    """

    def __init__(
        self,
        lease: Lease,
        coordinators: Coordinators,
        nodes: ReadNodes,
        log: Appender,
        stamps: Stamps,
        offload: Offload,
        policy: ProxyPolicy,
        measures: Measures,
        now_s: Callable[[], float] = time.monotonic,
        live_proxies: Callable[[], int] = lambda: 1,
        is_reader: bool = False,
        own_writes: OwnWrites | None = None,
        ticked: Callable[[], None] = lambda: None,
    ) -> None:
        self._is_reader = is_reader
        self.node_id = lease.node_id
        self.coordinators = coordinators
        self._stamps = stamps
        self.stamp = stamps.now
        """A fresh timestamp, for gRPC threads."""
        self.measures = measures
        self.limits = policy.limits
        self.embedder = Embedder(policy.embedding, measured=measures.embedded)
        self._nodes = nodes
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self.cache = MetaCache(coordinators.root, coordinators.index)
        self.policies = PolicyCache(coordinators.root, lease, self.call)
        disk = DiskLimits(self._stored_bytes, self._collections_in, policy.disk_max_bytes, now_s)
        self.admission = Admission(self._allowed_in, policy.rates, live_proxies, now_s, disk)
        self.dd_queue = DdQueue(policy.tasks_max)
        self.dm_queue = DmQueue(stamps, policy.tasks_max)
        self.dq_queue = DqQueue(policy.tasks_max)
        self._assigner = SegmentAssigner(coordinators.data, policy.allocation_rows_min)
        self.writer = LogWriter(log, self._assigner, offload, lease)
        self.ids = IdBatch(lambda count: self.call(coordinators.root.alloc_ids(count)))
        self.own_writes = own_writes or OwnWrites(policy.reads.graceful_time_ms)
        self.ticker = TimeTicker(
            lease,
            coordinators.root,
            stamps,
            self.dm_queue,
            self.admission,
            interval_ms=policy.tick_interval_ms,
            timeout_s=policy.reads.timeout_s,
            ticked=ticked,
        )
        self.reads = ReadPath(
            nodes, self.dq_queue, stamps, self.ticker, measures, self.own_writes, policy.reads, now_s
        )

    async def start(self) -> None:
        """Start, and return when the first tick report is accepted.

        Nothing may be written before that. From then on time ticks depend on this proxy's reports.
        """
        await self._nodes.start()
        if self._is_reader:
            return
        try:
            await self.ticker.start()
        except BaseException:
            await self._nodes.stop()
            raise

    async def stop(self) -> None:
        """Stop, and return after the last write. Only then may the session end: later entries are late."""
        await asyncio.gather(self.dd_queue.close(_STOP_PATIENCE_S), self.dm_queue.close(_STOP_PATIENCE_S))
        await self.ticker.stop()
        await self._nodes.stop()

    # from gRPC threads

    def call(self, work: Awaitable[T], timeout_s: float | None = None) -> T:
        """Await something on the event loop, from another thread. Raises what it raises.

        ``timeout_s``: the longest wait; None: that of the policy.
        """
        longest_s = self._policy.call_timeout_s if timeout_s is None else timeout_s
        about_to_wait()
        future = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return future.result(longest_s)
        except TimeoutError:
            future.cancel()
            raise DeadlineExceeded(f"no answer within {longest_s:g} s; retry") from None
        except CancelledError:
            raise NotReady("the proxy stopped; whether the request had its effect is not known") from None

    def define(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run a definition through the DdQueue and wait for it."""
        return self.call(self.dd_queue.run(name, work))

    def collection(self, database: str, name: str) -> CachedCollection:
        """Return it from the cache, or fetch it. Raises `CollectionNotFound`, `DatabaseNotFound`."""
        cached = self.cache.get(database, name)
        return cached if cached is not None else self.call(self.cache.fill(database, name))

    def _allowed_in(self, database: str) -> Allowed:
        """The switches of a database; one that does not exist denies nothing."""
        known = self.cache.databases
        if known is None:
            known = self.call(self.cache.fill_databases())
        return known.get(database, EVERYTHING)

    def _stored_bytes(self, collection_ids: tuple[CollectionID, ...]) -> int:
        return self.call(self.coordinators.data.stored_bytes(collection_ids))

    def _collections_in(self, database: str) -> tuple[CollectionID, ...]:
        found = self.call(self.coordinators.root.list_collections(database))
        return tuple(collection.collection_id for collection in found)

    # writes, on the event loop

    async def write_rows(self, write: RowWrite, pchannels: Sequence[str]) -> Timestamp:
        """Insert or upsert. ``pchannels``: the collection's. Returns when the rows are durable."""
        name = "upsert" if write.replaces else "insert"
        return await self.dm_queue.run(name, pchannels, partial(self.writer.write_rows, write))

    async def delete_keys(self, delete: KeyDelete, pchannels: Sequence[str]) -> Timestamp:
        return await self.dm_queue.run("delete", pchannels, partial(self.writer.delete_keys, delete))

    # for the coordinators

    async def invalidate_collection(self, collection_id: CollectionID) -> None:
        self.cache.invalidate(collection_id)
        # If it was dropped, a write whose name was resolved before must ask datacoord, which refuses.
        self._assigner.return_all(collection_id)

    async def invalidate_everything(self) -> None:
        self.cache.invalidate_all()
        self.policies.invalidate()

    async def invalidate_access(self) -> None:
        self.policies.invalidate()

    async def invalidate_databases(self) -> None:
        self.cache.invalidate_databases()

    async def release_query_channels(self, collection_id: CollectionID) -> None:
        self._nodes.forget(collection_id)

    async def return_allocations(self, collection_id: CollectionID) -> Timestamp:
        self._assigner.return_all(collection_id)
        return self._stamps.floor()

    async def report_tick(self, now: Timestamp) -> TickReport:
        return self.ticker.report(now)


async def _awaited(work: Awaitable[T]) -> T:
    return await work
