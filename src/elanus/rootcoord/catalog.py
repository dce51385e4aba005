"""The catalog: databases, collections and aliases, in memory and in the metadata.

There is one key per database and one per collection (with its partitions and aliases). A change is persisted
first, then shown. Names are resolved only here; an alias is a second name of a collection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from elanus.core.catalog import Collection, Database
from elanus.core.errors import AliasNotFound, CollectionNotFound, DatabaseNotFound
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import Delete, MetaStore, Put

_DATABASES = "rootcoord/database/"
_COLLECTIONS = "rootcoord/collection/"


class Catalog:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._databases: dict[DatabaseID, Database] = {}
        self._collections: dict[CollectionID, Collection] = {}

    async def start(self) -> None:
        for _, stored in await self._meta.list(_DATABASES):
            database = msgspec.json.decode(stored.value, type=Database)
            self._databases[database.database_id] = database
        for _, stored in await self._meta.list(_COLLECTIONS):
            collection = msgspec.json.decode(stored.value, type=Collection)
            self._collections[collection.collection_id] = collection

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

    def dropped(self) -> tuple[Collection, ...]:
        return tuple(c for c in self._collections.values() if c.dropped != NO_TIMESTAMP)

    def everything(self) -> tuple[Collection, ...]:
        return tuple(self._collections.values())

    def in_database(self, database: Database) -> tuple[Collection, ...]:
        found = (c for c in self.live() if c.database_id == database.database_id)
        return tuple(sorted(found, key=lambda c: c.collection_id))

    def find(self, database: Database, name: str) -> Collection | None:
        """Find a collection by real name or alias."""
        for collection in self.live():
            if collection.database_id == database.database_id and name in (
                collection.name,
                *collection.aliases,
            ):
                return collection
        return None

    def record(self, collection_id: CollectionID) -> Collection | None:
        """The collection's record, dropped or not."""
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
        """Persist and show collections, in one transaction."""
        await self._meta.txn(
            [Put(f"{_COLLECTIONS}{c.collection_id}", msgspec.json.encode(c)) for c in collections]
        )
        for collection in collections:
            self._collections[collection.collection_id] = collection

    @uncancellable
    async def remove(self, collection: Collection) -> None:
        await self._meta.txn([Delete(f"{_COLLECTIONS}{collection.collection_id}")])
        del self._collections[collection.collection_id]


def renamed(collection: Collection, name: str, database_id: DatabaseID) -> Collection:
    """The collection under another name, changed in its record and its schema."""
    return replace(
        collection, name=name, database_id=database_id, schema=replace(collection.schema, name=name)
    )
