"""The proxy's metadata cache: resolves the names that users know to ids, schemas and indexes.

It is filled on a miss and emptied by the root coordinator's invalidations. Entries are kept under the
requested name, so an alias has its own entry. Reading is a dictionary lookup from any thread; filling happens
on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from elanus.api.indexcoord import IndexCoordApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.catalog import Collection, Index
from elanus.core.channels import pchannel_of
from elanus.core.errors import IndexNotFound, PartitionNotFound
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.moments import DEFAULT_TIMEZONE, TIMEZONE
from elanus.core.partition_keys import isolates_keys, key_partitions
from elanus.core.rate_limits import Allowed, of_collection, of_database
from elanus.core.requests import window_rows_max
from elanus.core.schema import FieldSchema
from elanus.core.sent_keys import keeps_sent_keys
from elanus.core.time_to_live import expired_until, time_to_live_s
from elanus.core.timestamps import Timestamp
from elanus.index import IndexSpec, resolve_field_index
from elanus.proxy.api.collections import CollectionView
from elanus.proxy.role.plans import Plans


@dataclass(frozen=True)
class CachedCollection:
    """The collection that a name referred to when a request arrived. The request keeps it
    and never looks the name up again.

    A write therefore goes to the collection whose schema its rows were decoded with, whatever the name refers
    to by then. If that collection was dropped, the write raises `CollectionNotFound`.
    """

    view: CollectionView
    partitions: Mapping[str, PartitionID]
    indexes: tuple[Index, ...]

    @property
    def collection_id(self) -> CollectionID:
        return self.view.collection_id

    def partition_id(self, name: str) -> PartitionID:
        """Raises `PartitionNotFound`."""
        try:
            return self.partitions[name]
        except KeyError:
            raise PartitionNotFound(f"partition not found[partition={name}]") from None

    @cached_property
    def key_partitions(self) -> tuple[PartitionID, ...]:
        """The partitions that rows are in by their partition key; none without such a key."""
        return () if self.view.schema.partition_key is None else key_partitions(self.partitions)

    @cached_property
    def isolates_keys(self) -> bool:
        """Whether every search names one value of the partition key."""
        return isolates_keys(self.view.properties, self.view.schema)

    @cached_property
    def keeps_sent_keys(self) -> bool:
        """Whether rows keep the keys that clients send, though keys are automatic."""
        return keeps_sent_keys(self.view.properties)

    def expired_until(self, read_ts: Timestamp) -> Timestamp:
        """Return the timestamp up to which rows have expired for a read as of ``read_ts``; 0: none have."""
        return expired_until(self._ttl_s, read_ts, self.view.truncated)

    @cached_property
    def _ttl_s(self) -> int | None:
        return time_to_live_s(self.view.properties)

    @cached_property
    def allowed(self) -> Allowed:
        """The collection's own switches and rates."""
        return of_collection(self.view.properties)

    @cached_property
    def window_rows_max(self) -> int:
        """How many rows offset and limit of one search or query may reach over."""
        return window_rows_max(self.view.properties)

    @property
    def timezone(self) -> str:
        """The time zone of moments that are written, or shown, without another one."""
        return self.view.properties.get(TIMEZONE, DEFAULT_TIMEZONE)

    @cached_property
    def plans(self) -> Plans:
        return Plans(self.view.schema)

    @cached_property
    def _specs(self) -> dict[FieldID, IndexSpec]:
        return {}

    def index_spec(self, field: FieldSchema) -> IndexSpec:
        """Return how a field is indexed. Raises `IndexNotFound`."""
        spec = self._specs.get(field.field_id)
        if spec is None:
            index = next((index for index in self.indexes if index.field_id == field.field_id), None)
            if index is None:
                raise IndexNotFound(
                    f"index not found[collection={self.view.name}][field={field.name}]: create an index first"
                )
            spec = self._specs[field.field_id] = resolve_field_index(index.params, field)
        return spec


class MetaCache:
    """Collections by database and name, and what databases allow. Filled on a miss, emptied from outside."""

    def __init__(self, rootcoord: RootCoordApi, indexcoord: IndexCoordApi) -> None:
        self._rootcoord = rootcoord
        self._indexcoord = indexcoord
        self._entries: dict[tuple[str, str], CachedCollection] = {}
        self._invalidations = 0
        self.databases: Mapping[str, Allowed] | None = None
        """The switches of each database, None while they are not known. Safe from any thread."""

    def get(self, database: str, name: str) -> CachedCollection | None:
        """Return the cached entry, if any. Safe from any thread."""
        return self._entries.get((database, name))

    async def fill(self, database: str, name: str) -> CachedCollection:
        """Fetch from the coordinators. Raises `CollectionNotFound`, `DatabaseNotFound`.

        An entry fetched while an invalidation arrived is returned but not cached.
        """
        before = self._invalidations
        collection = await self._rootcoord.describe_collection(database, name)
        entry = await self._entry(database, collection)
        if before == self._invalidations:
            self._entries[(database, name)] = entry
        return entry

    async def _entry(self, database: str, collection: Collection) -> CachedCollection:
        indexes = await self._indexcoord.indexes(collection.collection_id)
        partitions = {p.name: p.partition_id for p in collection.partitions}
        return CachedCollection(collection_view(database, collection), partitions, indexes)

    async def fill_databases(self) -> Mapping[str, Allowed]:
        """Fetch what the databases allow. As `fill`, kept unless an invalidation arrived meanwhile."""
        before = self._invalidations
        databases = await self._rootcoord.list_databases()
        found = {database.name: of_database(database.properties) for database in databases}
        if before == self._invalidations:
            self.databases = found
        return found

    def invalidate_databases(self) -> None:
        """Forget the properties of databases. Must run on the event loop."""
        self._invalidations += 1
        self.databases = None

    def invalidate(self, collection_id: CollectionID) -> None:
        """Forget a collection under all its names. Must run on the event loop."""
        self._invalidations += 1
        for key in [k for k, e in self._entries.items() if e.collection_id == collection_id]:
            self._entries.pop(key, None)

    def invalidate_all(self) -> None:
        """Forget every collection and database. Must run on the event loop."""
        self.invalidate_databases()
        self._entries.clear()


def collection_view(database: str, collection: Collection) -> CollectionView:
    return CollectionView(
        database=database,
        collection_id=collection.collection_id,
        name=collection.name,
        schema=collection.schema,
        vchannels=collection.vchannels,
        pchannels=tuple(map(pchannel_of, collection.vchannels)),
        consistency_level=collection.consistency_level,
        aliases=collection.aliases,
        properties=collection.properties,
        num_partitions=len(collection.partitions),
        created=collection.created,
        schema_ts=collection.schema_ts,
        truncated=collection.truncated,
        database_id=collection.database_id,
        schema_changes=collection.schema_changes,
    )
