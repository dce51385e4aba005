"""The interface of a query node: control and reads.

Control (load, watch, announce, release) is asynchronous and goes through the RPC carriers. Reads are
synchronous functions over an immutable snapshot: in the standalone the proxy calls them in its own
gRPC threads, without any hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from elanus.api.boosts import Boosts
from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable
from elanus.api.query_channel import MissingSegment, QueryChannelInfo
from elanus.core.aggregation import Aggregation
from elanus.core.catalog import Checkpoint
from elanus.core.function_chains import Chains
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID, FieldID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.ordering import OrderBy
from elanus.core.quick_values import quick
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema, Scalar
from elanus.core.segments import DeltaLog, IndexFile, SegmentManifest
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.vector_lists import Queries
from elanus.expr import BoundFilter


@dataclass(frozen=True, slots=True)
class FieldIndexSpec:
    """The index a collection declares for a vector field.

    It also sets the metric where vectors are searched exactly: growing rows, segments not indexed yet.
    ``params`` is what the client sent to CreateIndex (`elanus.index.resolve_index` reads it).
    """

    field_id: FieldID
    index_id: IndexID
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadCollection:
    """Prepare to serve a collection: ``partition_ids`` are the partitions to serve.

    The node answers no read before it follows all of ``vchannels`` and a first version was announced:
    until then its service time is 0. ``whole_collection``: partitions that are created later are
    served too, from their create message on.

    If the collection is loaded already and the request has more partitions, the next `watch_vchannel` of
    each vchannel takes them in, and they are served from `QueryNodeApi.set_partitions` on. Until the
    release the indexes stay those of the first call; another one for the same field is an
    `IndexConflict`, and a field that had none cannot be searched. ``warmed``: the indexes whose files are
    read at load even if they are mapped. ``left_out``: the fields that are not loaded; reads that need one
    are refused.
    """

    collection_id: CollectionID
    schema: CollectionSchema
    partition_ids: tuple[PartitionID, ...]
    indexes: tuple[FieldIndexSpec, ...]
    vchannels: tuple[str, ...]
    whole_collection: bool = False
    warmed: frozenset[IndexID] = frozenset()
    left_out: frozenset[FieldID] = frozenset()


@dataclass(frozen=True, slots=True)
class UnrecoveredSegment:
    """A growing segment whose binlogs could not be read. The node serves none of its rows, and refuses reads
    of its partition. ``reason`` names the object and the remedy."""

    segment_id: SegmentID
    partition_id: PartitionID
    reason: str


@dataclass(frozen=True, slots=True)
class WatchVchannel:
    """Follow a vchannel from its checkpoint.

    ``growing``: segments that still take rows (or are not flushed yet) and already have binlogs; they
    are loaded first. ``excluded``: flushed (or dropped) segments whose rows in the log must not be
    taken as growing. ``delta_logs``: all of the vchannel's delete files up to the checkpoint.

    ``leaving``: partitions that are being dropped. The drop message may be before the checkpoint; a
    proxy that did not know of the drop may have written rows after it, which belong to nobody.

    ``rows`` False: take its deletes only, for sealed segments of a vchannel whose growing rows another node
    serves.

    ``damaged``: segments as ``growing`` that cannot be loaded, because their manifests cannot be read.
    ``again``: those of the segments without rows (see `UnrecoveredSegment`) to be tried once more.
    ``unserved``: delta logs of writes that no version has brought online yet; one will (`deletes` there).
    ``moments``: from which moment reads see the deletes of writes that are online, by the write's commit.

    A vchannel that is followed already is followed again only when rows are wanted that were not taken in:
    of partitions that were added to the load since, or of a vchannel that was followed only for its
    deletes. The old follower serves until the new one has reached the same tick.
    """

    collection_id: CollectionID
    vchannel: str
    checkpoint: Checkpoint
    growing: tuple[SegmentManifest, ...]
    excluded: tuple[SegmentID, ...]
    delta_logs: tuple[DeltaLog, ...]
    rows: bool = True
    leaving: tuple[PartitionID, ...] = ()
    damaged: tuple[UnrecoveredSegment, ...] = ()
    again: tuple[SegmentID, ...] = ()
    unserved: tuple[DeltaLog, ...] = ()
    moments: Mapping[Timestamp, Timestamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadSegment:
    """Make a sealed segment ready on the node. It answers no read before a version names it.

    ``delta_logs`` are the vchannel's delete files up to ``checkpoint``; deletes after it come from the
    vchannel that the node follows. ``indexes``: built indexes by vector field; a field without one is
    searched exactly over its raw vectors. ``moments``: as in `WatchVchannel`. ``unserved``: the paths of the
    vchannel's delta logs that are unserved there, and are therefore not among ``delta_logs``.
    """

    collection_id: CollectionID
    manifest: SegmentManifest
    indexes: tuple[IndexFile, ...]
    delta_logs: tuple[DeltaLog, ...]
    checkpoint: Checkpoint
    moments: Mapping[Timestamp, Timestamp] = field(default_factory=dict)
    unserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """An object that cannot be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class SealedSegmentsChange:
    """A new collection version: which sealed segments come online, which go offline.

    Growing segments whose ids come online or go offline, or that a segment coming online was compacted
    from, are released. Segments that were loaded again with an index come online under the id they
    already have: the new copy replaces the old. ``online`` are ready on the node that receives this;
    ``elsewhere``: their rows are in what is online on other nodes under the same version, or were
    compacted into what comes online on any node. ``leads``: the vchannels whose growing
    rows this node serves from this version on (None: as before; at first those of the collection).
    ``incarnation``: that of the intended node, as its status reported it; a node that has restarted since
    refuses. "": the version came by a query channel, which a restarted node joins at a later position.
    ``visible_from``: the segments among those online that reads as of an earlier moment must not see; what
    compaction made of such a segment refuses these reads. ``missing``: segments that no node serves
    under this version; reads of their partitions are refused. ``deletes``: the unserved delta logs that take
    effect with this version, by path, each with the moment from which reads see it (0: its own timestamp).
    """

    collection_id: CollectionID
    version: int
    online: tuple[SegmentID, ...]
    offline: tuple[SegmentID, ...]
    elsewhere: tuple[SegmentID, ...] = ()
    leads: tuple[str, ...] | None = None
    incarnation: str = ""
    visible_from: Mapping[SegmentID, Timestamp] = field(default_factory=dict)
    missing: Mapping[SegmentID, MissingSegment] = field(default_factory=dict)
    deletes: Mapping[str, Timestamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentServing:
    """A segment as a query node holds it.

    ``index_ids``: the indexes that serve its vector fields; ``index_id`` is the first of them (0: none).
    ``visible``: reads as of the node's service time see it.
    """

    segment_id: SegmentID
    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    rows: int
    sealed: bool
    memory_bytes: int
    index_id: IndexID
    index_ids: tuple[IndexID, ...] = ()
    visible: bool = True


@dataclass(frozen=True, slots=True)
class QueryNodeStatus:
    """``service_times``: per vchannel, the tick up to which it answers.

    ``segments`` are those that the versions in force name; ``loaded``: for each collection, ids of sealed
    copies that are ready and wait for a version. ``late_messages`` were at or below a tick before them, and
    ignored.
    ``leads``: the vchannels whose growing rows it serves. ``query_channels``: those it follows.
    ``refused``: the latest version received on such a channel, where the node cannot serve it.
    ``capacity_bytes``: the memory it may fill with segments, 0 when unknown; ``used_bytes``: what all
    copies of segments take, those that wait for a version included, what filters have cached, the delta logs
    that are kept, and what was read from the log and waits for its tick.
    ``failures``: vchannels whose following ended in an error, with its text. ``unreadable_logs``: collections
    whose reads are refused because a log cannot be read, with what is wrong and the remedy. ``held``: sealed
    segments that are in memory for any reason; a read that began under an older version holds what it reads.
    ``incarnation`` differs after every start, even where the node's id stays the same.
    ``positions``: by pchannel, where in the log it reads on, or will once binlogs are loaded.

    A status of one collection lists the segments, vchannels and versions of that collection only, and neither
    ``held`` nor ``positions``. Its ``leads_elsewhere`` is the number of vchannels that the node leads for
    other collections, and its ``used_bytes`` may be a second old.
    """

    node_id: NodeID
    service_times: Mapping[str, Timestamp]
    segments: tuple[SegmentServing, ...]
    growing_bytes: int
    versions: Mapping[CollectionID, int]
    loaded: Mapping[CollectionID, tuple[SegmentID, ...]] = field(default_factory=dict)
    late_messages: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    unreadable_logs: Mapping[CollectionID, tuple[str, ...]] = field(default_factory=dict)
    leads: tuple[str, ...] = ()
    query_channels: Mapping[CollectionID, str] = field(default_factory=dict)
    refused: Mapping[CollectionID, int] = field(default_factory=dict)
    capacity_bytes: int = 0
    used_bytes: int = 0
    held: tuple[SegmentID, ...] = ()
    incarnation: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)
    leads_elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class GrowingRows:
    """A growing segment with rows in a node's memory."""

    segment_id: SegmentID
    collection_id: CollectionID
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class QueryNodePulse:
    """The part of a status that is looked at all the time: nothing in it is listed by sealed segment.

    ``growing``: the growing segments that take memory. The other fields are those of `QueryNodeStatus`.
    """

    node_id: NodeID
    incarnation: str
    growing_bytes: int
    growing: tuple[GrowingRows, ...]
    versions: Mapping[CollectionID, int]
    query_channels: Mapping[CollectionID, str]
    failures: Mapping[str, str]
    positions: Mapping[str, int]


