"""What indexcoord asks of an index node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import BuildID, IndexID
from elanus.core.schema import FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.rpc.fencing import order_of


@dataclass(frozen=True, slots=True)
class BuildIndex:
    """Build one segment's index. ``version`` grows with each assignment: an older one's result is void."""

    build_id: BuildID
    version: int
    index_id: IndexID
    field: FieldSchema
    params: Mapping[str, str]
    manifest: SegmentManifest


class IndexNodeApi(Protocol):
    @order_of("indexcoord")
    async def build_index(self, request: BuildIndex) -> IndexFile:
        """Runs the build as a Spark job; returns when the file is on the object store."""
        ...
