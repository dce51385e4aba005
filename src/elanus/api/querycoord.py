"""The query coordinator's interface: what is loaded, how far, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querynode import SegmentServing
from elanus.core.group_config import GroupConfig
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID, FieldID, NodeID, PartitionID, SegmentID


@dataclass(frozen=True, slots=True)
class UnreadableSegment:
    """A segment whose files a query node could not read; it is tried again after a pause.

    ``reason`` names the file and the remedy. ``missing``: nothing else serves its rows, so reads of its
    partition are refused.
    """

    segment_id: SegmentID
    partition_id: PartitionID
    reason: str
    missing: bool


@dataclass(frozen=True, slots=True)
class LoadStall:
    """Why a load does not go on: the object store fails, or there is no room. It goes on by itself later.

    ``for_s``: seconds since the first of its attempts that failed began.
    """

    reason: str
    for_s: float


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """``percentages``: progress of the load, per partition; 100: serves at least what was persisted when it
    began. ``unreadable_logs``: why the log of some vchannels cannot be read, with the remedy; reads are
    refused meanwhile. ``stall``: None while nothing holds the load up."""

    collection_id: CollectionID
    whole_collection: bool
    percentages: dict[PartitionID, int]
    unreadable: tuple[UnreadableSegment, ...] = ()
    unreadable_logs: tuple[str, ...] = ()
    stall: LoadStall | None = None


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica that can be read, and its resource group.

    ``nodes``: those that work for it; ``outbound``: how many of them belong to each other group.
    """

    info: QueryChannelInfo
    group: str
    nodes: tuple[NodeID, ...]
    outbound: dict[str, int]


@dataclass(frozen=True, slots=True)
class ResourceGroupStatus:
    """``nodes`` are those that are alive. For the counts see `elanus.core.resource_groups.Census`."""

    name: str
    capacity: int
    nodes: tuple[NodeID, ...]
    loaded: dict[CollectionID, int]
    outgoing: dict[CollectionID, int]
    incoming: dict[CollectionID, int]
    config: GroupConfig = field(default_factory=GroupConfig)


class QueryCoordApi(Protocol):
    @repeatable
    async def load(
        self,
        collection_id: CollectionID,
        partition_ids: tuple[PartitionID, ...],
        replicas: int,
        groups: tuple[str, ...] = (),
        fields: tuple[FieldID, ...] = (),
    ) -> None:
        """Begin to load partitions (none named: the whole collection). Persisted before it returns.

        ``replicas``: 0 for as many as the collection is loaded with, or one.
        ``groups``: resource groups, one for all replicas (none named: the default one) or one for each.
        Raises `NodesNotEnough` when one has fewer query nodes than replicas, `InsufficientMemory` when they
        have no room, `ResourceGroupNotFound`, `InvalidParameter` when the collection is loaded with a
        different number of replicas, in other groups or with other fields. ``fields``: those that are
        held (none named: all); reads that need others are refused.
        """
        ...

    @repeatable
    async def reload(self, collection_id: CollectionID) -> None:
        """Have the query nodes load the collection again, if it is loaded: its schema has changed.

        When this has returned, no node that answers serves the former schema. The load goes on.
        """
        ...

    @repeatable
    async def release(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None: ...
    @repeatable
    async def loads(self, collection_id: CollectionID = CollectionID(0)) -> tuple[LoadStatus, ...]:
        """Return the state of loads: of one collection (empty when it is not loaded), or of all (0)."""
        ...

    @repeatable
    async def held_segments(self) -> tuple[SegmentID, ...]:
        """Sealed segments whose files some query node may still read, and the growing ones that are served.

        Raises `Unavailable` when not every node can be asked.
        """
        ...

    @repeatable
    async def growing_bytes(self) -> int:
        """Return the recent growing data size of the query node that has most of it: for back-pressure."""
        ...

    @repeatable
    async def growing_memory(self) -> tuple[GrowingMemory, ...]:
        """Return the recent growing data of each query node that has any, with its segments."""
        ...

    @repeatable
    async def growing_collections(self) -> Mapping[CollectionID, int]:
        """Return the recent bytes of growing rows by collection, on the query node that has most growing
        data."""
        ...

    @repeatable
    async def serving(self, collection_id: CollectionID) -> tuple[tuple[NodeID, SegmentServing], ...]: ...
    @repeatable
    async def query_channels(self, collection_id: CollectionID) -> tuple[QueryChannelInfo, ...]:
        """Return the channels of the replicas that can be read. Raises `CollectionNotLoaded`."""
        ...

    @repeatable
    async def replicas(self, collection_id: CollectionID) -> tuple[ReplicaStatus, ...]:
        """Return the replicas that can be read. Raises `CollectionNotLoaded`."""
        ...

    async def load_balance(
        self,
        collection_id: CollectionID,
        source: NodeID,
        targets: tuple[NodeID, ...],
        segment_ids: tuple[SegmentID, ...],
    ) -> None:
        """Move sealed segments (none named: all) from one node to others (none named: any of the replica).

        Returns when the move is decided; it proceeds in the background. Raises `CollectionNotLoaded`;
        `NodeNotFound` and `InvalidParameter` name a node or segment that is not where the call says it is.
        """
        ...

    @repeatable
    async def leave(self, node_id: NodeID) -> bool:
        """Hand over what a query node serves, which is about to stop, to other nodes of its resource group.

        Returns whether the node should wait and call again: something is being handed over. False when it
        has nothing any more, and also if no other node can take over. It must stop in the end: it gets
        nothing new. Raises `Unavailable`.
        """
        ...

    # resource groups; the errors are those of `elanus.core.resource_groups`

    async def create_resource_group(self, name: str, config: GroupConfig | None = None) -> None: ...
    async def update_resource_groups(self, configs: Mapping[str, GroupConfig]) -> None:
        """Change the configurations of groups. Nodes move between the groups at once; the data they hold
        follows in the background."""
        ...

    async def drop_resource_group(self, name: str) -> None:
        """Drop a group. A group that does not exist counts as dropped."""
        ...

    @repeatable
    async def list_resource_groups(self) -> tuple[str, ...]: ...
    @repeatable
    async def describe_resource_group(self, name: str) -> ResourceGroupStatus: ...
    @repeatable
    async def resource_groups(self) -> tuple[ResourceGroupStatus, ...]:
        """Return all of them, by name."""
        ...

    async def transfer_node(self, source: str, target: str, count: int) -> None:
        """Move query nodes from one group to another; the data they hold follows in the background."""
        ...

    async def transfer_replica(
        self, collection_id: CollectionID, source: str, target: str, count: int
    ) -> None:
        """Move replicas from one group to another: persisted when it returns, served there some time later.

        Raises `CollectionNotLoaded`, `NodesNotEnough`, `InsufficientMemory` in addition to the others.
        """
        ...