class QueryNodeApi(Protocol):
    """Control. Every call may be repeated: repeating what is already done changes nothing."""

    @order_of("querycoord")
    @repeatable
    async def load_collection(self, request: LoadCollection) -> None: ...
    @order_of("querycoord")
    @repeatable
    async def watch_vchannel(self, request: WatchVchannel) -> tuple[UnrecoveredSegment, ...]:
        """Returns when the vchannel is followed, and has caught up with what the collection serves.

        Returns the growing segments that could not be recovered. They hold up nothing else.
        """
        ...

    @order_of("querycoord")
    @repeatable
    async def unwatch_vchannel(self, collection_id: CollectionID, vchannel: str) -> None:
        """Stop following a vchannel. Raises `NotReady` while it is led here, or segments need its deletes."""
        ...

    @order_of("querycoord")
    @repeatable
    async def give_up_vchannel(self, collection_id: CollectionID, vchannel: str) -> None:
        """Release a vchannel that cannot be followed any more, with its growing and sealed segments.

        The collection serves nothing until a later version. The segments of its other vchannels stay loaded
        for that version, and these vchannels are followed on. Does nothing if the vchannel has not failed.
        """
        ...

    @order_of("querycoord")
    @repeatable
    async def load_segment(self, request: LoadSegment) -> tuple[DamagedFile, ...]:
        """Return when the segment is ready. A segment that is ready already, with the same files and
        indexes, is left alone; with others it is loaded in addition to the copy that serves.

        Returns the index files that cannot be used: their fields are searched as if they had no index yet.

        Raises `CollectionNotLoaded`; `NotReady` when the node does not follow the segment's vchannel, or
        holds its deletes only from a later checkpoint on; `SegmentUnreadable` when a file with its rows or
        deletes is damaged or missing.
        """
        ...

    @order_of("querycoord")
    @repeatable
    async def unload_segments(self, collection_id: CollectionID, segment_ids: Sequence[SegmentID]) -> None:
        """Release copies that wait for a version; no version will name them here. Serving copies stay."""
        ...

    @order_of("querycoord")
    @repeatable
    async def announce(self, change: SealedSegmentsChange) -> None:
        """Switch versions, in one step. Before anything changes, raises `SegmentNotFound` when a segment
        of ``online`` is not ready here, and `NotReady` when a vchannel of ``leads`` is not followed with
        its rows. A version that is not newer than the one in force changes nothing.
        """
        ...

    @order_of("querycoord")
    @repeatable
    async def forget_deletes(self, collection_id: CollectionID, vchannel: str, before: Timestamp) -> None:
        """No segment will be loaded from an older checkpoint any more: older buffered deletes may go."""
        ...

    @order_of("querycoord")
    @repeatable
    async def set_partitions(self, collection_id: CollectionID, partition_ids: Sequence[PartitionID]) -> None:
        """Serve exactly these partitions from now on; data of others is released.

        Nothing is released of a collection that was last loaded as a whole: its partitions are created and
        dropped by their messages in the log. Raises `PartitionNotLoaded` for a partition whose growing rows
        some vchannel has not taken in (see `LoadCollection`).
        """
        ...

    @order_of("querycoord")
    @repeatable
    async def add_query_channel(self, info: QueryChannelInfo) -> None:
        """Answer reads on the channel, under the version passed with it and those that follow on it.

        Used instead of `announce` for a node among several; a channel added before is left. Raises
        `ChannelLost`, and `NotSupported` on a node that serves only its own process.
        """
        ...

    @order_of("querycoord")
    @repeatable
    async def release_collection(self, collection_id: CollectionID) -> None: ...
    @repeatable
    async def status(self, collection_id: CollectionID = CollectionID(0)) -> QueryNodeStatus:
        """Return the status, of one collection if one is given: its cost is then that of the collection."""
        ...

    @repeatable
    async def pulse(self) -> QueryNodePulse: ...


