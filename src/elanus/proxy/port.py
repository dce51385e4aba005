"""The proxy's verbs in domain terms: what the families of RPCs (`elanus.proxy.wire`) call.

The wire code knows nothing else of Elanus. The proxy (`elanus.proxy.verbs`) implements `Front` and knows
nothing of protobuf. Every verb is synchronous, is called from a thread of the client port, and raises
`elanus.core.errors.ElanusError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from elanus.core.catalog import Database, Partition
from elanus.core.compaction import CompactionPlan
from elanus.core.functions import Function
from elanus.core.group_config import GroupConfig
from elanus.core.imports import COMMAS, CsvFormat, Duplicates, ImportTask, WriteMode
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.access_port import AccessFront
from elanus.proxy.api import (
    CollectionView,
    ComponentView,
    CreateCollection,
    Delete,
    FlushResult,
    IndexView,
    Insert,
    LoadedView,
    LoadRequest,
    LoadStateView,
    MutationResult,
    Query,
    QueryResult,
    ReplicaView,
    ResourceGroupView,
    Search,
    SearchResult,
    SegmentView,
    StartedCompaction,
)
from elanus.proxy.hybrid_api import HybridSearch
from elanus.proxy.snapshot_port import SnapshotFront
from elanus.proxy.update_api import Update

if TYPE_CHECKING:  # the cache imports the filter language and the indexes, which the wire does not need
    from elanus.proxy.role.cache import CachedCollection


class Front(AccessFront, SnapshotFront, Protocol):
    """All verbs take databases and collections by name; aliases work wherever the reference allows them."""

    # databases
    def create_database(self, name: str, properties: Mapping[str, str]) -> None: ...
    def drop_database(self, name: str) -> None: ...
    def list_databases(self) -> Sequence[Database]: ...
    def describe_database(self, name: str) -> Database: ...
    def alter_database(
        self, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None: ...

    # collections
    def create_collection(self, request: CreateCollection) -> None: ...
    def drop_collection(self, database: str, name: str) -> None: ...
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
    def alter_field(
        self,
        database: str,
        collection: str,
        field: str,
        set_properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        """Change the bounds of a field's values. Raises `FieldNotFound`, `InvalidParameter`."""
        ...

    def add_field(self, database: str, collection: str, field: FieldSchema) -> None:
        """Add a nullable field; older rows have its default, or null. Raises `InvalidParameter`."""
        ...

    def add_struct(
        self, database: str, collection: str, struct: StructSchema, members: tuple[FieldSchema, ...]
    ) -> None:
        """Add a nullable struct array, whose arrays are null in older rows. Raises `InvalidParameter`."""
        ...

    def add_function(
        self,
        database: str,
        collection: str,
        field: FieldSchema,
        function: Function,
        index_name: str,
        index_params: Mapping[str, str],
    ) -> None:
        """Add a function with the field that it computes and an index on it. Raises `InvalidParameter`."""
        ...

    def set_function(self, database: str, collection: str, function: Function, replaced: str = "") -> None:
        """Add a function whose values are stored, or alter the named one. Raises `InvalidParameter`."""
        ...

    def drop_field(self, database: str, collection: str, field: str, field_id: int = 0) -> None:
        """Drop a field with its values and indexes, by name or id. Raises `InvalidParameter`."""
        ...

    def drop_function(self, database: str, collection: str, function: str, *, with_outputs: bool) -> None:
        """Drop a function, with the fields that it computes or without. Raises `InvalidParameter`."""
        ...

    def truncate_collection(self, database: str, name: str) -> None:
        """Remove all rows: no read as of a later moment finds them."""
        ...

    def collection_rows(self, database: str, name: str) -> int:
        """Rows of all segments that are not dropped. Deletes are not subtracted, as in the reference."""
        ...

    # aliases
    def create_alias(self, database: str, collection: str, alias: str) -> None: ...
    def drop_alias(self, database: str, alias: str) -> None: ...
    def alter_alias(self, database: str, collection: str, alias: str) -> None: ...
    def describe_alias(self, database: str, alias: str) -> str:
        """Return the collection's name. Raises `AliasNotFound`."""
        ...

    # partitions
    def create_partition(self, database: str, collection: str, partition: str) -> None: ...
    def drop_partition(self, database: str, collection: str, partition: str) -> None: ...
    def has_partition(self, database: str, collection: str, partition: str) -> bool: ...
    def list_partitions(self, database: str, collection: str) -> Sequence[Partition]: ...
    def partition_rows(self, database: str, collection: str, partition: str) -> int: ...

    # load
    def load(self, request: LoadRequest) -> None:
        """Start the load (of all partitions when none is named); return before it is complete.

        Raises `FieldNotFound`, `IndexNotFound`, `InvalidParameter`; `CollectionNotLoaded` when there is
        nothing to refresh.
        """
        ...

    def release(self, database: str, collection: str, partitions: Sequence[str]) -> None: ...
    def loading_progress(self, database: str, collection: str, partitions: Sequence[str]) -> LoadedView:
        """Raises `CollectionNotLoaded` or `PartitionNotLoaded` when no load was requested."""
        ...

    def load_state(self, database: str, collection: str, partitions: Sequence[str]) -> LoadStateView: ...

    def loaded_collections(self, database: str) -> Mapping[str, LoadedView]: ...
    def loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]: ...
    def replicas(self, database: str, collection: str) -> Sequence[ReplicaView]:
        """Return the replicas that can be read. Raises `CollectionNotLoaded`."""
        ...

    def load_balance(
        self, database: str, collection: str, source: int, targets: Sequence[int], segment_ids: Sequence[int]
    ) -> None:
        """Move sealed segments (none named: all) from one query node to others; see `QueryCoordApi`."""
        ...

    # resource groups
    def create_resource_group(self, name: str, config: GroupConfig | None = None) -> None: ...
    def update_resource_groups(self, configs: Mapping[str, GroupConfig]) -> None:
        """Raises `ResourceGroupNotFound`, `ResourceGroupIllegalConfig`."""
        ...

    def drop_resource_group(self, name: str) -> None: ...
    def list_resource_groups(self) -> Sequence[str]: ...
    def describe_resource_group(self, name: str) -> ResourceGroupView:
        """Raises `ResourceGroupNotFound`."""
        ...

    def transfer_node(self, source: str, target: str, count: int) -> None: ...
    def transfer_replica(
        self, database: str, collection: str, source: str, target: str, count: int
    ) -> None: ...

    # indexes
    def create_index(
        self, database: str, collection: str, field_name: str, index_name: str, params: Mapping[str, str]
    ) -> None: ...
    def describe_index(
        self, database: str, collection: str, index_name: str, field_name: str
    ) -> Sequence[IndexView]:
        """Return all indexes when neither name is given. Raises `IndexNotFound` when none matches."""
        ...

    def alter_index(
        self,
        database: str,
        collection: str,
        index_name: str,
        properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        """Set and delete properties of an index. Raises `IndexNotFound` and `CollectionLoaded`."""
        ...

    def drop_index(self, database: str, collection: str, field_name: str, index_name: str) -> None: ...

    # writes
    def insert(self, request: Insert) -> MutationResult: ...
    def upsert(self, request: Insert) -> MutationResult: ...
    def update(self, request: Update) -> MutationResult:
        """Replace some columns of rows: an upsert that keeps the others. Raises `CollectionNotLoaded`."""
        ...

    def delete(self, request: Delete) -> MutationResult: ...
    def flush(self, database: str, collections: Sequence[str]) -> FlushResult: ...
    def flush_state(
        self, segment_ids: Sequence[int], database: str, collection: str, flush_ts: Timestamp
    ) -> bool:
        """Whether all named segments are flushed (or dropped), and, if given, all rows up to ``flush_ts``."""
        ...

    def flush_all(self, database: str) -> Timestamp:
        """Flush every collection (of the database; of all databases when empty).

        Returns a timestamp from before the first flush began, to be passed to `flush_all_state`.
        """
        ...

    def flush_all_state(self, database: str, flush_ts: Timestamp) -> bool:
        """Whether every row up to ``flush_ts`` is flushed in the same collections."""
        ...

    # imports
    def start_import(
        self,
        database: str,
        collection: str,
        partition: str,
        files: Sequence[str],
        write_id: str = "",
        rejects_max: int = 0,
        mode: WriteMode = WriteMode.APPEND,
        batch: int = -1,
        duplicates: Duplicates = Duplicates.KEEP,
        csv: CsvFormat = COMMAS,
        timeout_ms: int = 0,
    ) -> ImportTask:
        """Start an import.

        A ``write_id`` names the write, or with a ``batch`` a stream of writes: one that did not fail is not
        repeated. ``rejects_max``: how many rows that do not fit are left out before the import fails.
        ``duplicates``: which rows of a key it adds. ``csv``: the format of CSV files. Raises
        `InvalidParameter` for a ``mode`` or ``duplicates`` that does not fit the collection.
        """
        ...

    def write_schema(
        self, database: str, collection: str, partition: str, mode: WriteMode
    ) -> CollectionSchema:
        """Return the schema that rows written in this way have to fit. Raises as `start_import` does."""
        ...

    def import_task(self, task_id: int) -> ImportTask:
        """Raises `InvalidParameter` for an unknown task."""
        ...

    def import_tasks(self, database: str, collection: str, limit: int) -> Sequence[ImportTask]:
        """Return the latest ``limit`` tasks (0: all), oldest first; of all collections if none is named."""
        ...

    def cancel_import(self, task_id: int) -> None:
        """Raises `InvalidParameter` for a task that has committed."""
        ...

    # compaction
    def compact(
        self,
        database: str,
        collection: str,
        collection_id: int,
        target_bytes: int | None = None,
        by_key: bool = False,
    ) -> StartedCompaction:
        """Start a compaction and return. An empty name: by id. ``target_bytes``, ``by_key``: see
        `CompactionCalls.compact`.

        Raises `CollectionNotFound`.
        """
        ...

    def compaction_plans(self, compaction_id: int) -> Sequence[CompactionPlan]:
        """Return the current plans; none if the compaction is unknown, found nothing to do or is over."""
        ...

    def compactions_of(self, database: str, collection: str) -> Sequence[CompactionPlan]:
        """Return the plans of a collection that are remembered."""
        ...

    # reads
    def search(self, request: Search) -> SearchResult: ...
    def hybrid_search(self, request: HybridSearch) -> SearchResult: ...
    def query(self, request: Query) -> QueryResult: ...

    # insight
    def persistent_segments(self, database: str, collection: str) -> Sequence[SegmentView]: ...
    def query_segments(self, database: str, collection: str) -> Sequence[SegmentView]: ...
    def allocate_timestamp(self) -> Timestamp: ...
    def components(self) -> Sequence[ComponentView]: ...
