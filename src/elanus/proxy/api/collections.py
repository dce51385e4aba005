"""The verbs of collections and their aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from elanus.core.consistency import ConsistencyLevel
from elanus.core.ids import CollectionID
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

if TYPE_CHECKING:  # the cache imports the filter language and the indexes, which the wire does not need
    from elanus.proxy.role.cache import CachedCollection


@dataclass(frozen=True)
class CollectionView:
    """A collection as described. ``name`` is the real name, even if the lookup was by an alias.

    ``schema_ts``, ``truncated`` and ``schema_changes``: see `elanus.core.catalog.Collection`.
    """

    database: str
    collection_id: CollectionID
    name: str
    schema: CollectionSchema
    vchannels: tuple[str, ...]
    pchannels: tuple[str, ...]
    consistency_level: ConsistencyLevel
    aliases: tuple[str, ...]
    properties: Mapping[str, str]
    num_partitions: int
    created: Timestamp
    schema_ts: Timestamp = NO_TIMESTAMP
    truncated: Timestamp = NO_TIMESTAMP
    database_id: int = 0
    schema_changes: int = 0

    @property
    def schema_version(self) -> Timestamp:
        """The number by which clients know the schema."""
        return self.schema_ts or self.created


@dataclass(frozen=True, slots=True)
class CreateCollection:
    """``schema`` has no field ids yet (all 0); the root coordinator numbers the fields."""

    database: str
    schema: CollectionSchema
    shards: int
    consistency_level: ConsistencyLevel
    properties: Mapping[str, str]
    num_partitions: int = 0


class CollectionVerbs(Protocol):
    def create_collection(self, request: CreateCollection) -> None:
        """Raises `InvalidParameter`, `CollectionAlreadyExists`."""
        ...

    def drop_collection(self, database: str, name: str) -> None:
        """Dropping one that does not exist succeeds, as in the reference."""
        ...

    def has_collection(self, database: str, name: str) -> bool: ...
    def collection(self, database: str, name: str) -> CachedCollection:
        """Return what the name or alias refers to now, from the proxy's cache; looked up once per request.

        Raises `CollectionNotFound`, `DatabaseNotFound`.
        """
        ...

    def describe_collection(self, database: str, name: str, collection_id: int = 0) -> CollectionView:
        """Return it from the proxy's cache; by id when the name is empty. Raises `CollectionNotFound`."""
        ...

    def list_collections(self, database: str) -> Sequence[CollectionView]: ...
    def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None: ...
    def alter_collection(
        self, database: str, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None: ...
    def truncate_collection(self, database: str, name: str) -> None:
        """Remove all rows: no read as of a later moment finds them."""
        ...

    def collection_rows(self, database: str, name: str) -> int:
        """Rows of all segments that are not dropped. Deletes are not subtracted, as in the reference."""
        ...

    def create_alias(self, database: str, collection: str, alias: str) -> None: ...
    def drop_alias(self, database: str, alias: str) -> None: ...
    def alter_alias(self, database: str, collection: str, alias: str) -> None: ...
    def describe_alias(self, database: str, alias: str) -> str:
        """Return the collection's name. Raises `AliasNotFound`."""
        ...