@quick
class NodeSearch(Struct, frozen=True, gc=False):
    """One search, as a query node executes it.

    ``k`` already covers the offset. ``partition_ids`` empty: all loaded ones. ``params`` are the raw
    search parameters of the client; ``metric_type`` "" means the index's. ``output_fields`` are stored
    columns wanted with the hits. ``answer_bytes_max`` and ``expired_until``: see `NodeQuery`.

    ``grouping``: ``k`` is a number of groups; the hits of a query are its groups' hits, best first. Their
    fields are among the ``output_fields``. ``candidates_max``: how many rows, in all, a grouping search may
    rank to find its groups. ``boosts``: change the scores before hits are compared. ``spared_fields``: as
    for `NodeQuery`. ``chains``: those of the stages L0 and L1. ``timeout_s``: how long the client of a search
    that may take long (of many vectors, of texts, of lists) still waits when the node gets it; None: as long
    as it takes.
    """

    collection_id: CollectionID
    partition_ids: tuple[PartitionID, ...]
    field_id: FieldID
    queries: Queries
    k: int
    metric_type: str
    params: Mapping[str, Scalar]
    filter: BoundFilter
    output_fields: tuple[str, ...]
    read_ts: Timestamp
    ignore_growing: bool = False
    answer_bytes_max: int | None = None
    expired_until: Timestamp = NO_TIMESTAMP
    grouping: Grouping | None = None
    candidates_max: int = 0
    boosts: Boosts | None = None
    spared_fields: tuple[str, ...] = ()
    chains: Chains | None = None
    timeout_s: float | None = None

    @property
    def keeps_scores(self) -> bool:
        """Whether hits have the scores of their index: no boost and no chain of stage L0 changes them."""
        return self.boosts is None and (self.chains is None or self.chains.segment is None)


