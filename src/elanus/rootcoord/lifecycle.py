"""Creating and dropping collections and partitions, in order with the writes.

An operation succeeds with the catalog's write. A creation writes its message first: a crash between the two
leaves a message about something that does not exist, which every reader ignores. A drop writes the catalog
first. The steps that follow (message, release, indexes, segments) are repeatable, and are repeated after a
restart or an error until they are complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from elanus.api.cache_invalidation import Invalidations
from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.rootcoord import NewCollection
from elanus.api.snapshots import DroppedCollection
from elanus.core.catalog import Collection, Database, Partition, collections_max
from elanus.core.errors import (
    CollectionAlreadyExists,
    CollectionLimitReached,
    CollectionNotFound,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.limits import COLLECTIONS_MAX, PARTITIONS_MAX, SYSTEM_FIELDS_MAX_ID
from elanus.core.messages import MsgKind
from elanus.core.moments import TIMEZONE
from elanus.core.partition_keys import partition_names
from elanus.core.schema import CollectionSchema, DataType
from elanus.core.segments import SegmentState
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.rootcoord.announcer import Announcer
from elanus.rootcoord.catalog import Catalog
from elanus.rootcoord.definitions import Definitions
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.tso import TimestampOracle

_DEFAULT_PARTITION = "_default"
_log = structlog.get_logger("rootcoord")


@dataclass(frozen=True, slots=True)
class OtherCoordinators:
    """The other coordinators, which are involved in creating and dropping a collection."""

    data: DataCoordApi
    index: IndexCoordApi
    query: QueryCoordApi


class Lifecycle(Definitions):
    def __init__(
        self,
        catalog: Catalog,
        ids: IdAllocator,
        oracle: TimestampOracle,
        proxies: Invalidations,
        announcer: Announcer,
        peers: OtherCoordinators,
    ) -> None:
        super().__init__(catalog, ids, oracle, proxies)
        self._announcer = announcer
        self._peers = peers
        self._cut_off = 1
        """How often the catalog changed without the others certainly knowing: once before each start."""
        self._finished = 0
        """How many of these have been completed."""

    # collections

    async def create_collection(self, request: NewCollection) -> Collection:
        """Repeating it with the same parameters is not an error, and completes an interrupted creation."""
        async with self._ddl_lock:
            database = self._catalog.database(request.database)
            existing = self._catalog.find(database, request.schema.name)
            if existing is not None:
                collection = _same_or_conflict(existing, request, database.name)
            else:
                self._check_room(database)
                await self._invalidations.all_confirmed()  # another may just have left the name
                collection = await self._create(request)
            with self._or_later():
                await self._peers.data.watch_channels(collection)
            return collection

    def _check_room(self, database: Database) -> None:
        """Check that the database may have one more collection. Raises `CollectionLimitReached`."""
        own = collections_max(database.properties)
        if own is not None and self._catalog.count_in(database) >= own:
            raise CollectionLimitReached(
                f"exceeded the limit number of collections[dbName={database.name}][limit={own}]"
            )
        if self._catalog.live_count() >= COLLECTIONS_MAX:
            raise CollectionLimitReached(f"exceeded the limit number of collections[limit={COLLECTIONS_MAX}]")

    async def _complete_clone(self, collection: Collection) -> Collection:
        """Complete a clone whose first rows are there; returns the collection then. Does nothing for any
        other."""
        return collection

    async def _create(self, request: NewCollection) -> Collection:
        names = partition_names(request.key_partitions) or (_DEFAULT_PARTITION,)
        collection_id = CollectionID(await self._ids.allocate(1 + len(names)))
        vchannels = self._announcer.place_shards(
            collection_id, request.shards, self._catalog.vchannel_counts()
        )
        await self._announcer.use(vchannels)
        async with self._announcer.barrier() as ts:
            starts = await self._announcer.announce(MsgKind.CREATE_COLLECTION, ts, collection_id, vchannels)
            database = self._catalog.database(request.database)
            collection = Collection(
                collection_id=collection_id,
                database_id=database.database_id,
                name=request.schema.name,
                schema=_numbered(request.schema),
                vchannels=vchannels,
                starts=starts,
                partitions=tuple(
                    Partition(PartitionID(collection_id + n), name, ts) for n, name in enumerate(names, 1)
                ),
                consistency_level=request.consistency_level,
                created=ts,
                properties=_inherited(database, request.schema) | dict(request.properties),
            )
            with self._or_later():
                await self._catalog.put(collection)
        return collection

    async def drop_collection(
        self, database: str, name: str, collection_id: CollectionID | None = None
    ) -> None:
        async with self._ddl_lock:
            await self._finish_drops()
            collection = self._catalog.collection(database, name)
            if collection_id not in (None, collection.collection_id):
                raise CollectionNotFound(
                    f"collection {collection_id} was dropped already; {name} is another one now"
                )
            if collection.name != name:
                raise InvalidParameter(f"cannot drop the collection via alias = {name}")
            if collection.aliases:
                raise InvalidParameter(
                    f"unable to drop the collection [{name}] because it has associated aliases "
                    f"[{' '.join(collection.aliases)}], please remove all aliases before dropping the "
                    "collection"
                )
            with self._or_later():
                async with self._announcer.barrier() as ts:
                    notifications = await self._begin_change(replace(collection, dropped=ts))
                    await self._announcer.announce(
                        MsgKind.DROP_COLLECTION, ts, collection.collection_id, collection.vchannels
                    )
                await self._let_go(replace(collection, dropped=ts))
            await self._invalidations.confirmed(notifications)

    async def _let_go(self, collection: Collection) -> None:
        """Release the memory first, then the definitions, then the data."""
        collection_id = collection.collection_id
        record = DroppedCollection(collection, await self._peers.index.indexes(collection_id))
        await self._peers.query.release(collection_id, ())
        await self._peers.index.drop_collection(collection_id)
        await self._peers.data.drop_collection(collection_id, record)

    # partitions

    async def create_partition(self, database: str, collection: str, partition: str) -> None:
        async with self._ddl_lock:
            found = self._catalog.collection(database, collection)
            if any(p.name == partition for p in found.partitions):
                await self._invalidations.all_confirmed()
                return
            if len(found.partitions) >= PARTITIONS_MAX:
                raise InvalidParameter(
                    f"partition number ({len(found.partitions)}) exceeds max configuration ({PARTITIONS_MAX})"
                    f", collection: {found.name}"
                )
            await self._invalidations.all_confirmed()  # another may just have left the name
            partition_id = PartitionID(await self._ids.allocate(1))
            async with self._announcer.barrier() as ts:
                await self._announcer.announce(
                    MsgKind.CREATE_PARTITION, ts, found.collection_id, found.vchannels, partition_id
                )
                added = (*found.partitions, Partition(partition_id, partition, ts))
                notifications = await self._begin_change(replace(found, partitions=added))
            await self._invalidations.confirmed(notifications)

    async def drop_partition(self, database: str, collection: str, partition: str) -> None:
        async with self._ddl_lock:
            if partition == _DEFAULT_PARTITION:
                raise InvalidParameter("default partition cannot be deleted")
            found = self._catalog.collection(database, collection)
            dropped = next((p for p in found.partitions if p.name == partition), None)
            if dropped is None:
                await self._finish_leaving(found)
                raise PartitionNotFound(f"partition not found[partition={partition}]")
            kept = replace(
                found,
                partitions=tuple(p for p in found.partitions if p is not dropped),
                leaving=(*found.leaving, dropped.partition_id),
            )
            with self._or_later():
                await self._end_partition(kept, dropped.partition_id)

    async def _end_partition(self, kept: Collection, partition_id: PartitionID) -> None:
        """Make ``kept``, which lacks the partition, the collection, and notify every role concerned.

        The partition is ``leaving`` until that is done, so a successor completes it, even if no row of the
        partition is known yet: a proxy that does not know of the drop may still open a segment in it.
        """
        async with self._announcer.barrier() as ts:
            notifications = await self._begin_change(kept)
            await self._announcer.announce(
                MsgKind.DROP_PARTITION, ts, kept.collection_id, kept.vchannels, partition_id
            )
        await self._peers.query.release(kept.collection_id, (partition_id,))
        await self._peers.data.drop_partition(kept.collection_id, partition_id)
        await self._invalidations.confirmed(notifications)
        gone = tuple(p for p in kept.leaving if p != partition_id)
        await self._catalog.put(replace(kept, leaving=gone))

    # interrupted operations

    @contextmanager
    def _or_later(self) -> Iterator[None]:
        """If the block fails after the catalog has changed, the next tidying completes the rest."""
        done = False
        try:
            yield
            done = True
        finally:
            self._cut_off += not done

    @property
    def _unfinished(self) -> bool:
        return self._finished < self._cut_off

    async def tidy(self) -> None:
        """Complete what a crash or an error interrupted; forget dropped collections without data."""
        if self._unfinished:
            cut_off = self._cut_off
            for collection in self._catalog.everything():
                async with self._ddl_lock:
                    await self._finish(collection.collection_id)
            self._finished = cut_off
        for collection in self._catalog.dropped():
            if not await self._peers.data.holds_channels(collection.collection_id):
                async with self._ddl_lock:
                    if self._unfinished:  # perhaps this very drop: proxies may still know the name
                        return
                    await self._catalog.remove(collection)
                    self._announcer.unuse(collection.vchannels, self._catalog.vchannel_counts())

    async def _finish_drops(self) -> None:
        """Called before a "collection not found" answer: it must then be true for every role."""
        if self._unfinished:
            for collection in tuple(self._catalog.dropped()):
                await self._finish(collection.collection_id)

    async def _finish_leaving(self, collection: Collection) -> None:
        """Called before a "partition not found" answer, as `_finish_drops`."""
        if collection.leaving:
            await self._finish(collection.collection_id)

    async def _finish(self, collection_id: CollectionID) -> None:
        """Complete what was interrupted; every step is repeatable."""
        collection = self._catalog.record(collection_id)
        if collection is None:
            return
        if collection.dropped != NO_TIMESTAMP:
            async with self._announcer.barrier() as ts:
                await self._announcer.announce(
                    MsgKind.DROP_COLLECTION, ts, collection_id, collection.vchannels
                )
            await self._let_go(collection)
            await self._invalidations.all_confirmed()
            return
        await self._peers.data.watch_channels(collection)
        await self._complete_clone(collection)
        segments = await self._peers.data.segments(collection_id)
        held = {s.partition_id for s in segments if s.state is not SegmentState.DROPPED}
        leftover = held - {p.partition_id for p in collection.partitions}
        for partition_id in sorted(leftover.union(collection.leaving)):
            _log.info("partition drop resumed", collection=collection_id, partition=partition_id)
            await self._end_partition(self._catalog.by_id(collection_id), partition_id)


def _inherited(database: Database, schema: CollectionSchema) -> dict[str, str]:
    """Return the properties that a new collection takes from its database: the time zone of its moments."""
    zone = database.properties.get(TIMEZONE)
    has_moments = any(field.data_type is DataType.TIMESTAMPTZ for field in schema.fields)
    return {TIMEZONE: zone} if zone and has_moments else {}


def _numbered(schema: CollectionSchema) -> CollectionSchema:
    """Number the fields in declared order, from the first id that is not a system field's."""
    fields = tuple(
        replace(field, field_id=FieldID(SYSTEM_FIELDS_MAX_ID + n)) for n, field in enumerate(schema.fields)
    )
    structs = tuple(
        replace(struct, field_id=FieldID(SYSTEM_FIELDS_MAX_ID + len(fields) + n))
        for n, struct in enumerate(schema.structs)
    )
    return replace(schema, fields=fields, structs=structs)


def _same_or_conflict(existing: Collection, request: NewCollection, database: str) -> Collection:
    same = (
        existing.schema == _numbered(request.schema)
        and len(existing.vchannels) == request.shards
        and request.key_partitions in (0, len(existing.partitions))
    )
    if existing.name != request.schema.name:
        raise CollectionAlreadyExists(
            f"collection name [{request.schema.name}] conflicts with an existing alias, please choose a "
            f"unique name[database={database}]: it is an alias of {existing.name}"
        )
    if not same:
        raise CollectionAlreadyExists(
            f"create duplicate collection with different parameters, collection: "
            f"{request.schema.name}[database={database}]"
        )
    return existing
