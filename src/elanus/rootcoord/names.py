"""Definitions that only change the catalog: databases, aliases, names and properties.

No reader of a channel needs to read them in order with the writes, because messages carry ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elanus.core import names
from elanus.core.catalog import Collection, Database
from elanus.core.errors import (
    AliasAlreadyExists,
    AliasConflict,
    AliasNotFound,
    CollectionNotFound,
    DatabaseLimitReached,
    InvalidParameter,
)
from elanus.core.ids import DatabaseID
from elanus.core.limits import DATABASES_MAX
from elanus.core.property_changes import changed_properties
from elanus.core.timestamps import Timestamp
from elanus.rootcoord.catalog import renamed
from elanus.rootcoord.definitions import Definitions

DEFAULT_DATABASE = Database(DatabaseID(1), names.DEFAULT_DATABASE, Timestamp(0))


class Names:
    """Implements `elanus.api.rootcoord.NameCalls`."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._catalog = definitions.catalog

    # databases

    async def create_database(self, name: str, properties: Mapping[str, str]) -> None:
        async with self._definitions.lock:
            if self._catalog.has_database(name):
                raise InvalidParameter(f"database already exist: {name}")
            if len(self._catalog.databases()) >= DATABASES_MAX:
                raise DatabaseLimitReached(f"exceeded the limit number of database[limit={DATABASES_MAX}]")
            database_id = DatabaseID(await self._definitions.ids.allocate(1))
            await self._definitions.change_database(
                Database(database_id, name, self._definitions.oracle.allocate(), dict(properties))
            )

    async def drop_database(self, name: str) -> None:
        async with self._definitions.lock:
            if name == DEFAULT_DATABASE.name:
                raise InvalidParameter("can not drop default database")
            database = self._catalog.database(name)
            if not self._catalog.is_empty(database):
                raise InvalidParameter(
                    f"database:{name} not empty, must drop all collections before drop database"
                )
            await self._catalog.remove_database(database)

    async def alter_database(
        self, name: str, properties: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        async with self._definitions.lock:
            database = self._catalog.database(name)
            changed = changed_properties(database.properties, properties, delete_keys)
            await self._definitions.change_database(replace(database, properties=changed))

    async def list_databases(self) -> tuple[Database, ...]:
        return self._catalog.databases()

    # names and properties of a collection

    async def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None:
        async with self._definitions.lock:
            collection = self._catalog.collection(database, old)
            if collection.name != old:
                raise InvalidParameter(f"unsupported use an alias to rename collection, alias:{old}")
            target = self._catalog.database(new_database or database)
            if new == old and target.database_id == collection.database_id:
                raise InvalidParameter(f"collection name or database name should be different: {new}")
            taken = self._catalog.find(target, new)
            if taken is not None:
                raise InvalidParameter(
                    f"duplicated new collection name {target.name}:{new} with other collection name or alias"
                )
            if target.database_id != collection.database_id:
                if collection.aliases:
                    raise InvalidParameter(
                        "fail to rename db name, must drop all aliases of this collection before rename"
                    )
                self._catalog.check_room_in(target)
            await (
                self._definitions.invalidations.all_confirmed()
            )  # another collection may just have left the name
            await self._definitions.change(renamed(collection, new, target.database_id))

    # aliases

    async def create_alias(self, database: str, collection: str, alias: str) -> None:
        async with self._definitions.lock:
            found = self._real_collection(database, collection)
            taken = self._catalog.find(self._catalog.database(database), alias)
            self._refuse_collections_name(database, taken, alias)
            if taken is not None and taken.collection_id != found.collection_id:
                raise AliasAlreadyExists(
                    f"{alias} is alias to another collection: {taken.name}: "
                    f"alias already exist[database={database}][alias={alias}]"
                )
            await (
                self._definitions.invalidations.all_confirmed()
            )  # of this very change, or of one that freed the name
            if taken is None:
                await self._definitions.change(replace(found, aliases=(*found.aliases, alias)))

    async def drop_alias(self, database: str, alias: str) -> None:
        """Drop an alias. Dropping one that does not exist succeeds."""
        async with self._definitions.lock:
            try:
                found = self._catalog.aliased(self._catalog.database(database), alias)
            except AliasNotFound:
                await self._definitions.invalidations.all_confirmed()
                return
            await self._definitions.change(_without_alias(found, alias))

    async def alter_alias(self, database: str, collection: str, alias: str) -> None:
        """Make the alias name another collection, in one step: it exists at every moment."""
        async with self._definitions.lock:
            found = self._real_collection(database, collection)
            known = self._catalog.database(database)
            self._refuse_collections_name(database, self._catalog.find(known, alias), alias)
            former = self._catalog.aliased(known, alias)
            if former.collection_id == found.collection_id:
                await self._definitions.invalidations.all_confirmed()
                return
            await self._definitions.change(
                _without_alias(former, alias), replace(found, aliases=(*found.aliases, alias))
            )

    def _refuse_collections_name(self, database: str, taken: Collection | None, alias: str) -> None:
        if taken is not None and taken.name == alias:
            raise AliasConflict(f"alias and collection name conflict[database={database}][alias={alias}]")

    def _real_collection(self, database: str, name: str) -> Collection:
        """Find a collection by real name, because an alias cannot have an alias. Raises
        `CollectionNotFound`."""
        found = self._catalog.collection(database, name)
        if found.name != name:
            raise CollectionNotFound(
                f"collection not found[database={database}][collection={name}]: "
                f"it is an alias of {found.name}, and an alias needs a collection's own name"
            )
        return found


def _without_alias(collection: Collection, alias: str) -> Collection:
    return replace(collection, aliases=tuple(a for a in collection.aliases if a != alias))