@dataclass(frozen=True, slots=True)
class NodeHits:
    """Hits of query i: ``offsets[i]:offsets[i+1]``, best first, primary keys unique per query.

    ``fields``: the wanted output columns, aligned with ``ids``.
    """

    metric_type: str
    offsets: npt.NDArray[np.int64]
    ids: PrimaryKeys
    scores: npt.NDArray[np.float32]
    fields: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """Rows matching a filter (or ``primary_keys``, when not None), as of ``read_ts``.

    ``limit`` None: all of them. Rows come in primary-key order, unique by primary key (the newest one of
    a duplicate wins). ``offset + limit`` is what each node has to return; the proxy cuts the offset off.
    ``answer_bytes_max``: a node refuses to fetch output vectors that take more. ``expired_until``: rows whose
    timestamp is not later have expired at ``read_ts``, and do not match (0: rows do not expire).

    ``order``: the order of the rows instead of that of keys; its fields are among the ``output_fields``.
    ``aggregation``: the answer has the partial results of `elanus.core.aggregation` instead of rows.

    ``spared_fields``: those of the ``output_fields`` that the answer lacks if they are not loaded. A read
    that needs any other field that is not loaded is refused.
    """

    collection_id: CollectionID
    partition_ids: tuple[PartitionID, ...]
    filter: BoundFilter
    primary_keys: pa.Array | None
    output_fields: tuple[str, ...]
    limit: int | None
    read_ts: Timestamp
    ignore_growing: bool = False
    answer_bytes_max: int | None = None
    expired_until: Timestamp = NO_TIMESTAMP
    order: tuple[OrderBy, ...] = ()
    aggregation: Aggregation | None = None
    spared_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Ask for the statistics of a full-text search: of all rows of the collection that are visible at
    ``read_ts``.

    ``terms``: uint32, ascending. The answers of several nodes add up (`elanus.core.term_statistics`).
    ``expired_until``: see `NodeQuery`.
    """

    collection_id: CollectionID
    field_id: FieldID
    terms: npt.NDArray[np.uint32]
    read_ts: Timestamp
    expired_until: Timestamp = NO_TIMESTAMP


class QueryNodeReads(Protocol):
    """The synchronous read side, safe to call from many threads."""

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        """Return the lowest tick over the collection's vchannels. Raises `CollectionNotLoaded`."""
        ...

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, timeout_s: float) -> None:
        """Block until `service_time` is at least ``ts``.

        Raises `DeadlineExceeded`, `CollectionNotLoaded`.
        """
        ...

    def search(self, request: NodeSearch) -> NodeHits: ...
    def query(self, request: NodeQuery) -> Mapping[str, pa.Array]:
        """Return the output columns (the primary key is always among them)."""
        ...

    def statistics(self, request: NodeStatistics) -> TermStatistics: ...
    def count(self, request: NodeQuery) -> int:
        """Return the number of live rows that match; duplicates of a primary key count separately."""
        ...
