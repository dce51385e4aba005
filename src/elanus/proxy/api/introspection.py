"""The verbs that show the system: segments, components, timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import CollectionID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp


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
class ComponentView:
    """A role of the system, and where it runs. ``detail``: why it is not healthy."""

    node_id: NodeID
    role: str
    healthy: bool
    detail: str = ""


class IntrospectionVerbs(Protocol):
    def persistent_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        """Return the segments that datacoord knows, without dropped ones."""
        ...

    def query_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        """Return the segments that query nodes serve, once for each node."""
        ...

    def allocate_timestamp(self) -> Timestamp: ...
    def components(self) -> Sequence[ComponentView]:
        """Return the state of every role of the system."""
        ...
