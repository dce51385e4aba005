"""Indexcoord's state: index definitions and builds, in memory and in the metadata."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

import msgspec

from elanus.api.indexcoord import BuildState
from elanus.core.catalog import Index
from elanus.core.ids import BuildID, CollectionID, IndexID, SegmentID
from elanus.core.segments import IndexFile
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import Delete, MetaStore, Put

_INDEXES = "indexcoord/index/"
_BUILDS = "indexcoord/build/"


@dataclass(frozen=True, slots=True)
class Build:
    """The build of one index over one segment.

    ``version`` grows with every assignment to an index node; only the result of the latest version counts.
    ``file`` is None until the build is finished, and stays None for a segment that is too small to index.
    """

    build_id: BuildID
    index_id: IndexID
    collection_id: CollectionID
    segment_id: SegmentID
    rows: int
    version: int
    state: BuildState
    file: IndexFile | None = None
    fail_reason: str = ""


class IndexState:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._indexes: dict[IndexID, Index] = {}
        self._builds: dict[tuple[IndexID, SegmentID], Build] = {}

    async def start(self) -> None:
        for _, stored in await self._meta.list(_INDEXES):
            index = msgspec.json.decode(stored.value, type=Index)
            self._indexes[index.index_id] = index
        for _, stored in await self._meta.list(_BUILDS):
            build = msgspec.json.decode(stored.value, type=Build)
            self._builds[(build.index_id, build.segment_id)] = build

    def index(self, index_id: IndexID) -> Index | None:
        return self._indexes.get(index_id)

    def indexes(self, collection_id: CollectionID) -> tuple[Index, ...]:
        return tuple(i for i in self._indexes.values() if i.collection_id == collection_id)

    def indexed_collections(self) -> Iterable[CollectionID]:
        return dict.fromkeys(i.collection_id for i in self._indexes.values())

    def build(self, index_id: IndexID, segment_id: SegmentID) -> Build | None:
        return self._builds.get((index_id, segment_id))

    def builds(self) -> tuple[Build, ...]:
        return tuple(self._builds.values())

    @uncancellable
    async def put_index(self, index: Index) -> None:
        await self._meta.txn([Put(f"{_INDEXES}{index.index_id}", msgspec.json.encode(index))])
        self._indexes[index.index_id] = index

    @uncancellable
    async def put_build(self, build: Build) -> None:
        await self._meta.txn([Put(f"{_BUILDS}{build.build_id}", msgspec.json.encode(build))])
        self._builds[(build.index_id, build.segment_id)] = build

    @uncancellable
    async def remove_build(self, build: Build) -> None:
        await self._meta.txn([Delete(f"{_BUILDS}{build.build_id}")])
        self._builds.pop((build.index_id, build.segment_id), None)

    @uncancellable
    async def remove_index(self, index: Index) -> None:
        """Remove the definition first: builds without one are then returned by `leftovers`."""
        await self._meta.txn([Delete(f"{_INDEXES}{index.index_id}")])
        self._indexes.pop(index.index_id, None)

    def leftovers(self) -> tuple[Build, ...]:
        """Return the builds of indexes that no longer exist."""
        return tuple(b for b in self._builds.values() if b.index_id not in self._indexes)

    def builds_of_dropped(self, collection_id: CollectionID, flushed: Set[SegmentID]) -> tuple[Build, ...]:
        """Return the builds of a collection's segments that are not in ``flushed``: they were dropped."""
        return tuple(
            b
            for b in self._builds.values()
            if b.collection_id == collection_id and b.segment_id not in flushed
        )
