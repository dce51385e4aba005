"""The proxy role: the part that lives on the event loop.

It keeps the queues, the caches and the time ticker, and is what the coordinators talk to. The front that
clients talk to (`elanus.proxy.front`) calls it from gRPC threads through `Proxy.call`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TypeVar

import structlog

from elanus.core.errors import DeadlineExceeded, ElanusError, NoSession, NotReady
from elanus.core.ids import CollectionID
from elanus.core.lease import Lease
from elanus.core.ticks import tick_report
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.log.port import Log
from elanus.proxy.cache import CachedCollection, MetaCache
from elanus.proxy.ddl import DdTask
from elanus.proxy.ids import IdBatch
from elanus.proxy.measures import Measures
from elanus.proxy.queues import DdQueue, DmQueue, DqQueue
from elanus.proxy.reads import Nodes, Reader
from elanus.proxy.segments import SegmentAssigner
from elanus.proxy.stamps import Stamps
from elanus.proxy.writes import LogWriter, Offload
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.querycoord import QueryCoordApi
from elanus.rpc.rootcoord import RootCoordApi, TickReport

T = TypeVar("T")

_STOP_PATIENCE_S = 5.0
"""How long tasks may take to end when the proxy stops, before they are cancelled."""
_log = structlog.get_logger("proxy")


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """``call_timeout_s`` bounds every wait of a client's thread for the event loop; ``retention_s`` is how
    far back a read may be pinned."""

    tick_interval_ms: int
    tasks_max: int
    graceful_time_ms: int
    retention_s: float
    read_timeout_s: float
    call_timeout_s: float
    quota_rows: int


@dataclass(frozen=True, slots=True)
class Coordinators:
    """Clients of the coordinators, wherever they run."""

    root: RootCoordApi
    data: DataCoordApi
    index: IndexCoordApi
    query: QueryCoordApi


class Proxy:
    """Implements `elanus.rpc.proxy.ProxyApi`.

    ``lease``: what it does counts as long as that holds. When it is lost, the proxy is stopped, and another
    takes its place under a new id. ``now_s``: the clock that its reads wait by.
    """

    def __init__(
        self,
        lease: Lease,
        coordinators: Coordinators,
        nodes: Nodes,
        log: Log,
        stamps: Stamps,
        offload: Offload,
        policy: ProxyPolicy,
        measures: Measures,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node_id = lease.node_id
        self._lease = lease
        self.coordinators = coordinators
        self.stamp = stamps.now
        """A fresh timestamp, for gRPC threads."""
        self._stamps = stamps
        self.measures = measures
        self._nodes = nodes
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self.cache = MetaCache(coordinators.root, coordinators.index)
        self.dd_queue = DdQueue(stamps, policy.tasks_max)
        self.dm_queue = DmQueue(stamps, policy.tasks_max)
        self.dq_queue = DqQueue(policy.tasks_max)
        self._assigner = SegmentAssigner(coordinators.data, policy.quota_rows)
        self.writer = LogWriter(log, self.dm_queue, self._assigner, offload, lease)
        self.ids = IdBatch(lambda count: self.call(coordinators.root.alloc_ids(count)))
        self.reader = Reader(
            nodes,
            self.dq_queue,
            stamps,
            self._ask_tick,
            measures,
            graceful_time_ms=policy.graceful_time_ms,
            retention_s=policy.retention_s,
            timeout_s=policy.read_timeout_s,
            now_s=now_s,
        )
        self._ticker: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Only after the first report is accepted may anything be written; ticks count on it from then on."""
        await self._nodes.start()
        try:
            await self._report()
        except BaseException:
            await self._nodes.stop()
            raise
        self._ticker = asyncio.create_task(self._tick(), name="proxy ticker")

    async def stop(self) -> None:
        """Returns after the last write. Only then may its session end: what came later would be late."""
        await asyncio.gather(self.dd_queue.close(_STOP_PATIENCE_S), self.dm_queue.close(_STOP_PATIENCE_S))
        tasks = [*self._asked, *([self._ticker] if self._ticker else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._nodes.stop()

    # from gRPC threads

    def call(self, work: Awaitable[T]) -> T:
        """Await something on the event loop, from another thread. Raises what it raises."""
        future = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return future.result(self._policy.call_timeout_s)
        except TimeoutError:
            future.cancel()
            raise DeadlineExceeded(f"no answer within {self._policy.call_timeout_s:g} s; retry") from None
        except CancelledError:
            raise NotReady("the proxy stopped; whether the request had its effect is not known") from None

    def define(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run a definition through the DdQueue and wait for it."""
        task = DdTask(name, work)
        self.call(self.dd_queue.run(task))
        return task.result

    def collection(self, database: str, name: str) -> CachedCollection:
        """From the cache, or fetched. Raises `CollectionNotFound`, `DatabaseNotFound`."""
        cached = self.cache.get(database, name)
        return cached if cached is not None else self.call(self.cache.fill(database, name))

    # for the coordinators

    async def invalidate_collection(self, collection_id: CollectionID) -> None:
        self.cache.invalidate(collection_id)

    async def invalidate_everything(self) -> None:
        self.cache.invalidate_all()

    async def release_query_channels(self, collection_id: CollectionID) -> None:
        self._nodes.forget(collection_id)

    async def give_back_quota(self, collection_id: CollectionID) -> Timestamp:
        self._assigner.give_back(collection_id)
        return min(self.dm_queue.oldest().values(), default=NO_TIMESTAMP)

    async def report_tick(self, now: Timestamp) -> TickReport:
        default, channels = tick_report(now, self.dm_queue.oldest())
        return TickReport(self.node_id, default, channels)

    async def _report(self) -> None:
        report = await self.report_tick(await self._stamps.fresh())
        await self.coordinators.root.update_channel_time_tick(report)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._policy.tick_interval_ms / 1000)
            try:
                await self._report()
            except NoSession as error:
                self._lease.give_up(error.message)
            except Exception as error:  # noqa: BLE001 - without reports no tick passes, and no read either
                _log.warning("time tick not reported", error=f"{type(error).__name__}: {error}")

    def _ask_tick(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        self._loop.call_soon_threadsafe(self._ask_tick_soon, pchannels, at_least)

    def _ask_tick_soon(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        task = asyncio.ensure_future(self._asked_tick(pchannels, at_least))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _asked_tick(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """The reader that asked waits for its service time, whether this succeeds or not."""
        try:
            async with asyncio.timeout(self._policy.read_timeout_s):
                await self.coordinators.root.tick_now(pchannels, at_least)
        except (ElanusError, TimeoutError) as error:
            _log.info("no early tick", error=str(error))


async def _awaited(work: Awaitable[T]) -> T:
    return await work
