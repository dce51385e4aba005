"""The root coordinator role: DDL, in order with the writes, and the services everybody needs.

A DDL takes a timestamp, holds the ticks back below it, writes its message into the collection's
vchannels, persists the catalog, and lets the ticks pass. So each reader of a channel meets a collection's
creation before its first row and its drop after its last. A crash between message and catalog leaves a
message of a collection that does not exist, which every reader ignores; success is the catalog write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import structlog

from elanus.core.catalog import Checkpoint, Collection, Database, Partition
from elanus.core.channels import pchannel_name, pchannel_of, vchannel_name
from elanus.core.errors import (
    AliasConflict,
    AliasNotFound,
    CollectionAlreadyExists,
    CollectionLimitReached,
    DatabaseLimitReached,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.ids import ALL_PARTITIONS, CollectionID, DatabaseID, FieldID, NodeID, PartitionID
from elanus.core.limits import COLLECTIONS_MAX, DATABASES_MAX, PARTITIONS_MAX, SYSTEM_FIELDS_MAX_ID
from elanus.core.messages import MsgKind
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp, before
from elanus.log.port import EntryHeader, Log, NewEntry, Position
from elanus.meta.port import MetaStore, Put
from elanus.rootcoord.catalog import Catalog, renamed
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.timesync import TimeSync
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.querycoord import QueryCoordApi
from elanus.rpc.rootcoord import NewCollection, TickReport

_EPOCH_KEY = "rootcoord/epoch"
_DEFAULT_DATABASE = Database(DatabaseID(1), "default", Timestamp(0))
_DEFAULT_PARTITION = "_default"
_SWEEP_INTERVAL_S = 1.0
_log = structlog.get_logger("rootcoord")


class RootCoord:
    """Implements `elanus.rpc.rootcoord.RootCoordApi`.

    ``oracle`` starts and stops with it. ``proxies`` finds the handle of a registered proxy.
    ``pchannels_max``: how many physical channels the collections share.
    """

    def __init__(
        self,
        meta: MetaStore,
        log: Log,
        oracle: TimestampOracle,
        datacoord: DataCoordApi,
        indexcoord: IndexCoordApi,
        querycoord: QueryCoordApi,
        proxies: Mapping[NodeID, ProxyApi],
        *,
        pchannels_max: int,
    ) -> None:
        self._meta = meta
        self._log = log
        self._oracle = oracle
        self._datacoord = datacoord
        self._indexcoord = indexcoord
        self._querycoord = querycoord
        self._proxies = proxies
        self._pchannels_max = pchannels_max
        self._ids = IdAllocator(meta)
        self._catalog = Catalog(meta)
        self._sync = TimeSync(log, 0)
        self._ddl_lock = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take a new epoch, mark it in every pchannel in use, and repeat what a crash may have cut off."""
        await self._oracle.start()
        saved = await self._meta.get(_EPOCH_KEY)
        epoch = (msgspec.json.decode(saved.value, type=int) if saved else 0) + 1
        await self._meta.txn([Put(_EPOCH_KEY, msgspec.json.encode(epoch))])
        self._sync = TimeSync(self._log, epoch)
        for node_id, proxy in self._proxies.items():
            self._sync.join(node_id, proxy)
        await self._ids.start()
        await self._catalog.start()
        if not self._catalog.has_database(_DEFAULT_DATABASE.name):
            await self._catalog.put_database(_DEFAULT_DATABASE)
        for collection in self._catalog.everything():
            await self._use_channels(collection.vchannels)
        self._sweeper = asyncio.create_task(self._sweep(), name="rootcoord sweep")

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._oracle.stop()

    # services

    async def alloc_timestamp(self, count: int) -> Timestamp:
        return self._oracle.allocate(count)

    async def alloc_ids(self, count: int) -> int:
        return await self._ids.allocate(count)

    async def register_proxy(self, node_id: NodeID) -> None:
        self._sync.join(node_id, self._proxies[node_id])

    async def unregister_proxy(self, node_id: NodeID) -> None:
        self._sync.leave(node_id)

    async def update_channel_time_tick(self, report: TickReport) -> None:
        if not self._sync.take(report):
            # This root coordinator is newer than the proxy's registration.
            await self.register_proxy(report.node_id)
            self._sync.take(report)
        await self._sync.write_ticks()

    async def tick_now(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        await self._sync.tick_now(pchannels, at_least)

    async def ticks(self) -> Mapping[str, Timestamp]:
        return self._sync.ticks()

    # databases

    async def create_database(self, name: str, properties: Mapping[str, str]) -> None:
        async with self._ddl_lock:
            if self._catalog.has_database(name):
                raise InvalidParameter(f"database already exist: {name}")
            if len(self._catalog.databases()) >= DATABASES_MAX:
                raise DatabaseLimitReached(f"exceeded the limit number of database[limit={DATABASES_MAX}]")
            database_id = DatabaseID(await self._ids.allocate(1))
            await self._catalog.put_database(
                Database(database_id, name, self._oracle.allocate(), dict(properties))
            )

    async def drop_database(self, name: str) -> None:
        async with self._ddl_lock:
            if name == _DEFAULT_DATABASE.name:
                raise InvalidParameter("can not drop default database")
            database = self._catalog.database(name)
            if self._catalog.in_database(database):
                raise InvalidParameter(
                    f"database:{name} not empty, must drop all collections before drop database"
                )
            await self._catalog.remove_database(database)

    async def alter_database(
        self, name: str, properties: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        async with self._ddl_lock:
            database = self._catalog.database(name)
            changed = _changed(database.properties, properties, delete_keys)
            await self._catalog.put_database(replace(database, properties=changed))

    async def list_databases(self) -> tuple[Database, ...]:
        return self._catalog.databases()

    # collections

    async def create_collection(self, request: NewCollection) -> Collection:
        async with self._ddl_lock:
            database = self._catalog.database(request.database)
            name = request.schema.name
            existing = self._catalog.find(database, name)
            if existing is not None:
                return _same_or_conflict(existing, request, database.name)
            if sum(1 for _ in self._catalog.live()) >= COLLECTIONS_MAX:
                raise CollectionLimitReached(
                    f"exceeded the limit number of collections[limit={COLLECTIONS_MAX}]"
                )
            collection_id = CollectionID(await self._ids.allocate(2))
            vchannels = self._place_shards(collection_id, request.shards)
            await self._use_channels(vchannels)
            async with self._ordered_ddl() as ts:
                starts = await self._announce(MsgKind.CREATE_COLLECTION, ts, collection_id, vchannels)
                collection = Collection(
                    collection_id=collection_id,
                    database_id=database.database_id,
                    name=name,
                    schema=_numbered(request.schema),
                    vchannels=vchannels,
                    starts=starts,
                    partitions=(Partition(PartitionID(collection_id + 1), _DEFAULT_PARTITION, ts),),
                    consistency_level=request.consistency_level,
                    created=ts,
                    properties=dict(request.properties),
                )
                await self._catalog.put(collection)
            await self._datacoord.watch_channels(collection)
            return collection

    async def drop_collection(self, database: str, name: str) -> None:
        async with self._ddl_lock:
            collection = self._catalog.collection(database, name)
            if collection.name != name:
                raise InvalidParameter(f"cannot drop the collection via alias = {name}")
            if collection.aliases:
                raise InvalidParameter(
                    f"unable to drop the collection [{name}] because it has associated aliases "
                    f"{list(collection.aliases)}, please remove all aliases before dropping the collection"
                )
            await self._querycoord.release(collection.collection_id, ())
            await self._indexcoord.drop_collection(collection.collection_id)
            async with self._ordered_ddl() as ts:
                await self._catalog.put(replace(collection, dropped=ts))
                await self._announce(
                    MsgKind.DROP_COLLECTION, ts, collection.collection_id, collection.vchannels
                )
            await self._datacoord.drop_collection(collection.collection_id)
            await self._invalidate(collection)

    async def describe_collection(self, database: str, name: str) -> Collection:
        return self._catalog.collection(database, name)

    async def collection_by_id(self, collection_id: CollectionID) -> Collection:
        return self._catalog.by_id(collection_id)

    async def list_collections(self, database: str) -> tuple[Collection, ...]:
        if not database:
            return tuple(self._catalog.live())
        return self._catalog.in_database(self._catalog.database(database))

    async def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None:
        async with self._ddl_lock:
            collection = self._catalog.collection(database, old)
            if collection.name != old:
                raise InvalidParameter(f"unsupported use an alias to rename collection, alias:{old}")
            target = self._catalog.database(new_database or database)
            taken = self._catalog.find(target, new)
            if taken is not None:
                kind = "collection name" if taken.name == new else "alias"
                raise InvalidParameter(f"duplicated new collection name {new} with other {kind}")
            if target.database_id != collection.database_id and collection.aliases:
                raise InvalidParameter(
                    "fail to rename db name, must drop all aliases of this collection before rename"
                )
            await self._catalog.put(renamed(collection, new, target.database_id))
            await self._invalidate(collection)

    async def alter_collection(
        self, database: str, name: str, properties: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        async with self._ddl_lock:
            collection = self._catalog.collection(database, name)
            changed = _changed(collection.properties, properties, delete_keys)
            await self._catalog.put(replace(collection, properties=changed))
            await self._invalidate(collection)

    # partitions

    async def create_partition(self, database: str, collection: str, partition: str) -> None:
        async with self._ddl_lock:
            found = self._catalog.collection(database, collection)
            if any(p.name == partition for p in found.partitions):
                return
            if len(found.partitions) >= PARTITIONS_MAX:
                raise InvalidParameter(
                    f"partition number ({len(found.partitions)}) exceeds max configuration ({PARTITIONS_MAX})"
                )
            partition_id = PartitionID(await self._ids.allocate(1))
            async with self._ordered_ddl() as ts:
                await self._announce(
                    MsgKind.CREATE_PARTITION, ts, found.collection_id, found.vchannels, partition_id
                )
                added = (*found.partitions, Partition(partition_id, partition, ts))
                await self._catalog.put(replace(found, partitions=added))
            await self._invalidate(found)

    async def drop_partition(self, database: str, collection: str, partition: str) -> None:
        async with self._ddl_lock:
            if partition == _DEFAULT_PARTITION:
                raise InvalidParameter("default partition cannot be deleted")
            found = self._catalog.collection(database, collection)
            dropped = next((p for p in found.partitions if p.name == partition), None)
            if dropped is None:
                raise PartitionNotFound(f"partition not found[partition={partition}]")
            async with self._ordered_ddl() as ts:
                kept = tuple(p for p in found.partitions if p is not dropped)
                await self._catalog.put(replace(found, partitions=kept))
                await self._announce(
                    MsgKind.DROP_PARTITION, ts, found.collection_id, found.vchannels, dropped.partition_id
                )
            await self._invalidate(found)
            await self._querycoord.release(found.collection_id, (dropped.partition_id,))
            await self._datacoord.drop_partition(found.collection_id, dropped.partition_id)

    # aliases

    async def create_alias(self, database: str, collection: str, alias: str) -> None:
        async with self._ddl_lock:
            found = self._real_collection(database, collection)
            taken = self._catalog.find(self._catalog.database(database), alias)
            if taken is not None and taken.name == alias:
                raise AliasConflict(
                    f"collection name [{alias}] conflicts with an existing collection[database={database}]"
                )
            if taken is not None and taken.collection_id != found.collection_id:
                raise AliasConflict(f"{alias} is alias to another collection: {taken.name}")
            if taken is None:
                await self._catalog.put(replace(found, aliases=(*found.aliases, alias)))
                await self._invalidate(found)

    async def drop_alias(self, database: str, alias: str) -> None:
        async with self._ddl_lock:
            try:
                found = self._catalog.aliased(self._catalog.database(database), alias)
            except AliasNotFound:
                return
            await self._catalog.put(_without_alias(found, alias))
            await self._invalidate(found)

    async def alter_alias(self, database: str, collection: str, alias: str) -> None:
        async with self._ddl_lock:
            found = self._real_collection(database, collection)
            before_ = self._catalog.aliased(self._catalog.database(database), alias)
            if before_.collection_id == found.collection_id:
                return
            await self._catalog.put(
                _without_alias(before_, alias), replace(found, aliases=(*found.aliases, alias))
            )
            await self._invalidate(before_)
            await self._invalidate(found)

    def _real_collection(self, database: str, name: str) -> Collection:
        found = self._catalog.collection(database, name)
        if found.name != name:
            raise InvalidParameter(
                f"cannot create or alter an alias of an alias: {name} is an alias of {found.name}"
            )
        return found

    # how a DDL is carried out

    def _place_shards(self, collection_id: CollectionID, shards: int) -> tuple[str, ...]:
        """A pchannel per shard: those that carry the fewest vchannels first."""
        load = {pchannel_name(n): 0 for n in range(self._pchannels_max)}
        for collection in self._catalog.everything():
            for vchannel in collection.vchannels:
                load[pchannel_of(vchannel)] = load.get(pchannel_of(vchannel), 0) + 1
        order = sorted(load, key=lambda p: (load[p], int(p.rsplit("_", 1)[1])))
        return tuple(vchannel_name(order[n % len(order)], collection_id, n) for n in range(shards))

    async def _use_channels(self, vchannels: tuple[str, ...]) -> None:
        await self._sync.use([pchannel_of(v) for v in vchannels], self._oracle.allocate())

    @asynccontextmanager
    async def _ordered_ddl(self) -> AsyncIterator[Timestamp]:
        """A timestamp that no tick reaches before the block has ended."""
        ts = self._oracle.allocate()
        self._sync.begin_ddl(ts)
        try:
            yield ts
        finally:
            self._sync.end_ddl(ts)

    async def _announce(
        self,
        kind: MsgKind,
        ts: Timestamp,
        collection_id: CollectionID,
        vchannels: tuple[str, ...],
        partition_id: PartitionID = ALL_PARTITIONS,
    ) -> dict[str, Checkpoint]:
        """Write the message into every vchannel. Returns where it stands in each."""

        async def write(vchannel: str) -> Checkpoint:
            pchannel = pchannel_of(vchannel)
            tick = self._sync.tick_of(pchannel)
            header = EntryHeader(kind, ts, vchannel, collection_id, partition_id)
            positions = await self._log.append(pchannel, [NewEntry(header)])
            return Checkpoint(before(ts), Position(positions[0]), tick, self._sync.epoch)

        return dict(zip(vchannels, await asyncio.gather(*map(write, vchannels)), strict=True))

    async def _invalidate(self, collection: Collection) -> None:
        await asyncio.gather(
            *(proxy.invalidate_collection(collection.collection_id) for proxy in self._proxies.values())
        )

    async def _sweep(self) -> None:
        """Repeat what a crash may have cut off, and forget dropped collections when their data is gone."""
        for collection in tuple(self._catalog.live()):
            await self._datacoord.watch_channels(collection)
        for collection in self._catalog.dropped():
            async with self._ordered_ddl() as ts:
                await self._announce(
                    MsgKind.DROP_COLLECTION, ts, collection.collection_id, collection.vchannels
                )
            await self._datacoord.drop_collection(collection.collection_id)
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            for collection in self._catalog.dropped():
                if not await self._datacoord.holds_channels(collection.collection_id):
                    await self._catalog.remove(collection)
                    used = {pchannel_of(v) for c in self._catalog.everything() for v in c.vchannels}
                    self._sync.unuse({pchannel_of(v) for v in collection.vchannels} - used)


def _changed(known: Mapping[str, str], added: Mapping[str, str], deleted: tuple[str, ...]) -> dict[str, str]:
    return {k: v for k, v in {**known, **added}.items() if k not in deleted}


def _without_alias(collection: Collection, alias: str) -> Collection:
    return replace(collection, aliases=tuple(a for a in collection.aliases if a != alias))


def _numbered(schema: CollectionSchema) -> CollectionSchema:
    """Field ids in declared order, from the first that is not a system field's."""
    fields = tuple(
        replace(field, field_id=FieldID(SYSTEM_FIELDS_MAX_ID + n)) for n, field in enumerate(schema.fields)
    )
    return replace(schema, fields=fields)


def _same_or_conflict(existing: Collection, request: NewCollection, database: str) -> Collection:
    """Creating a collection again with the same parameters is no error; with others it is."""
    same = (
        existing.name == request.schema.name
        and existing.schema == _numbered(request.schema)
        and len(existing.vchannels) == request.shards
    )
    if not same:
        raise CollectionAlreadyExists(
            f"create duplicate collection with different parameters, collection: "
            f"{request.schema.name}[database={database}]"
        )
    return existing
