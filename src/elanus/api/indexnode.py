"""The interface of an index node towards indexcoord."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.core.ids import BuildID, IndexID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest


@dataclass(frozen=True, slots=True)
class BuildIndex:
    """Build one segment's index. ``version`` grows each time the build is given to a node; the result of an
    older version is void. ``schema``: of a field whose values may have to be computed from others; None for
    other fields."""

    build_id: BuildID
    version: int
    index_id: IndexID
    field: FieldSchema
    params: Mapping[str, str]
    manifest: SegmentManifest
    schema: CollectionSchema | None = None


class IndexNodeApi(Protocol):
    @order_of("indexcoord")
    async def build_index(self, request: BuildIndex) -> IndexFile:
        """Run the build as a Spark job; return when the file is on the object store."""
        ...
