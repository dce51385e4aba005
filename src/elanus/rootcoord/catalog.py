"""The catalog: databases, collections and aliases, in memory and in the metadata.

There is one key per database and one per collection (with its partitions and aliases). A change is persisted
first, then shown. Names are resolved only here; an alias is a second name of a collection. Look-ups and
changes cost the same however many collections there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from elanus.core.catalog import Collection, Database, collections_max
from elanus.core.channels import pchannel_of
from elanus.core.errors import (
    AliasNotFound,
    CollectionLimitReached,
    CollectionNotFound,
    DatabaseNotFound,
    RecordTooLarge,
)
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.limits import COLLECTIONS_MAX
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import VALUE_MAX_BYTES, Delete, MetaStore, Put

_DATABASES = "rootcoord/database/"
_COLLECTIONS = "rootcoord/collection/"
_DEFINITION_MAX_BYTES = VALUE_MAX_BYTES - 10_000
"""Less than a record holds: a drop adds to it, and must always be possible."""


class Catalog:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._databases: dict[DatabaseID, Database] = {}
        self._collections: dict[CollectionID, Collection] = {}
        self._live: dict[DatabaseID, dict[CollectionID, None]] = {}
        self._names: dict[tuple[DatabaseID, str], CollectionID] = {}
        """The names and aliases of collections that are not dropped."""
        self._dropped: dict[CollectionID, None] = {}
        self._vchannels: Counter[str] = Counter()

    async def start(self) -> None:
        for _, stored in await self._meta.list(_DATABASES):
            database = msgspec.json.decode(stored.value, type=Database)
            self._databases[database.database_id] = database
        for _, stored in await self._meta.list(_COLLECTIONS):
            collection = msgspec.json.decode(stored.value, type=Collection)
            self._show(collection)

    # databases

    def databases(self) -> tuple[Database, ...]:
        return tuple(sorted(self._databases.values(), key=lambda d: d.database_id))

    def has_database(self, name: str) -> bool:
        return any(d.name == name for d in self._databases.values())

    def database(self, name: str) -> Database:
        """Raises `DatabaseNotFound`."""
        for database in self._databases.values():
            if database.name == name:
                return database
        raise DatabaseNotFound(f"database not found[database={name}]")

    @uncancellable
    async def put_database(self, database: Database) -> None:
        await self._meta.txn([Put(f"{_DATABASES}{database.database_id}", msgspec.json.encode(database))])
        self._databases[database.database_id] = database

    @uncancellable
    async def remove_database(self, database: Database) -> None:
        await self._meta.txn([Delete(f"{_DATABASES}{database.database_id}")])
        del self._databases[database.database_id]

    # collections

    def live(self) -> Iterator[Collection]:
        """Collections that are not dropped."""
        return (c for c in self._collections.values() if c.dropped == NO_TIMESTAMP)

    def live_count(self) -> int:
        return len(self._collections) - len(self._dropped)

    def dropped(self) -> tuple[Collection, ...]:
        return tuple(self._collections[c] for c in self._dropped)

    def dropped_as(self, database: str, name: str) -> tuple[Collection, ...]:
        """Return the dropped collections that had this name in the database, which may have been dropped
        since."""
        others = {d.database_id for d in self._databases.values() if d.name != database}
        return tuple(c for c in self.dropped() if c.name == name and c.database_id not in others)

    def everything(self) -> tuple[Collection, ...]:
        return tuple(self._collections.values())

    def vchannel_counts(self) -> Mapping[str, int]:
        """Return how many vchannels of collections, dropped or not, each pchannel carries; none are left
        out."""
        return self._vchannels

    def is_empty(self, database: Database) -> bool:
        return not self._live.get(database.database_id)

    def in_database(self, database: Database) -> tuple[Collection, ...]:
        found = self._live.get(database.database_id, {})
        return tuple(self._collections[c] for c in sorted(found))

    def count_in(self, database: Database) -> int:
        return len(self._live.get(database.database_id, {}))

    def check_room(self, database: Database) -> None:
        """Check that the database may have a new collection. Raises `CollectionLimitReached`."""
        self.check_room_in(database)
        if self.live_count() >= COLLECTIONS_MAX:
            raise CollectionLimitReached(f"exceeded the limit number of collections[limit={COLLECTIONS_MAX}]")

    def check_room_in(self, database: Database) -> None:
        """The same for a collection that is already in another database."""
        own = collections_max(database.properties)
        if own is not None and self.count_in(database) >= own:
            raise CollectionLimitReached(
                f"exceeded the limit number of collections[dbName={database.name}][limit={own}]"
            )

    def find(self, database: Database, name: str) -> Collection | None:
        """Find a collection by real name or alias."""
        found = self._names.get((database.database_id, name))
        return None if found is None else self._collections[found]

    def record(self, collection_id: CollectionID) -> Collection | None:
        """Return the collection's record, dropped or not."""
        return self._collections.get(collection_id)

    def collection(self, database_name: str, name: str) -> Collection:
        """Return a collection by real name or alias. Raises `DatabaseNotFound`, `CollectionNotFound`."""
        found = self.find(self.database(database_name), name)
        if found is None:
            raise CollectionNotFound(f"collection not found[database={database_name}][collection={name}]")
        return found

    def by_id(self, collection_id: CollectionID) -> Collection:
        """Raises `CollectionNotFound`, for a dropped collection too."""
        found = self._collections.get(collection_id)
        if found is None or found.dropped != NO_TIMESTAMP:
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return found

    def aliased(self, database: Database, alias: str) -> Collection:
        """Raises `AliasNotFound`."""
        found = self.find(database, alias)
        if found is not None and alias in found.aliases:
            return found
        raise AliasNotFound(f"alias not found[database={database.name}][alias={alias}]")

    @uncancellable
    async def put(self, *collections: Collection) -> None:
        """Persist and show collections, in one transaction. Raises `RecordTooLarge`."""
        records = {c.collection_id: msgspec.json.encode(c) for c in collections}
        for collection in collections:
            size_bytes = len(records[collection.collection_id])
            if collection.dropped == NO_TIMESTAMP and size_bytes > _DEFINITION_MAX_BYTES:
                raise RecordTooLarge(
                    f"the definition of collection {collection.name} would have {size_bytes} bytes, at most "
                    f"{_DEFINITION_MAX_BYTES} fit: shorten names, descriptions and properties, or use fewer "
                    "fields or partitions"
                )
        await self._meta.txn([Put(f"{_COLLECTIONS}{c}", record) for c, record in records.items()])
        for collection in collections:  # all of them first: an alias may pass from one to another
            self._unindex(collection.collection_id)
        for collection in collections:
            self._show(collection)

    @uncancellable
    async def remove(self, collection: Collection) -> None:
        await self._meta.txn([Delete(f"{_COLLECTIONS}{collection.collection_id}")])
        self._unindex(collection.collection_id)
        del self._collections[collection.collection_id]

    def _show(self, collection: Collection) -> None:
        collection_id = collection.collection_id
        self._collections[collection_id] = collection
        self._vchannels.update(map(pchannel_of, collection.vchannels))
        if collection.dropped != NO_TIMESTAMP:
            self._dropped[collection_id] = None
            return
        self._live.setdefault(collection.database_id, {})[collection_id] = None
        for name in (collection.name, *collection.aliases):
            self._names[collection.database_id, name] = collection_id

    def _unindex(self, collection_id: CollectionID) -> None:
        known = self._collections.get(collection_id)
        if known is None:
            return
        self._vchannels.subtract(map(pchannel_of, known.vchannels))
        for pchannel in {p for p in map(pchannel_of, known.vchannels) if not self._vchannels[p]}:
            del self._vchannels[pchannel]
        if known.dropped != NO_TIMESTAMP:
            del self._dropped[collection_id]
            return
        of_database = self._live[known.database_id]
        del of_database[collection_id]
        if not of_database:
            del self._live[known.database_id]
        for name in (known.name, *known.aliases):
            self._names.pop((known.database_id, name), None)


def renamed(collection: Collection, name: str, database_id: DatabaseID) -> Collection:
    """Return the collection under another name, changed in its record and its schema."""
    becoming = None if collection.becoming is None else replace(collection.becoming, name=name)
    return replace(
        collection,
        name=name,
        database_id=database_id,
        schema=replace(collection.schema, name=name),
        becoming=becoming,
    )
