"""The values in the proxy's verbs: what `elanus.proxy.port.Front` takes and returns.

The wire code converts protobuf to these types and back. The verbs know nothing of protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec import field as structs_field

from elanus.core.buckets import Bucket, Levels
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import PartlyWritten
from elanus.core.function_chains import Chains
from elanus.core.group_config import GroupConfig
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID, FieldID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.moments import IN_UTC, TimeFormat
from elanus.core.ordering import OrderBy
from elanus.core.quick_values import quick
from elanus.core.rankers import Ranker
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.vector_lists import Queries
from elanus.proxy.boost_requests import BoostRequests
from elanus.text import Highlight

if TYPE_CHECKING:  # the cache imports the filter language and the indexes, which the wire does not need
    from elanus.proxy.role.cache import CachedCollection

_NO_KEYS = pa.array([], pa.int64())


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

    ``node_ids``, ``memory_bytes`` and the index are set in GetQuerySegmentInfo only, ``vchannel`` and
    ``compacted_from`` in GetPersistentSegmentInfo only. ``is_sorted``: see `SegmentManifest.is_sorted`.
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
    is_sorted: bool = False
    compacted_from: tuple[SegmentID, ...] = ()


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
    """``rows``: the ``arrow_schema`` of ``collection``, without the primary key when it is auto-id.

    An upsert into an auto-id collection includes the primary key, which identifies the rows to replace.
    ``client``: the writing client, identified as in `ReadConsistency.client`.
    """

    collection: CachedCollection
    partition: str
    rows: pa.RecordBatch
    client: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    collection: CachedCollection
    partition: str
    filter: str
    filter_values: Mapping[str, object] = field(default_factory=dict)
    consistency: ReadConsistency = ReadConsistency()


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A load of a collection, or of some of its partitions.

    ``replicas``: 0 if the client names none. ``resource_groups``: one for all replicas, or one for each
    (empty: the default group). ``load_fields``: those that are held and can be read (empty: all);
    ``skip_dynamic``: without the dynamic field. ``refresh``: asks for segments added since the last load;
    those are served anyway, so it changes nothing.
    """

    database: str
    collection: str
    partitions: tuple[str, ...] = ()
    replicas: int = 0
    resource_groups: tuple[str, ...] = ()
    load_fields: tuple[str, ...] = ()
    skip_dynamic: bool = False
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class MutationResult:
    """``primary_keys``: an int64 or string array of the rows written (or deleted, where known)."""

    primary_keys: pa.Array
    insert_count: int
    delete_count: int
    upsert_count: int
    ts: Timestamp


class PartialMutation(PartlyWritten):
    """Only some rows of a request were stored, or only some keys deleted.

    ``primary_keys``: of all rows of the request. ``stored``: which of them took effect, shape (rows,), bool.
    """

    def __init__(
        self,
        message: str,
        primary_keys: pa.Array = _NO_KEYS,
        stored: Sequence[bool] | npt.NDArray[np.bool_] = (),
    ) -> None:
        super().__init__(message)
        self.primary_keys = primary_keys
        self.stored = np.asarray(stored, dtype=bool)


