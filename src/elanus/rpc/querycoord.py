"""The query coordinator's interface: what is loaded, how far, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import CollectionID, NodeID, PartitionID
from elanus.rpc.querynode import SegmentServing


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """``percentage`` of the load, per partition; 100: serves at least what was persisted when it began."""

    collection_id: CollectionID
    whole_collection: bool
    percentages: dict[PartitionID, int]


class QueryCoordApi(Protocol):
    async def load(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None:
        """Begin to load partitions (none named: the whole collection). Persisted before it returns."""
        ...

    async def release(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None: ...
    async def loads(self) -> tuple[LoadStatus, ...]:
        """Everything that is loaded or loading."""
        ...

    async def serving(self, collection_id: CollectionID) -> tuple[tuple[NodeID, SegmentServing], ...]: ...
