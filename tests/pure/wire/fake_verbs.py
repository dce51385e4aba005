"""A `Front` in memory, for the wire's tests and scripts that try other clients: rows in one Arrow table a
partition, brute-force L2 search; filters are the empty one, ``key in [...]``, ``key == x`` and ``key > x``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fake_access import FakeAccess
from fake_compaction import FakeCompaction
from fake_flushing import FakeFlushing
from fake_hybrid import FakeHybrid
from fake_imports import FakeImports
from fake_indexes import FakeIndexes
from fake_resource_groups import FakeResourceGroups
from fake_rows import altered, as_matrix, column, matches, nearest, outputs, with_keys
from fake_schema_changes import FakeSchemaChanges
from fake_snapshots import FakeSnapshots

from elanus.api.connector import WriteTarget
from elanus.core.catalog import Database, Partition
from elanus.core.channels import pchannel_name, vchannel_name
from elanus.core.errors import (
    AliasNotFound,
    CollectionNotFound,
    CollectionNotLoaded,
    DatabaseNotFound,
    IndexNotFound,
    PartitionNotFound,
    PartitionNotLoaded,
)
from elanus.core.ids import CollectionID, DatabaseID, FieldID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask, WriteMode, WritePlace
from elanus.core.names import DEFAULT_DATABASE, DEFAULT_PARTITION
from elanus.core.reduce import primary_keys
from elanus.core.requests import fields_to_load
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.api.collections import CollectionView, CreateCollection
from elanus.proxy.api.flushes import FlushResult
from elanus.proxy.api.imports import DEFAULT_OPTIONS, ImportOptions
from elanus.proxy.api.indexes import IndexView
from elanus.proxy.api.introspection import ComponentView, SegmentView
from elanus.proxy.api.loading import LoadedView, LoadRequest, LoadStateView, ReplicaView
from elanus.proxy.api.query import Query, QueryResult
from elanus.proxy.api.search import Search, SearchResult
from elanus.proxy.api.writes import Delete, Insert, MutationResult
from elanus.proxy.role.cache import CachedCollection

COUNT = "count(*)"


@dataclass
class Held:
    """A collection: its view, and its rows by partition."""

    view: CollectionView
    rows: dict[str, pa.Table]
    partitions: dict[str, Partition]
    indexes: dict[str, IndexView] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)


class FakeVerbs(
    FakeAccess,
    FakeSchemaChanges,
    FakeIndexes,
    FakeResourceGroups,
    FakeSnapshots,
    FakeImports,
    FakeFlushing,
    FakeCompaction,
    FakeHybrid,
):
    """Implements `elanus.proxy.api.verbs.Verbs`. ``searches`` and ``writes`` keep what was asked."""

    def __init__(self) -> None:
        self._ids = itertools.count(1000)
        self._clock = itertools.count(1)
        self._lock = threading.RLock()
        self.databases: dict[str, Database] = {}
        self.held: dict[tuple[str, str], Held] = {}
        self.searches: list[Search] = []
        super().__init__()
        self.queries: list[Query] = []
        self.writes: list[Insert] = []
        self.deletes: list[Delete] = []
        self.created: list[CreateCollection] = []
        self.balances: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        self.loads: list[tuple[tuple[str, ...], int, bool, tuple[str, ...]]] = []
        self.ill = ""
        self.create_database(DEFAULT_DATABASE, {})

    # databases

    def create_database(self, name: str, properties: Mapping[str, str]) -> None:
        self.databases[name] = Database(
            DatabaseID(next(self._ids)), name, self.allocate_timestamp(), dict(properties)
        )

    def drop_database(self, name: str) -> None:
        self.databases.pop(name, None)

    def list_databases(self) -> Sequence[Database]:
        return list(self.databases.values())

    def describe_database(self, name: str) -> Database:
        if name not in self.databases:
            raise DatabaseNotFound(f"database not found[database={name}]")
        return self.databases[name]

    def alter_database(
        self, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None:
        found = self.describe_database(name)
        self.databases[name] = replace(
            found, properties=altered(found.properties, set_properties, delete_keys)
        )

    # collections

    def create_collection(self, request: CreateCollection) -> None:
        self.describe_database(request.database)
        self.created.append(request)
        collection_id = CollectionID(next(self._ids))
        numbered = tuple(replace(f, field_id=FieldID(100 + i)) for i, f in enumerate(request.schema.fields))
        pchannels = tuple(pchannel_name(i) for i in range(request.shards))
        created = self.allocate_timestamp()
        view = CollectionView(
            database=request.database,
            collection_id=collection_id,
            name=request.schema.name,
            schema=replace(request.schema, fields=numbered),
            vchannels=tuple(vchannel_name(p, collection_id, i) for i, p in enumerate(pchannels)),
            pchannels=pchannels,
            consistency_level=request.consistency_level,
            aliases=(),
            properties=dict(request.properties),
            num_partitions=1,
            created=created,
        )
        held = Held(view, {}, {})
        self.held[request.database, view.name] = held
        self._add_partition(held, DEFAULT_PARTITION)

    def drop_collection(self, database: str, name: str) -> None:
        self.held.pop((database, name), None)

    def has_collection(self, database: str, name: str) -> bool:
        try:
            self._held(database, name)
        except CollectionNotFound:
            return False
        return True

    def describe_collection(self, database: str, name: str, collection_id: int = 0) -> CollectionView:
        if name:
            return self._held(database, name).view
        for held in self.held.values():
            if held.view.collection_id == collection_id:
                return held.view
        raise CollectionNotFound(f"collection not found[collection={collection_id}]")

    def collection(self, database: str, name: str) -> CachedCollection:
        held = self._held(database, name)
        return CachedCollection(held.view, {p.name: p.partition_id for p in held.partitions.values()}, ())

    def list_collections(self, database: str) -> Sequence[CollectionView]:
        self.describe_database(database)
        return [held.view for (d, _), held in self.held.items() if d == database]

    def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None:
        held = self._held(database, old)
        del self.held[database, held.view.name]
        self.held[new_database, new] = held
        schema = replace(held.view.schema, name=new)
        held.view = replace(held.view, name=new, schema=schema, database=new_database)

    def collection_rows(self, database: str, name: str) -> int:
        return sum(table.num_rows for table in self._held(database, name).rows.values())

    # aliases

    def create_alias(self, database: str, collection: str, alias: str) -> None:
        held = self._held(database, collection)
        held.view = replace(held.view, aliases=(*held.view.aliases, alias))

    def drop_alias(self, database: str, alias: str) -> None:
        for held in self.held.values():
            if held.view.database == database:
                kept = tuple(a for a in held.view.aliases if a != alias)
                held.view = replace(held.view, aliases=kept)

    def alter_alias(self, database: str, collection: str, alias: str) -> None:
        self.drop_alias(database, alias)
        self.create_alias(database, collection, alias)

    def describe_alias(self, database: str, alias: str) -> str:
        for held in self.held.values():
            if held.view.database == database and alias in held.view.aliases:
                return held.view.name
        raise AliasNotFound(f"alias not found[database={database}][alias={alias}]")

    # partitions

    def create_partition(self, database: str, collection: str, partition: str) -> None:
        self._add_partition(self._held(database, collection), partition)

    def drop_partition(self, database: str, collection: str, partition: str) -> None:
        held = self._held(database, collection)
        held.partitions.pop(partition, None)
        held.rows.pop(partition, None)

    def has_partition(self, database: str, collection: str, partition: str) -> bool:
        return partition in self._held(database, collection).partitions

    def list_partitions(self, database: str, collection: str) -> Sequence[Partition]:
        return list(self._held(database, collection).partitions.values())

    def partition_rows(self, database: str, collection: str, partition: str) -> int:
        return self._partition(self._held(database, collection), partition).num_rows

    # load

    def load(self, request: LoadRequest) -> None:
        for name in request.resource_groups:
            self.describe_resource_group(name)
        held = self._held(request.database, request.collection)
        self.load_fields = fields_to_load(
            held.view.schema, request.load_fields, dynamic=not request.skip_dynamic
        )
        if not held.indexes:
            raise IndexNotFound(f"index not found[collection={request.collection}]")
        for name in request.partitions:
            self._partition(held, name)
        self.loads.append((request.partitions, request.replicas, request.refresh, request.resource_groups))
        held.loaded.update(request.partitions or held.partitions)

    def release(self, database: str, collection: str, partitions: Sequence[str]) -> None:
        held = self._held(database, collection)
        held.loaded.difference_update(partitions or tuple(held.loaded))

    def loading_progress(self, database: str, collection: str, partitions: Sequence[str]) -> LoadedView:
        held = self._held(database, collection)
        self._check_loaded(held)
        for name in partitions:
            if name not in held.loaded:
                raise PartitionNotLoaded(f"partition not loaded[partition={name}]")
        return LoadedView(collection, 100, queryable=True)

    def load_state(self, database: str, collection: str, partitions: Sequence[str]) -> LoadStateView:
        if not self.has_collection(database, collection):
            return LoadStateView("NotExist")
        return LoadStateView("Loaded" if self._held(database, collection).loaded else "NotLoad")

    def loaded_collections(self, database: str) -> Mapping[str, LoadedView]:
        found = [h.view.name for h in self.held.values() if h.loaded and h.view.database == database]
        return {name: LoadedView(name, 100, queryable=True) for name in found}

    def loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]:
        held = self._held(database, collection)
        self._check_loaded(held)
        return {name: LoadedView(name, 100, queryable=True) for name in sorted(held.loaded)}

    def replicas(self, database: str, collection: str) -> Sequence[ReplicaView]:
        held = self._held(database, collection)
        self._check_loaded(held)
        leads = dict.fromkeys(held.view.vchannels, NodeID(3))
        return [
            ReplicaView(n, (NodeID(3 + n),), leads, f"group{n}", {DEFAULT_RESOURCE_GROUP: n})
            for n in range(2)
        ]

    def load_balance(
        self, database: str, collection: str, source: int, targets: Sequence[int], segment_ids: Sequence[int]
    ) -> None:
        self._check_loaded(self._held(database, collection))
        self.balances.append((source, tuple(targets), tuple(segment_ids)))

    # writes

    def insert(self, request: Insert) -> MutationResult:
        with self._lock:
            self.writes.append(request)
            held = self._of(request.collection)
            rows = with_keys(held.view.schema, request.rows, self._ids)
            self._append(held, request.partition or DEFAULT_PARTITION, rows)
            keys = rows.column(held.view.schema.primary_field.name)
            return MutationResult(keys, len(keys), 0, 0, self.allocate_timestamp())

    def upsert(self, request: Insert) -> MutationResult:
        with self._lock:
            self.writes.append(request)
            held = self._of(request.collection)
            key = held.view.schema.primary_field.name
            for partition, table in held.rows.items():
                replaced = pc.is_in(table.column(key), value_set=request.rows.column(key))
                held.rows[partition] = table.filter(pc.invert(replaced))
            self._append(held, request.partition or DEFAULT_PARTITION, request.rows)
            keys = request.rows.column(key)
            return MutationResult(keys, len(keys), len(keys), len(keys), self.allocate_timestamp())

    def delete(self, request: Delete) -> MutationResult:
        with self._lock:
            self.deletes.append(request)
            held = self._of(request.collection)
            count = 0
            for partition, table in held.rows.items():
                doomed = matches(table, request.filter, request.filter_values)
                count += int(doomed.sum())
                held.rows[partition] = table.filter(pa.array(~doomed))
            return MutationResult(pa.array([], pa.int64()), 0, count, 0, self.allocate_timestamp())

    def flush(self, database: str, collections: Sequence[str]) -> FlushResult:
        for name in collections:
            self._held(database, name)
        now = self.allocate_timestamp()
        return FlushResult(
            segment_ids={name: (SegmentID(7),) for name in collections},
            flushed_segment_ids={name: (SegmentID(6),) for name in collections},
            flush_ts=dict.fromkeys(collections, now),
        )

    # reads

    def search(self, request: Search) -> SearchResult:
        self.searches.append(request)
        held = self._of(request.collection)
        self._check_loaded(held)
        asked, schema = request.template, held.view.schema
        table = self._visible(held, asked.partitions)
        table = table.filter(pa.array(matches(table, asked.filter, asked.filter_values)))
        vectors = as_matrix(table.column(asked.vector_field), schema.field(asked.vector_field).dim)
        hits = [nearest(query, vectors, asked.limit, asked.offset) for query in request.queries]
        rows = np.concatenate([found for found, _ in hits]).astype(np.int64)
        scores = np.concatenate([distances for _, distances in hits]).astype(np.float32)
        offsets = np.concatenate(([0], np.cumsum([len(found) for found, _ in hits]))).astype(np.int64)
        columns, names, keys = outputs(schema, asked.output_fields)
        taken = table.take(pa.array(rows))
        return SearchResult(
            offsets=offsets,
            ids=primary_keys(column(taken, schema.primary_field.name)),
            scores=scores,
            fields={name: column(taken, name) for name in columns},
            output_fields=names,
            dynamic_fields=keys,
            schema=schema,
            ts=self.allocate_timestamp(),
        )

    def query(self, request: Query) -> QueryResult:
        self.queries.append(request)
        held = self._of(request.collection)
        self._check_loaded(held)
        schema = held.view.schema
        table = self._visible(held, request.partitions)
        table = table.filter(pa.array(matches(table, request.filter, request.filter_values)))
        if request.output_fields == (COUNT,):
            count = {COUNT: pa.array([table.num_rows], pa.int64())}
            return QueryResult(count, (COUNT,), (), schema, self.allocate_timestamp())
        table = table.slice(request.offset, request.limit)
        columns, names, keys = outputs(schema, request.output_fields)
        if schema.primary_field.name not in columns:
            columns, names = (*columns, schema.primary_field.name), (*names, schema.primary_field.name)
        fields = {name: column(table, name) for name in columns}
        return QueryResult(fields, names, keys, schema, self.allocate_timestamp())

    # insight

    def persistent_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        view = self._held(database, collection).view
        rows = self.collection_rows(database, collection)
        flushed = SegmentView(SegmentID(7), view.collection_id, PartitionID(1), rows, SegmentState.FLUSHED)
        flushed = replace(flushed, vchannel=view.vchannels[0], is_sorted=True, compacted_from=(SegmentID(8),))
        dropped = replace(flushed, segment_id=SegmentID(8), rows=0, state=SegmentState.DROPPED)
        growing = replace(flushed, segment_id=SegmentID(9), state=SegmentState.GROWING, is_sorted=False)
        return [flushed, dropped, growing]

    def query_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        flushed = self.persistent_segments(database, collection)[0]
        return [replace(flushed, state=SegmentState.SEALED, node_ids=(NodeID(3),), memory_bytes=64)]

    def start_import(
        self,
        database: str,
        collection: str,
        partition: str,
        files: Sequence[str],
        options: ImportOptions = DEFAULT_OPTIONS,
    ) -> ImportTask:
        view = self.describe_collection(database, collection)
        task_id = TaskID(next(self._ids))
        place = (view.collection_id, collection, PartitionID(8), partition)
        created_ms = 1_700_000_000_500
        task = ImportTask(
            task_id,
            *place,
            tuple(files),
            created_ms,
            write_id=options.write_id,
            rejects_max=options.rejects_max,
            batch=options.batch,
            mode=options.mode,
            duplicates=options.duplicates,
            csv=options.csv,
            timeout_ms=options.timeout_ms,
            auto_commit=options.auto_commit,
        )
        self.imports[task_id] = task
        return task

    def write_target(self, database: str, collection: str, partition: str, mode: WriteMode) -> WriteTarget:
        schema = self.describe_collection(database, collection).schema
        return WriteTarget(WritePlace(CollectionID(1), PartitionID(1)), schema)

    def allocate_timestamp(self) -> Timestamp:
        return compose(1_700_000_000_000 + next(self._clock))

    def components(self) -> Sequence[ComponentView]:
        return [
            ComponentView(NodeID(1), "proxy", healthy=True),
            ComponentView(NodeID(3), "querynode", healthy=not self.ill, detail=self.ill),
        ]

    # inside

    def _held(self, database: str, name: str) -> Held:
        self.describe_database(database)
        for (held_database, held_name), held in self.held.items():
            if held_database == database and (held_name == name or name in held.view.aliases):
                return held
        raise CollectionNotFound(f"collection not found[database={database}][collection={name}]")

    def _of(self, collection: CachedCollection) -> Held:
        return self._held(collection.view.database, collection.view.name)

    def _partition(self, held: Held, name: str) -> pa.Table:
        if name not in held.partitions:
            raise PartitionNotFound(f"partition not found[partition={name}]")
        return held.rows[name]

    def _add_partition(self, held: Held, name: str) -> None:
        view = Partition(PartitionID(next(self._ids)), name, self.allocate_timestamp())
        held.partitions[name] = view
        held.rows[name] = held.view.schema.arrow_schema.empty_table()
        held.view = replace(held.view, num_partitions=len(held.partitions))

    def _append(self, held: Held, partition: str, rows: pa.RecordBatch) -> None:
        table = pa.concat_tables([self._partition(held, partition), pa.Table.from_batches([rows])])
        held.rows[partition] = table.combine_chunks()

    def _check_loaded(self, held: Held) -> None:
        if not held.loaded:
            raise CollectionNotLoaded(f"collection not loaded[collection={held.view.name}]")

    def _visible(self, held: Held, partitions: Sequence[str]) -> pa.Table:
        tables = [self._partition(held, name) for name in partitions or held.partitions]
        return pa.concat_tables(tables).combine_chunks()
