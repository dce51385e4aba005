"""The root coordinator role: definitions, in order with the writes, and the services every role needs.

This module puts the role together. Each part answers its own calls (`RootCoord.parts`). There are two
families of definitions: those that only change the catalog (`elanus.rootcoord.names`,
`elanus.rootcoord.schema_changes`), and those that readers of the channels must read in order
(`elanus.rootcoord.lifecycle`, `elanus.rootcoord.clones`). `elanus.rootcoord.completion` completes those that
were interrupted. Users and their rights are in `elanus.rootcoord.access`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from elanus.api.access import AccessApi
from elanus.api.cache_invalidation import Invalidations
from elanus.api.datacoord import DataCoordApi
from elanus.api.fencing import while_active
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.proxy import ProxyApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.rootcoord import (
    CollectionCloneCalls,
    LifecycleCalls,
    LookupCalls,
    NameCalls,
    SchemaCalls,
    ServiceCalls,
    TickReport,
)
from elanus.core.catalog import Collection
from elanus.core.errors import ElanusError, NoSession
from elanus.core.ids import CollectionID, NodeID
from elanus.core.lease import Lease
from elanus.core.nodes import Nodes
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.log.port import Log
from elanus.meta.port import MetaStore, Put
from elanus.meta.tasks import cancel_and_wait
from elanus.rootcoord.access import AccessControl
from elanus.rootcoord.announcer import Announcer
from elanus.rootcoord.catalog import Catalog
from elanus.rootcoord.clones import Clones
from elanus.rootcoord.completion import Completion, OtherCoordinators
from elanus.rootcoord.definitions import Definitions
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.lifecycle import Lifecycle
from elanus.rootcoord.metadata_age import check_age, latest_ms
from elanus.rootcoord.names import DEFAULT_DATABASE, Names
from elanus.rootcoord.schema_changes import SchemaChanges
from elanus.rootcoord.timesync import TimeSync
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.parts import Parts

_EPOCH_KEY = "rootcoord/epoch"
_TIDY_INTERVAL_S = 1.0
_log = structlog.get_logger("rootcoord")


class RootCoord:
    """``parts``: the parts that implement `elanus.api.rootcoord.RootCoordApi`. This object itself answers
    look-ups and the services.

    ``lease``: the root coordinator's own, as the active one. ``oracle`` starts and stops with it.
    ``proxies``: those that have a session. ``pchannels_max``: how many physical channels the collections
    share. ``idle_tick_ms``: how far the time tick of a pchannel without writes may fall behind.
    ``users_max``, ``roles_max``: as in `AccessControl`. ``caches``: the proxies that are notified of changes,
    if some of them do not write and have no part in time ticks. ``accept_log_until_ms``: see
    `elanus.rootcoord.metadata_age.check_age`.
    """

    def __init__(
        self,
        lease: Lease,
        meta: MetaStore,
        log: Log,
        oracle: TimestampOracle,
        datacoord: DataCoordApi,
        indexcoord: IndexCoordApi,
        querycoord: QueryCoordApi,
        proxies: Nodes[ProxyApi],
        *,
        pchannels_max: int,
        idle_tick_ms: int = 0,
        users_max: int = 100,
        roles_max: int = 10,
        caches: Nodes[ProxyApi] | None = None,
        accept_log_until_ms: int = 0,
    ) -> None:
        self._lease = lease
        self._meta = meta
        self._proxies = proxies
        self._sync = TimeSync(log, proxies, oracle.allocate, idle_tick_ms=idle_tick_ms)
        self._log = log
        self._oracle = oracle
        self._accept_log_until_ms = accept_log_until_ms
        self._ids = IdAllocator(meta)
        self._catalog = Catalog(meta)
        self._invalidations = Invalidations(proxies if caches is None else caches)
        self._announcer = Announcer(log, oracle, self._sync, pchannels_max)
        self._definitions = Definitions(self._catalog, self._ids, oracle, self._invalidations)
        others = OtherCoordinators(datacoord, indexcoord, querycoord)
        self._completion = Completion(self._definitions, self._announcer, others)
        self.parts = Parts()
        self._add_parts(others, users_max, roles_max)
        self._tidier: asyncio.Task[None] | None = None

    def _add_parts(self, others: OtherCoordinators, users_max: int, roles_max: int) -> None:
        """Say which part answers which calls."""
        shared, completion, announcer = self._definitions, self._completion, self._announcer
        access = AccessControl(
            self._lease,
            self._meta,
            self._ids,
            self._invalidations,
            users_max=users_max,
            roles_max=roles_max,
        )
        add = self.parts.add
        add(ServiceCalls, self)
        add(LookupCalls, self)
        add(NameCalls, Names(shared))
        add(LifecycleCalls, Lifecycle(shared, announcer, others.data, completion))
        add(SchemaCalls, SchemaChanges(shared, others, completion))
        add(CollectionCloneCalls, Clones(shared, announcer, others.data, completion))
        add(AccessApi, access)

    async def start(self) -> None:
        """Take a new epoch, and mark it in every pchannel in use before any report is accepted.

        Raises `Unavailable` for metadata that is older than the log (`elanus.rootcoord.metadata_age`).
        """
        log_until_ms = await latest_ms(self._log)
        check_age(await self._oracle.saved_bound_ms(), log_until_ms, self._accept_log_until_ms)
        await self._oracle.start(log_until_ms)
        self._sync.start(await self._next_epoch())
        await self._ids.start()
        await self._catalog.start()
        if not self._catalog.has_database(DEFAULT_DATABASE.name):
            await self._catalog.put_database(DEFAULT_DATABASE)
        self._completion.start()
        await self._announcer.resume(v for c in self._catalog.everything() for v in c.vchannels)
        await self._proxies.refresh()
        self._sync.follow()
        self._invalidations.invalidate_everything()
        self._tidier = asyncio.create_task(self._tidy_loop(), name="rootcoord tidy")

    async def _next_epoch(self) -> int:
        """Return an epoch above all former ones, also those that the metadata does not know.

        Metadata may be restored from a copy that is older than the log. An epoch that merely counted on from
        there would be below those in the log, and readers would ignore its ticks. So it is the time in
        milliseconds, unless clocks went back.
        """
        saved = await self._meta.get(_EPOCH_KEY)
        former = msgspec.json.decode(saved.value, type=int) if saved else 0
        epoch = max(former + 1, physical_ms(self._oracle.allocate()))
        await self._meta.txn([Put(_EPOCH_KEY, msgspec.json.encode(epoch))])
        return epoch

    async def stop(self) -> None:
        await cancel_and_wait(self._tidier)
        await self._invalidations.stop()
        await self._sync.stop()
        await self._oracle.stop()

    async def _tidy_loop(self) -> None:
        while True:
            try:
                if self._sync.refused():
                    await self._sync.retry_refused(self._oracle.allocate())
                await self._completion.tidy()
            except ElanusError as error:
                _log.info("cleanup of dropped collections interrupted; trying again", error=error.message)
            except Exception:  # noqa: BLE001 - whatever it is, what was cut off must still be finished
                _log.exception("cleanup of dropped collections failed; trying again")
            await asyncio.sleep(_TIDY_INTERVAL_S)

    # look-ups: proxies cache the answers until they are notified, and a successor notifies them only once

    async def describe_collection(self, database: str, name: str) -> Collection:
        async with while_active(self._lease):
            return self._catalog.collection(database, name)

    async def collection_by_id(self, collection_id: CollectionID) -> Collection:
        async with while_active(self._lease):
            return self._catalog.by_id(collection_id)

    async def list_collections(self, database: str) -> tuple[Collection, ...]:
        async with while_active(self._lease):
            if not database:
                return tuple(self._catalog.live())
            return self._catalog.in_database(self._catalog.database(database))

    # services

    async def alloc_timestamp(self, count: int) -> Timestamp:
        """The lease is checked after the timestamp was taken: no other oracle was active before that."""
        ts = self._oracle.allocate(count)
        await self._lease.confirm()
        return ts

    async def alloc_ids(self, count: int) -> int:
        """Ids grow with time, which garbage collection relies on: ids of a former rootcoord are smaller."""
        async with while_active(self._lease):
            return await self._ids.allocate(count)

    async def update_channel_time_tick(self, report: TickReport) -> Mapping[str, float]:
        """A first report is accepted only by a root coordinator that is still active once it knows the proxy.
        So its successor, which reads the sessions later, knows the proxy as well. The store is asked: the
        clock does not show a lease that was revoked."""
        if not self._sync.has_reported(report.node_id):
            await self._proxies.refresh()
            await self._lease.confirm()
            await self._meta.txn(())
        if not self._sync.take(report):
            raise NoSession(f"proxy {report.node_id} has no session: it has to join again under a new id")
        await self._sync.write_ticks()
        return self._sync.shares(report)

    async def tick_now(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        await self._sync.tick_now(pchannels, at_least)

    async def fence_gone(self, pchannels: tuple[str, ...]) -> None:
        """The lease is checked first: only the active root coordinator knows every proxy that writes."""
        await self._proxies.refresh()
        await self._lease.confirm()
        await self._sync.fence(pchannels)

    async def ticks(self) -> Mapping[str, Timestamp]:
        async with while_active(self._lease):
            return self._sync.ticks()

    async def refused_channels(self) -> Mapping[str, str]:
        async with while_active(self._lease):
            return self._sync.refused()

    async def tick_holders(self) -> Mapping[str, NodeID]:
        async with while_active(self._lease):
            return self._sync.tick_holders()
