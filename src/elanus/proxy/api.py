"""The proxy's verbs in domain terms: what the Milvus front (`elanus.proxy.wire`) calls.

The wire code turns protobuf into these types and back, and knows nothing else of Elanus; the proxy
(`elanus.proxy.proxy`) implements `Front` and knows nothing of protobuf. Every verb is synchronous, is
called from a gRPC thread, and raises `elanus.core.errors.ElanusError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.compaction import CompactionPlan
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.ids import CollectionID, DatabaseID, FieldID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.imports import ImportTask
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp

DEFAULT_DATABASE = "default"
DEFAULT_PARTITION = "_default"


@dataclass(frozen=True, slots=True)
class DatabaseView:
    database_id: DatabaseID
    name: str
    properties: Mapping[str, str]
    created: Timestamp


@dataclass(frozen=True)
class CollectionView:
    """A collection as described. ``name`` is the real name, also when it was looked up by an alias."""

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


@dataclass(frozen=True, slots=True)
class PartitionView:
    partition_id: PartitionID
    name: str
    created: Timestamp


@dataclass(frozen=True, slots=True)
class IndexView:
    """``state`` is one of None, Unissued, InProgress, Finished, Failed (the wire's names).

    ``params`` is what the client sent, in its order; ``total_rows`` counts rows of flushed segments.
    """

    index_id: IndexID
    name: str
    field_id: FieldID
    field_name: str
    params: Mapping[str, str]
    state: str
    fail_reason: str
    total_rows: int
    indexed_rows: int
    pending_rows: int


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment as GetPersistentSegmentInfo and GetQuerySegmentInfo show it.

    ``node_ids`` and the index are set in the latter only, ``vchannel`` in the former only.
    """

    segment_id: SegmentID
    collection_id: CollectionID
    partition_id: PartitionID
    rows: int
    state: SegmentState
    memory_bytes: int = 0
    index_id: IndexID = IndexID(0)
    index_name: str = ""
    node_ids: tuple[NodeID, ...] = ()
    vchannel: str = ""


@dataclass(frozen=True, slots=True)
class CreateCollection:
    """``schema`` has no field ids yet (all 0); the root coordinator numbers the fields."""

    database: str
    schema: CollectionSchema
    shards: int
    consistency_level: ConsistencyLevel
    properties: Mapping[str, str]
    num_partitions: int = 0


@dataclass(frozen=True, slots=True)
class Insert:
    """``rows``: the collection's ``arrow_schema``, without the primary key when it is auto-id.

    For an upsert into an auto-id collection the primary key is there: it names the rows to replace.
    """

    database: str
    collection: str
    partition: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Delete:
    database: str
    collection: str
    partition: str
    filter: str
    filter_values: Mapping[str, object] = field(default_factory=dict)
    consistency: ReadConsistency = ReadConsistency()


@dataclass(frozen=True, slots=True)
class MutationResult:
    """``primary_keys``: an int64 or string array of the rows written (or deleted, where known)."""

    primary_keys: pa.Array
    insert_count: int
    delete_count: int
    upsert_count: int
    ts: Timestamp


@dataclass(frozen=True, slots=True)
class Search:
    """``queries``: float32 (nq, dim), or uint8 (nq, dim / 8) for binary vectors.

    ``vector_field`` "" means the only one. ``metric_type`` "" means the index's. ``params`` are the
    index's search parameters (``ef``, ``nprobe``, ``radius``, ``range_filter``). ``collection_id``: what the
    name must still mean (None: anything); pages of an iterator say so. ``timeout_s``: how long the client
    waits (None: as long as the server does).
    """

    database: str
    collection: str
    partitions: tuple[str, ...]
    vector_field: str
    queries: npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    limit: int
    offset: int
    filter: str
    metric_type: str
    params: Mapping[str, float | int | str | bool]
    output_fields: tuple[str, ...]
    round_decimal: int
    consistency: ReadConsistency
    filter_values: Mapping[str, object] = field(default_factory=dict)
    ignore_growing: bool = False
    collection_id: CollectionID | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits of query i stand at ``offsets[i]:offsets[i + 1]``, best first.

    ``scores``: float32, in the metric's own terms; ``fields``: output
    columns by name, aligned with ``ids`` (``$meta`` holds whole dynamic rows; the wire code picks the
    keys named in ``dynamic_fields``, or all of them when that is ``None``).
    """

    offsets: npt.NDArray[np.int64]
    ids: PrimaryKeys
    scores: npt.NDArray[np.float32]
    fields: Mapping[str, pa.Array]
    output_fields: tuple[str, ...]
    dynamic_fields: tuple[str, ...] | None
    schema: CollectionSchema
    ts: Timestamp


@dataclass(frozen=True, slots=True)
class Query:
    """``ids`` (with an empty filter) asks for those primary keys; ``limit`` None: all rows.

    ``collection_id``: what the name must still mean (None: anything); pages of an iterator say so.
    ``timeout_s``: how long the client waits (None: as long as the server does).
    """

    database: str
    collection: str
    partitions: tuple[str, ...]
    filter: str
    output_fields: tuple[str, ...]
    limit: int | None
    offset: int
    consistency: ReadConsistency
    filter_values: Mapping[str, object] = field(default_factory=dict)
    ids: Sequence[int] | Sequence[str] | None = None
    ignore_growing: bool = False
    collection_id: CollectionID | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """``fields`` by name, all of one length. For ``count(*)`` it is one int64 column of that name."""

    fields: Mapping[str, pa.Array]
    output_fields: tuple[str, ...]
    dynamic_fields: tuple[str, ...] | None
    schema: CollectionSchema
    ts: Timestamp


@dataclass(frozen=True, slots=True)
class FlushResult:
    """Per collection name: the segments this flush sealed, those flushed before, and the seal's timestamp."""

    segment_ids: Mapping[str, tuple[SegmentID, ...]]
    flushed_segment_ids: Mapping[str, tuple[SegmentID, ...]]
    flush_ts: Mapping[str, Timestamp]


@dataclass(frozen=True, slots=True)
class StartedCompaction:
    """``plans``: how many were made; none where there is nothing to gain."""

    compaction_id: int
    plans: int


@dataclass(frozen=True, slots=True)
class LoadedView:
    """What QueryCoord says of a collection or partition: percentage 0–100 of the load."""

    name: str
    percentage: int
    queryable: bool


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One copy of a loaded collection. ``leads``: the node that serves each vchannel's growing rows.

    ``outbound``: how many of its nodes belong to each other resource group than its own.
    """

    number: int
    node_ids: tuple[NodeID, ...]
    leads: Mapping[str, NodeID]
    resource_group: str
    outbound: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceGroupView:
    """``node_ids`` are alive. The counts are by the collection's name.

    ``loaded``: its replicas in the group; ``outgoing``: nodes of other groups that still serve those;
    ``incoming``: nodes of the group that still serve replicas of other groups.
    """

    name: str
    capacity: int
    node_ids: tuple[NodeID, ...]
    loaded: Mapping[str, int]
    outgoing: Mapping[str, int]
    incoming: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ComponentView:
    node_id: NodeID
    role: str
    healthy: bool
    detail: str = ""


class Front(Protocol):
    """All of it names databases and collections by name; aliases work wherever the reference allows them."""

    # databases
    def create_database(self, name: str, properties: Mapping[str, str]) -> None: ...
    def drop_database(self, name: str) -> None: ...
    def list_databases(self) -> Sequence[DatabaseView]: ...
    def describe_database(self, name: str) -> DatabaseView: ...
    def alter_database(
        self, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None: ...

    # collections
    def create_collection(self, request: CreateCollection) -> None: ...
    def drop_collection(self, database: str, name: str) -> None: ...
    def has_collection(self, database: str, name: str) -> bool: ...
    def describe_collection(self, database: str, name: str, collection_id: int = 0) -> CollectionView:
        """From the proxy's cache. Looked up by id when the name is empty. Raises `CollectionNotFound`."""
        ...

    def list_collections(self, database: str) -> Sequence[CollectionView]: ...
    def rename_collection(self, database: str, old: str, new: str, new_database: str) -> None: ...
    def alter_collection(
        self, database: str, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None: ...
    def collection_rows(self, database: str, name: str) -> int:
        """Rows of its segments in any state but dropped, deletes not subtracted (as the reference counts)."""
        ...

    # aliases
    def create_alias(self, database: str, collection: str, alias: str) -> None: ...
    def drop_alias(self, database: str, alias: str) -> None: ...
    def alter_alias(self, database: str, collection: str, alias: str) -> None: ...
    def describe_alias(self, database: str, alias: str) -> str:
        """The collection's name. Raises `AliasNotFound`."""
        ...

    def list_aliases(self, database: str, collection: str) -> Sequence[str]:
        """Of one collection, or of the whole database when ``collection`` is empty."""
        ...

    # partitions
    def create_partition(self, database: str, collection: str, partition: str) -> None: ...
    def drop_partition(self, database: str, collection: str, partition: str) -> None: ...
    def has_partition(self, database: str, collection: str, partition: str) -> bool: ...
    def list_partitions(self, database: str, collection: str) -> Sequence[PartitionView]: ...
    def partition_rows(self, database: str, collection: str, partition: str) -> int: ...

    # load
    def load(
        self,
        database: str,
        collection: str,
        partitions: Sequence[str],
        replicas: int,
        refresh: bool,
        resource_groups: Sequence[str] = (),
    ) -> None:
        """Starts the load (of all partitions when none is named); returns before it is complete.

        ``resource_groups``: one for all replicas (none named: the default one), or one for each.
        """
        ...

    def release(self, database: str, collection: str, partitions: Sequence[str]) -> None: ...
    def loading_progress(self, database: str, collection: str, partitions: Sequence[str]) -> LoadedView:
        """Raises `CollectionNotLoaded` or `PartitionNotLoaded` where nothing was asked to load."""
        ...

    def load_state(self, database: str, collection: str, partitions: Sequence[str]) -> str:
        """``NotExist``, ``NotLoad``, ``Loading`` or ``Loaded``."""
        ...

    def loaded_collections(self, database: str) -> Mapping[str, LoadedView]: ...
    def loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]: ...
    def replicas(self, database: str, collection: str) -> Sequence[ReplicaView]:
        """Those that can be read. Raises `CollectionNotLoaded`."""
        ...

    def load_balance(
        self, database: str, collection: str, source: int, targets: Sequence[int], segment_ids: Sequence[int]
    ) -> None:
        """Move sealed segments (none named: all) from one query node to others; see `QueryCoordApi`."""
        ...

    # resource groups
    def create_resource_group(self, name: str) -> None: ...
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
        """All indexes when neither name is given. Raises `IndexNotFound` when none matches."""
        ...

    def drop_index(self, database: str, collection: str, field_name: str, index_name: str) -> None: ...

    # writes
    def insert(self, request: Insert) -> MutationResult: ...
    def upsert(self, request: Insert) -> MutationResult: ...
    def delete(self, request: Delete) -> MutationResult: ...
    def flush(self, database: str, collections: Sequence[str]) -> FlushResult: ...
    def flush_state(
        self, segment_ids: Sequence[int], database: str, collection: str, flush_ts: Timestamp
    ) -> bool:
        """Whether all named segments are flushed (or dropped), and every row up to ``flush_ts`` if given."""
        ...

    def flush_all(self, database: str) -> Timestamp:
        """Flush every collection (of the database; of all databases when empty).

        Returns, for `flush_all_state`, a moment before the first flush began.
        """
        ...

    def flush_all_state(self, database: str, flush_ts: Timestamp) -> bool:
        """Whether every row up to ``flush_ts`` is flushed, in the same collections."""
        ...

    # imports
    def start_import(
        self, database: str, collection: str, partition: str, files: Sequence[str]
    ) -> ImportTask: ...
    def import_task(self, task_id: int) -> ImportTask:
        """Raises `InvalidParameter` for one that is not known."""
        ...

    def import_tasks(self, database: str, collection: str, limit: int) -> Sequence[ImportTask]:
        """Of every collection when none is named; the latest ``limit``, all when it is 0. Oldest first."""
        ...

    def cancel_import(self, task_id: int) -> None:
        """Raises `InvalidParameter` for a task that has committed."""
        ...

    # compaction
    def compact(self, database: str, collection: str, collection_id: int) -> StartedCompaction:
        """Starts it and returns. By id where the name is empty. Raises `CollectionNotFound`."""
        ...

    def compaction_plans(self, compaction_id: int) -> Sequence[CompactionPlan]:
        """As they stand; none where the compaction found nothing to do, is unknown or long over."""
        ...

    # reads
    def search(self, request: Search) -> SearchResult: ...
    def query(self, request: Query) -> QueryResult: ...

    # insight
    def persistent_segments(self, database: str, collection: str) -> Sequence[SegmentView]: ...
    def query_segments(self, database: str, collection: str) -> Sequence[SegmentView]: ...
    def allocate_timestamp(self) -> Timestamp: ...
    def components(self) -> Sequence[ComponentView]: ...
