"""The query coordinator's interface: what is loaded, how far, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.rpc.querychannel import QueryChannelInfo
from elanus.rpc.querynode import SegmentServing
from elanus.rpc.repeat import repeatable


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """``percentage`` of the load, per partition; 100: serves at least what was persisted when it began."""

    collection_id: CollectionID
    whole_collection: bool
    percentages: dict[PartitionID, int]


class QueryCoordApi(Protocol):
    @repeatable
    async def load(
        self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...], replicas: int
    ) -> None:
        """Begin to load partitions (none named: the whole collection). Persisted before it returns.

        Raises `NodesNotEnough` when there are fewer query nodes than replicas, `InsufficientMemory` when they
        have no room, `InvalidParameter` when the collection is loaded with another number of replicas.
        """
        ...

    @repeatable
    async def release(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None: ...
    @repeatable
    async def loads(self) -> tuple[LoadStatus, ...]:
        """Everything that is loaded or loading."""
        ...

    @repeatable
    async def held_segments(self) -> tuple[SegmentID, ...]:
        """Sealed segments that some query node may still read files of. Raises `Unavailable` when not every
        node can be asked."""
        ...

    @repeatable
    async def growing_bytes(self) -> int:
        """Growing data of the query node that has most of it, a moment ago: for back-pressure."""
        ...

    @repeatable
    async def serving(self, collection_id: CollectionID) -> tuple[tuple[NodeID, SegmentServing], ...]: ...
    @repeatable
    async def query_channels(self, collection_id: CollectionID) -> tuple[QueryChannelInfo, ...]:
        """The channels of the replicas that can be read. Raises `CollectionNotLoaded`."""
        ...

    async def load_balance(
        self,
        collection_id: CollectionID,
        source: NodeID,
        targets: tuple[NodeID, ...],
        segment_ids: tuple[SegmentID, ...],
    ) -> None:
        """Move sealed segments (none named: all) from one node to others (none named: any of the replica).

        Returns when that is decided; it goes on in the background. Raises `CollectionNotLoaded`,
        `InvalidParameter` naming a node or segment that is not where it was said to be.
        """
        ...
