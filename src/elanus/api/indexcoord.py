"""The index coordinator's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from elanus.api.gc import IndexReferences
from elanus.api.idempotency import repeatable
from elanus.core.catalog import Index
from elanus.core.ids import CollectionID, FieldID, IndexID, NodeID, SegmentID
from elanus.core.schema import FieldSchema
from elanus.core.segments import IndexFile


class BuildState(StrEnum):
    """The states, by their names on the wire."""

    NONE = "IndexStateNone"
    UNISSUED = "Unissued"
    IN_PROGRESS = "InProgress"
    FINISHED = "Finished"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """``total_rows`` counts rows of flushed segments, ``indexed_rows`` those whose build is finished
    (segments too small for an index count as finished), ``pending_rows`` the others. Segments count as a
    whole, as in the reference: a row is found through an index when its segment's build is finished. The job
    ledger shows the progress of a running build."""

    index: Index
    state: BuildState
    fail_reason: str
    total_rows: int
    indexed_rows: int
    pending_rows: int


class IndexCoordApi(Protocol):
    async def create_index(
        self,
        collection_id: CollectionID,
        field: FieldSchema,
        name: str,
        params: Mapping[str, str],
        built: tuple[IndexFile, ...] = (),
    ) -> None:
        """Idempotent for the same name and parameters. Raises `IndexConflict` otherwise.

        Raises `CollectionNotFound`, `FieldNotFound` for what was dropped since the caller looked.

        ``built``: files of this index over segments of the collection that exist already. They count as
        finished builds of segments that have none.

        ``name`` "": that of the index on the same values if there is one, else the field's and the JSON path.
        Properties (`elanus.core.index_properties`) are no parameters: they may differ.
        """
        ...

    @repeatable
    async def alter_index(
        self,
        collection_id: CollectionID,
        name: str,
        properties: Mapping[str, str],
        delete_keys: tuple[str, ...],
    ) -> None:
        """Set and delete properties of an index. They count from the next load. Raises `IndexNotFound`."""
        ...

    @repeatable
    async def drop_index(self, collection_id: CollectionID, index_id: IndexID) -> None: ...
    @repeatable
    async def drop_other_indexes(self, collection_id: CollectionID, fields: tuple[FieldID, ...]) -> None:
        """Drop the indexes of all fields but these, which the collection is to have.

        An index that is created meanwhile on another field is dropped, too, or its creation fails: the
        catalog must have the schema without that field already.
        """
        ...

    @repeatable
    async def drop_collection(self, collection_id: CollectionID) -> None:
        """Drop all indexes. As `drop_other_indexes`, of a collection that the catalog has dropped already."""
        ...

    @repeatable
    async def indexes(self, collection_id: CollectionID) -> tuple[Index, ...]: ...
    @repeatable
    async def describe(self, collection_id: CollectionID) -> tuple[IndexStatus, ...]: ...
    @repeatable
    async def index_files(self, collection_id: CollectionID) -> tuple[IndexFile, ...]:
        """Finished builds of indexes that are not dropped."""
        ...

    @repeatable
    async def rebuild(self, collection_id: CollectionID, path: str, reason: str) -> None:
        """Build the index again whose file this is: the file is damaged or missing.

        Returns when this is recorded; from then on `index_files` does not have the file. Does nothing if it
        is no file of a finished build.
        """
        ...

    @repeatable
    async def unbuilt(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...]
    ) -> tuple[SegmentID, ...]:
        """Return the segments among these that still wait for an index of the collection."""
        ...

    @repeatable
    async def index_references(self) -> IndexReferences:
        """Return every index file in use, and which builds may still add one: one moment of the metadata."""
        ...

    @repeatable
    async def wait_change(self, since: int, timeout_s: float) -> int: ...
    @repeatable
    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        """See `elanus.api.datacoord.DataCoordApi`."""
        ...

    @repeatable
    async def register_indexnode(self, node_id: NodeID, address: str, builds_max: int = 1) -> None:
        """Repeated by a running node, so that a new coordinator learns of it. ``builds_max``: how many builds
        it has room for; that may change."""
        ...

    @repeatable
    async def indexnode_stops(self, node_id: NodeID) -> None:
        """A node says that it stops: its builds are given to others now, and not when it has been silent."""
        ...
