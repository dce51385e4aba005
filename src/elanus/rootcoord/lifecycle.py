"""Creating and dropping collections and partitions, in order with the writes.

An operation succeeds with the catalog's write. A creation writes its message first: a crash between the two
leaves a message about something that does not exist, which every reader ignores. A drop writes the catalog
first; what follows is in `elanus.rootcoord.completion`.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.api.datacoord import DataCoordApi
from elanus.api.rootcoord import NewCollection
from elanus.core.catalog import Collection, Database, Partition
from elanus.core.errors import (
    CollectionAlreadyExists,
    CollectionNotFound,
    DatabaseNotFound,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.limits import PARTITIONS_MAX, SYSTEM_FIELDS_MAX_ID
from elanus.core.messages import MsgKind
from elanus.core.moments import TIMEZONE
from elanus.core.names import DEFAULT_PARTITION, check_dropped_partition
from elanus.core.partition_keys import partition_names
from elanus.core.schema import CollectionSchema
from elanus.rootcoord.announcer import Announcer
from elanus.rootcoord.completion import Completion
from elanus.rootcoord.definitions import Definitions


class Lifecycle:
    """Implements `elanus.api.rootcoord.LifecycleCalls`. ``completion`` completes what is interrupted here."""

    def __init__(
        self,
        definitions: Definitions,
        announcer: Announcer,
        data: DataCoordApi,
        completion: Completion,
    ) -> None:
        self._definitions = definitions
        self._catalog = definitions.catalog
        self._announcer = announcer
        self._data = data
        self._completion = completion

    # collections

    async def create_collection(self, request: NewCollection) -> Collection:
        """Repeating it with the same parameters is not an error, and completes an interrupted creation."""
        async with self._definitions.lock:
            database = self._catalog.database(request.database)
            existing = self._catalog.find(database, request.schema.name)
            if existing is not None:
                collection = _same_or_conflict(existing, request, database.name)
            else:
                self._catalog.check_room(database)
                await self._definitions.invalidations.all_confirmed()  # another may just have left the name
                collection = await self._create(request)
            with self._completion.or_later(collection.collection_id):
                await self._data.watch_channels(collection)
            return collection

    async def _create(self, request: NewCollection) -> Collection:
        names = partition_names(request.key_partitions) or (DEFAULT_PARTITION,)
        collection_id = CollectionID(await self._definitions.ids.allocate(1 + len(names)))
        vchannels = self._announcer.place_shards(
            collection_id, request.shards, self._catalog.vchannel_counts()
        )
        await self._announcer.use(vchannels)
        async with self._announcer.barrier(vchannels) as ts:
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
                properties=_inherited(database) | dict(request.properties),
            )
            with self._completion.or_later(collection_id):
                await self._catalog.put(collection)
        return collection

    async def drop_collection(
        self, database: str, name: str, collection_id: CollectionID | None = None
    ) -> None:
        async with self._definitions.lock:
            try:
                collection = self._named(database, name, collection_id)
            except (CollectionNotFound, DatabaseNotFound):
                await self._completion.finish_drops(database, name, collection_id)
                raise
            if collection.name != name:
                raise InvalidParameter(f"cannot drop the collection via alias = {name}")
            if collection.aliases:
                raise InvalidParameter(
                    f"unable to drop the collection [{name}] because it has associated aliases "
                    f"[{' '.join(collection.aliases)}], please remove all aliases before dropping the "
                    "collection"
                )
            self._announcer.check_taken(collection.vchannels)
            with self._completion.or_later(collection.collection_id):
                async with self._announcer.barrier(collection.vchannels) as ts:
                    notifications = await self._definitions.begin_change(replace(collection, dropped=ts))
                    await self._announcer.announce(
                        MsgKind.DROP_COLLECTION, ts, collection.collection_id, collection.vchannels
                    )
                await self._completion.release_dropped(replace(collection, dropped=ts))
            await self._definitions.invalidations.confirmed(notifications)

    def _named(self, database: str, name: str, collection_id: CollectionID | None) -> Collection:
        collection = self._catalog.collection(database, name)
        if collection_id not in (None, collection.collection_id):
            raise CollectionNotFound(
                f"collection {collection_id} was dropped already; {name} is another one now"
            )
        return collection

    # partitions

    async def create_partition(self, database: str, collection: str, partition: str) -> None:
        async with self._definitions.lock:
            found = self._catalog.collection(database, collection)
            if any(p.name == partition for p in found.partitions):
                await self._definitions.invalidations.all_confirmed()
                return
            if len(found.partitions) >= PARTITIONS_MAX:
                raise InvalidParameter(
                    f"partition number ({len(found.partitions)}) exceeds max configuration ({PARTITIONS_MAX})"
                    f", collection: {found.name}"
                )
            self._announcer.check_taken(found.vchannels)
            await self._definitions.invalidations.all_confirmed()  # another may just have left the name
            partition_id = PartitionID(await self._definitions.ids.allocate(1))
            async with self._announcer.barrier(found.vchannels) as ts:
                await self._announcer.announce(
                    MsgKind.CREATE_PARTITION, ts, found.collection_id, found.vchannels, partition_id
                )
                added = (*found.partitions, Partition(partition_id, partition, ts))
                notifications = await self._definitions.begin_change(replace(found, partitions=added))
            await self._definitions.invalidations.confirmed(notifications)

    async def drop_partition(self, database: str, collection: str, partition: str) -> None:
        async with self._definitions.lock:
            check_dropped_partition(partition)
            found = self._catalog.collection(database, collection)
            dropped = next((p for p in found.partitions if p.name == partition), None)
            if dropped is None:
                await self._completion.finish_leaving(found)
                raise PartitionNotFound(f"partition not found[partition={partition}]")
            self._announcer.check_taken(found.vchannels)
            kept = replace(
                found,
                partitions=tuple(p for p in found.partitions if p is not dropped),
                leaving=(*found.leaving, dropped.partition_id),
            )
            with self._completion.or_later(found.collection_id):
                await self._completion.end_partition(kept, dropped.partition_id)


def _inherited(database: Database) -> dict[str, str]:
    """Return the properties that a new collection takes from its database: the time zone.

    A collection without moments takes it, too: a field of moments may be added later.
    """
    zone = database.properties.get(TIMEZONE)
    return {TIMEZONE: zone} if zone else {}


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
    if existing.name != request.schema.name:
        raise CollectionAlreadyExists(
            f"collection name [{request.schema.name}] conflicts with an existing alias, please choose a "
            f"unique name[database={database}]: it is an alias of {existing.name}"
        )
    if others := _differences(existing, request):
        raise CollectionAlreadyExists(
            "create duplicate collection with different parameters, collection: "
            f"{request.schema.name}[database={database}]: it has {', '.join(others)}: "
            "alter it, or drop it first"
        )
    return existing


def _differences(existing: Collection, request: NewCollection) -> list[str]:
    """Return what a collection has otherwise than it is asked for. It may have further properties."""
    partitions = len(existing.partitions)
    level, asked = existing.consistency_level, request.consistency_level
    found = [] if existing.schema == _numbered(request.schema) else ["another schema"]
    if len(existing.vchannels) != request.shards:
        found.append(f"{len(existing.vchannels)} shards, not {request.shards}")
    if request.key_partitions not in (0, partitions):
        found.append(f"{partitions} partitions, not {request.key_partitions}")
    if level != asked:
        found.append(f"the consistency level {level.name.capitalize()}, not {asked.name.capitalize()}")
    for name, value in request.properties.items():
        if existing.properties.get(name) != value:
            found.append(f"{name} {existing.properties.get(name, 'unset')}, not {value}")
    return found
