"""The root coordinator's interface: the TSO, ids, time ticks, databases, collections, partitions, users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elanus.api.access import AccessApi
from elanus.api.idempotency import repeatable
from elanus.api.snapshots import CloneSource
from elanus.core.catalog import Collection, Database
from elanus.core.consistency import ConsistencyLevel
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID, NodeID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class TickReport:
    """A proxy's report on its writes (ChannelTimeTickMsg).

    On pchannels in ``channels`` it has finished every write up to the given timestamp; on all others
    every write up to ``default_ts``. ``written``: pchannels that it has written to recently. ``demand``:
    see `elanus.core.rate_shares`; only limits that are set and asked for are in it.
    """

    node_id: NodeID
    default_ts: Timestamp
    channels: Mapping[str, Timestamp]
    written: tuple[str, ...] = ()
    demand: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewCollection:
    """``key_partitions``: how many partitions the partition key selects from; 0: there is no such key."""

    database: str
    schema: CollectionSchema
    shards: int
    consistency_level: ConsistencyLevel
    properties: Mapping[str, str]
    key_partitions: int = 0


@dataclass(frozen=True, slots=True)
class CloneRequest:
    """A collection ``name`` with the rows of ``source``; ``job_id``: see `elanus.core.catalog.Origin`."""

    database: str
    name: str
    source: CloneSource
    job_id: int


class ServiceCalls(Protocol):
    """Timestamps, ids and time ticks."""

    @repeatable
    async def alloc_timestamp(self, count: int) -> Timestamp:
        """Return the first of ``count`` consecutive timestamps, all larger than any handed out before."""
        ...

    @repeatable
    async def alloc_ids(self, count: int) -> int:
        """Return the first of ``count`` consecutive ids, unique over the life of the system."""
        ...

    @repeatable
    async def update_channel_time_tick(self, report: TickReport) -> Mapping[str, float]:
        """Once a proxy's first report is accepted, no tick passes what it has not reported as finished.

        Returns the proxy's share of each limit that it reports demand for.
        Raises `NoSession` when the proxy has no session: it has to join again under a new id.
        """
        ...

    @repeatable
    async def tick_now(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """Collect the proxies' reports immediately and write ticks, until those of the pchannels in use reach
        ``at_least``. Bounded by the caller: an older unfinished write delays it. Raises `ChannelRewound` if
        the log of one of them was put back to an older copy, `Unavailable` or `DiskFull` if it takes no
        entry."""
        ...

    @repeatable
    async def fence_gone(self, pchannels: tuple[str, ...]) -> None:
        """Return when the log of these takes no entry any more of a proxy whose session had ended when this
        was called. Raises as `tick_now`."""
        ...

    @repeatable
    async def ticks(self) -> Mapping[str, Timestamp]:
        """Return the last tick written to each pchannel in use."""
        ...

    @repeatable
    async def refused_channels(self) -> Mapping[str, str]:
        """Return why nothing is written to some pchannels, with the remedy."""
        ...

    @repeatable
    async def tick_holders(self) -> Mapping[str, NodeID]:
        """Return the proxy that bounds the next tick of each pchannel in use; 0 if none does."""
        ...


class LookupCalls(Protocol):
    """Definitions as they are. Proxies cache them until they are notified of a change."""

    @repeatable
    async def describe_collection(self, database: str, name: str) -> Collection:
        """By name or alias. Raises `CollectionNotFound`, `DatabaseNotFound`."""
        ...

    @repeatable
    async def collection_by_id(self, collection_id: CollectionID) -> Collection: ...
    @repeatable
    async def list_collections(self, database: str) -> tuple[Collection, ...]:
        """Return the collections of one database; of all databases when the name is empty."""
        ...


class NameCalls(Protocol):
    """Databases, aliases and names."""

    async def create_database(self, name: str, properties: Mapping[str, str]) -> None: ...
    async def drop_database(self, name: str) -> None: ...
    async def alter_database(
        self, name: str, properties: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None: ...
    @repeatable
    async def list_databases(self) -> tuple[Database, ...]: ...

    async def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None: ...
    async def create_alias(self, database: str, collection: str, alias: str) -> None: ...
    async def drop_alias(self, database: str, alias: str) -> None: ...
    async def alter_alias(self, database: str, collection: str, alias: str) -> None: ...


class LifecycleCalls(Protocol):
    """Creating and dropping collections and partitions."""

    async def create_collection(self, request: NewCollection) -> Collection: ...
    async def drop_collection(
        self, database: str, name: str, collection_id: CollectionID | None = None
    ) -> None:
        """``collection_id``: drop this one only. A call that arrives late, or twice, then spares a collection
        that was created under the name since. Raises `CollectionNotFound`."""
        ...

    async def create_partition(self, database: str, collection: str, partition: str) -> None: ...
    async def drop_partition(self, database: str, collection: str, partition: str) -> None: ...


class SchemaCalls(Protocol):
    """Changes of a collection that keep its id."""

    async def alter_collection(
        self, database: str, name: str, properties: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None: ...
    async def alter_field(
        self, database: str, name: str, field: str, params: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        """Raises `CollectionNotFound`, `FieldNotFound`, `InvalidParameter`."""
        ...

    async def add_field(self, database: str, name: str, field: FieldSchema) -> None:
        """Add a nullable field. Raises `CollectionNotFound`, `InvalidParameter`."""
        ...

    async def add_struct(
        self, database: str, name: str, struct: StructSchema, members: tuple[FieldSchema, ...]
    ) -> None:
        """Add a nullable struct array. Raises `CollectionNotFound`, `InvalidParameter`."""
        ...

    async def add_function(
        self,
        database: str,
        name: str,
        field: FieldSchema,
        function: Function,
        index_name: str,
        index_params: Mapping[str, str],
    ) -> None:
        """Add a function with the field that it computes, and an index on it (none without parameters).

        Raises `CollectionNotFound`, `InvalidParameter`.
        """
        ...

    async def set_function(self, database: str, name: str, function: Function, replaced: str) -> None:
        """Add a function whose values are stored to fields that are there, or alter the one of that name.

        ``replaced``: "" to add it. Raises `CollectionNotFound`, `InvalidParameter`.
        """
        ...

    async def drop_field(self, database: str, name: str, field: str, field_id: FieldID) -> None:
        """Drop a field or a struct array, by name or, if that is empty, by id; its indexes go with it.

        Raises `CollectionNotFound`, `InvalidParameter`.
        """
        ...

    async def drop_function(self, database: str, name: str, function: str, with_outputs: bool) -> None:
        """Drop a function, ``with_outputs``: with the fields that it computes. Raises as `drop_field`."""
        ...

    async def truncate_collection(self, collection_id: CollectionID) -> None:
        """Remove all rows. The collection, its partitions, indexes and loads stay."""
        ...


class CollectionCloneCalls(Protocol):
    """New collections with the rows of others."""

    async def clone_collection(self, request: CloneRequest) -> Collection:
        """Make a new collection with the definition, the indexes and the rows of another one. No file is
        copied.

        Raises `CollectionAlreadyExists`, `DatabaseNotFound`, and as `SnapshotCalls.hold_source`.
        """
        ...


class RootCoordApi(
    ServiceCalls,
    LookupCalls,
    NameCalls,
    LifecycleCalls,
    SchemaCalls,
    CollectionCloneCalls,
    AccessApi,
    Protocol,
):
    """All calls of the root coordinator."""