@dataclass(frozen=True, slots=True)
class IteratorPage:
    """The page that a client requests: at most ``size`` rows after ``bound`` (None: the first page).

    ``token``: "" for the first page.
    """

    size: int
    token: str = ""
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The values that the client sends back when it requests the next page. ``bound`` is a float32 number."""

    token: str
    bound: float


@quick
class Search(Struct, frozen=True, gc=False):
    """``queries``: float32 (nq, dim), uint8 (nq, dim / 8) for binary vectors, or uint64
    (nq, pairs) for sparse ones.

    ``vector_field`` "" means the only one. ``metric_type`` "" means the index's. ``params`` are the
    index's search parameters (``ef``, ``nprobe``, ``radius``, ``range_filter``). ``collection_id``: the
    collection that the name must still refer to (None: any); set for pages of an iterator. ``timeout_s``: how
    long the client waits (None: as long as the server does). ``page``: set when the search is a page of a
    second-generation search iterator. ``times``: how the answer shows moments. ``highlight``: what to
    highlight in the hits. ``measures_recall``: the answer has the recall of each query. ``texts``: those that
    a provider turns into the queries (`elanus.proxy.embedding`); none if the queries are given. ``levels``:
    of the buckets that are wanted instead of hits; ``grouping`` and ``limit`` are then theirs. ``template``:
    one object for all searches of the collection that differ in their vectors, texts, keys, consistency and
    timeout only; None: it is not known to be repeated.
    """

    collection: CachedCollection
    partitions: tuple[str, ...]
    vector_field: str
    queries: Queries
    limit: int
    offset: int
    filter: str
    metric_type: str
    params: Mapping[str, float | int | str | bool]
    output_fields: tuple[str, ...]
    round_decimal: int
    consistency: ReadConsistency
    filter_values: Mapping[str, object] = structs_field(default_factory=dict)
    ignore_growing: bool = False
    collection_id: CollectionID | None = None
    timeout_s: float | None = None
    page: IteratorPage | None = None
    query_ids: pa.Array | None = None
    grouping: Grouping | None = None
    levels: Levels = ()
    ranker: Ranker | None = None
    boosts: BoostRequests | None = None
    chains: Chains | None = None
    order: tuple[OrderBy, ...] = ()
    times: TimeFormat = IN_UTC
    highlight: Highlight | None = None
    measures_recall: bool = False
    texts: tuple[str, ...] = ()
    template: object = None


@quick
class SearchResult(Struct, frozen=True, gc=False):
    """Hits of query i are at ``offsets[i]:offsets[i + 1]``, best first.

    ``scores``: float32, in the metric's own terms; ``fields``: output
    columns by name, aligned with ``ids`` (``$meta`` holds whole dynamic rows; the wire code picks the
    keys named in ``dynamic_fields``, or all of them when that is ``None``). ``page_end``: where the page of
    an iterator ended. ``groups``: the values of the grouping fields, aligned with ``ids``. ``highlights``:
    the fragments of each hit, by field. ``elements``: which element of a struct array each hit is.
    ``recalls``: of each query, if they were asked for. ``buckets``: of each query, if ``levels`` were asked
    for; their hits are places in ``ids``.
    """

    offsets: npt.NDArray[np.int64]
    ids: PrimaryKeys
    scores: npt.NDArray[np.float32]
    fields: Mapping[str, pa.Array]
    output_fields: tuple[str, ...]
    dynamic_fields: tuple[str, ...] | None
    schema: CollectionSchema
    ts: Timestamp
    page_end: PageEnd | None = None
    groups: Mapping[str, pa.Array] = structs_field(default_factory=dict)
    highlights: Mapping[str, Sequence[Sequence[str]]] = structs_field(default_factory=dict)
    elements: npt.NDArray[np.int64] | None = None
    recalls: tuple[float, ...] = ()
    levels: Levels = ()
    buckets: tuple[tuple[Bucket, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class ElementCursor:
    """Where a page of elements ended: at an element of the row with a primary key, given as text."""

    key: str
    element: int


@dataclass(frozen=True, slots=True)
class Query:
    """``ids`` (with an empty filter) selects rows by primary key; ``limit`` None: all rows.

    ``collection_id``: the collection that the name must still refer to (None: any); set for pages of an
    iterator.
    ``timeout_s``: how long the client waits (None: as long as the server does).
    ``order``: the order of the rows (empty: that of keys). ``group_by``: the fields to group by; the
    output fields are then these and aggregates. ``times``: how the answer shows moments. ``after``: of a
    query with an ``element_filter``, whose limit and offset count elements: where they begin.
    """

    collection: CachedCollection
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
    order: tuple[OrderBy, ...] = ()
    group_by: tuple[str, ...] = ()
    times: TimeFormat = IN_UTC
    after: ElementCursor | None = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """``fields`` by name, all of the same length. Aggregates (``count(*)``) have the client's names.

    ``elements``: of a query with an ``element_filter``, which elements of each row it chooses:
    ``list<int64>``, places from 0.
    """

    fields: Mapping[str, pa.Array]
    output_fields: tuple[str, ...]
    dynamic_fields: tuple[str, ...] | None
    schema: CollectionSchema
    ts: Timestamp
    elements: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class FlushResult:
    """Per collection name: the segments this flush sealed, those flushed before, and the seal's timestamp."""

    segment_ids: Mapping[str, tuple[SegmentID, ...]]
    flushed_segment_ids: Mapping[str, tuple[SegmentID, ...]]
    flush_ts: Mapping[str, Timestamp]


@dataclass(frozen=True, slots=True)
class StartedCompaction:
    """``plans``: the number of plans made; 0 when there is nothing to gain."""

    compaction_id: int
    plans: int


@dataclass(frozen=True, slots=True)
class LoadedView:
    """The load progress of a collection or partition as QueryCoord reports it: percentage 0–100."""

    name: str
    percentage: int
    queryable: bool


@dataclass(frozen=True, slots=True)
class LoadStateView:
    """``state``: ``NotExist``, ``NotLoad``, ``Loading`` or ``Loaded``. ``obstacle``: the logs and
    segments that cannot be read, with reason and remedy; empty when there are none."""

    state: str
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One copy of a loaded collection. ``leads``: the node that serves each vchannel's growing rows.

    ``outbound``: the number of its nodes that belong to other resource groups, by group.
    """

    number: int
    node_ids: tuple[NodeID, ...]
    leads: Mapping[str, NodeID]
    resource_group: str
    outbound: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceGroupView:
    """``node_ids``: the nodes alive. The counts are keyed by collection name.

    ``loaded``: the replicas in the group; ``outgoing``: nodes of other groups that still serve those;
    ``incoming``: nodes of the group that still serve replicas of other groups.
    """

    name: str
    capacity: int
    node_ids: tuple[NodeID, ...]
    loaded: Mapping[str, int]
    outgoing: Mapping[str, int]
    incoming: Mapping[str, int]
    config: GroupConfig = field(default_factory=GroupConfig)


@dataclass(frozen=True, slots=True)
class ComponentView:
    node_id: NodeID
    role: str
    healthy: bool
    detail: str = ""
