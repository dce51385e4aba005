"""Databases, collections, aliases and partitions: all through the DdQueue."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from elanus.api.rootcoord import NewCollection, RootCoordApi
from elanus.core.catalog import Database, Partition, check_database_numbers
from elanus.core.errors import (
    AliasNotFound,
    CollectionNotFound,
    DatabaseNotFound,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.ids import CollectionID
from elanus.core.moments import check_timezone
from elanus.core.names import (
    check_alias,
    check_collection_name,
    check_database_name,
    check_dropped_partition,
    check_partition_name,
)
from elanus.core.partition_keys import checked_partitions, isolates_keys
from elanus.core.property_changes import check_description, check_property_count
from elanus.core.rate_limits import EVERYTHING, Action, check_properties, of_collection, refuse_denied
from elanus.core.requests import checked_shards
from elanus.core.schema_rules import check_schema
from elanus.core.segment_filter import property_ratio
from elanus.core.segments import SegmentState
from elanus.core.sent_keys import keeps_sent_keys
from elanus.core.target_recall import property_target
from elanus.core.time_to_live import checked_ttl_field, time_to_live_s
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.core.warmup import check_collection_warmups
from elanus.proxy.api.collections import CollectionView, CreateCollection
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.proxy.verbs.family import VerbFamily, refuse_partitions

_NONE = CollectionID(0)
"""No collection has this id."""


class Definitions(VerbFamily):
    @property
    def _root(self) -> RootCoordApi:
        return self._proxy.coordinators.root

    # databases

    def create_database(self, name: str, properties: Mapping[str, str]) -> None:
        check_database_name(name)
        check_property_count(properties, f"database {name}")
        check_timezone(properties)
        check_properties(properties)
        check_database_numbers(properties)
        self._proxy.define("create database", lambda: self._root.create_database(name, properties))

    def drop_database(self, name: str) -> None:
        """Drop a database. Dropping one that does not exist succeeds, as in the reference."""

        async def drop_if_there() -> None:
            try:
                await self._root.drop_database(name)
            except DatabaseNotFound:
                return

        self._proxy.define("drop database", drop_if_there)

    def list_databases(self) -> Sequence[Database]:
        return self._proxy.define("list databases", self._root.list_databases)

    def describe_database(self, name: str) -> Database:
        for database in self.list_databases():
            if database.name == name:
                return database
        raise DatabaseNotFound(f"database not found[database={name}]")

    def alter_database(
        self, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None:
        if not set_properties and not delete_keys:
            raise InvalidParameter(
                "alter database with empty properties and delete keys, "
                "expected to set either properties or delete keys"
            )
        check_timezone(set_properties)
        check_properties(set_properties)
        check_database_numbers(set_properties)
        self._proxy.define(
            "alter database", lambda: self._root.alter_database(name, set_properties, tuple(delete_keys))
        )

    # collections

    def create_collection(self, request: CreateCollection) -> None:
        check_description(request.schema.description)
        check_property_count(request.properties, f"collection {request.schema.name}")
        time_to_live_s(request.properties)
        check_timezone(request.properties)
        check_collection_warmups(request.properties)
        check_properties(request.properties)
        keeps_sent_keys(request.properties)
        property_target(request.properties)
        property_ratio(request.properties)
        self._proxy.admission.allow_in(Action.DDL, request.database)
        check_schema(request.schema)
        isolates_keys(request.properties, request.schema)
        schema = replace(request.schema, ttl_field=checked_ttl_field(request.properties, request.schema))
        shards = checked_shards(request.shards)
        self._proxy.embedder.check(schema)
        new = NewCollection(
            request.database,
            schema,
            shards,
            request.consistency_level,
            request.properties,
            checked_partitions(request.schema, request.num_partitions),
        )
        self._proxy.define("create collection", lambda: self._root.create_collection(new))

    def drop_collection(self, database: str, name: str) -> None:
        """Drop a collection. If it or its database does not exist this succeeds, as in the reference."""
        self._proxy.admission.allow_in(Action.DDL, database)

        async def drop_if_there() -> None:
            try:
                found = await self._root.describe_collection(database, name)
                refuse_denied(Action.DDL, database, EVERYTHING, name, of_collection(found.properties))
                named = found.collection_id
            except CollectionNotFound:
                named = _NONE  # the drop is requested anyway: it finishes one that was interrupted
            except DatabaseNotFound:
                return
            with contextlib.suppress(CollectionNotFound):
                await self._root.drop_collection(database, name, named)

        self._proxy.define("drop collection", drop_if_there)

    def has_collection(self, database: str, name: str) -> bool:
        """A database that does not exist has no collections: that is no error, as in the reference."""
        try:
            self._proxy.define("has collection", lambda: self._root.describe_collection(database, name))
        except (CollectionNotFound, DatabaseNotFound):
            return False
        return True

    def collection(self, database: str, name: str) -> CachedCollection:
        return self._collection(database, name)

    def describe_collection(self, database: str, name: str, collection_id: int = 0) -> CollectionView:
        if name or not collection_id:
            return self._collection(database, name).view
        return self._collection_by_id(CollectionID(collection_id)).view

    def list_collections(self, database: str) -> Sequence[CollectionView]:
        found = self._proxy.define("list collections", lambda: self._root.list_collections(database))
        return [collection_view(database, collection) for collection in found]

    def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None:
        check_collection_name(new)
        for changed in dict.fromkeys((database, new_database or database)):
            self._proxy.admission.allow_in(Action.DDL, changed)
        self._proxy.define(
            "rename collection", lambda: self._root.rename_collection(database, old, new, new_database)
        )

    def collection_rows(self, database: str, name: str) -> int:
        return self._rows(self._collection(database, name), None)

    # aliases

    def create_alias(self, database: str, collection: str, alias: str) -> None:
        check_alias(alias)
        self._proxy.admission.allow_in(Action.DDL, database)
        self._proxy.define("create alias", lambda: self._root.create_alias(database, collection, alias))

    def drop_alias(self, database: str, alias: str) -> None:
        self._proxy.admission.allow_in(Action.DDL, database)
        self._proxy.define("drop alias", lambda: self._root.drop_alias(database, alias))

    def alter_alias(self, database: str, collection: str, alias: str) -> None:
        self._proxy.admission.allow_in(Action.DDL, database)
        self._proxy.define("alter alias", lambda: self._root.alter_alias(database, collection, alias))

    def describe_alias(self, database: str, alias: str) -> str:
        for collection in self.list_collections(database):
            if alias in collection.aliases:
                return collection.name
        raise AliasNotFound(f"alias not found[database={database}][alias={alias}]")

    # partitions

    def create_partition(self, database: str, collection: str, partition: str) -> None:
        cached = self._collection(database, collection)
        refuse_partitions(cached, "create partition")
        self._proxy.admission.allow(Action.DDL, cached)
        check_partition_name(partition)
        self._proxy.define(
            "create partition", lambda: self._root.create_partition(database, collection, partition)
        )

    def drop_partition(self, database: str, collection: str, partition: str) -> None:
        """Drop a partition that is not loaded. If it does not exist this succeeds, as in the reference."""
        cached = self._collection(database, collection)
        refuse_partitions(cached, "drop partition")
        self._proxy.admission.allow(Action.DDL, cached)
        check_dropped_partition(partition)
        coordinators = self._proxy.coordinators

        async def drop_if_there() -> None:
            loads = await coordinators.query.loads(cached.collection_id)
            if any(cached.partitions.get(partition) in load.percentages for load in loads):
                raise InvalidParameter(
                    "partition cannot be dropped, partition is loaded, please release it first: "
                    f"partition {partition}"
                )
            try:
                # By its real name: an alias may refer to another collection by now, with its own loads.
                await coordinators.root.drop_partition(database, cached.view.name, partition)
            except PartitionNotFound:
                return

        self._proxy.define("drop partition", drop_if_there)

    def has_partition(self, database: str, collection: str, partition: str) -> bool:
        return partition in self._collection(database, collection).partitions

    def list_partitions(self, database: str, collection: str) -> Sequence[Partition]:
        found = self._proxy.define(
            "list partitions", lambda: self._root.describe_collection(database, collection)
        )
        return found.partitions

    def partition_rows(self, database: str, collection: str, partition: str) -> int:
        return self._rows(self._collection(database, collection), partition)

    def _rows(self, cached: CachedCollection, partition: str | None) -> int:
        partition_id = None if partition is None else cached.partition_id(partition)
        segments = self._proxy.call(self._proxy.coordinators.data.segments(cached.collection_id))
        return sum(
            s.rows
            for s in segments
            if s.state is not SegmentState.DROPPED
            and partition_id in (None, s.partition_id)
            and not NO_TIMESTAMP < s.sealed_at <= cached.view.truncated
        )
