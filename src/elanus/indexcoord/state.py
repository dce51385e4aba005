"""Indexcoord's state: index definitions and builds, in memory and in the metadata."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from elanus.api.indexcoord import BuildState
from elanus.core.catalog import Index
from elanus.core.ids import BuildID, CollectionID, IndexID, SegmentID
from elanus.core.segments import IndexFile
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import Delete, MetaStore, Put
from elanus.meta.turns import in_turns

_INDEXES = "indexcoord/index/"
_BUILDS = "indexcoord/build/"
UNFINISHED = (BuildState.UNISSUED, BuildState.IN_PROGRESS)
Found = TypeVar("Found")


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
    """Indexed by what is looked up: a look-up costs what it finds, however many collections there are."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._indexes: dict[IndexID, Index] = {}
        self._of_collection: dict[CollectionID, dict[IndexID, Index]] = {}
        self._builds: dict[IndexID, dict[SegmentID, Build]] = {}
        self._built: dict[CollectionID, dict[IndexID, None]] = {}
        """The indexes with builds by collection, those included that no longer exist."""
        self._leftover: dict[IndexID, None] = {}
        """The indexes with builds that no longer exist."""
        self._unfinished: dict[BuildID, CollectionID] = {}

    async def start(self) -> None:
        for _, stored in await self._meta.list(_INDEXES):
            self._show_index(msgspec.json.decode(stored.value, type=Index))
        async for _, stored in in_turns(await self._meta.list(_BUILDS)):
            self._show_build(msgspec.json.decode(stored.value, type=Build))

    def index(self, index_id: IndexID) -> Index | None:
        return self._indexes.get(index_id)

    def indexes(self, collection_id: CollectionID) -> tuple[Index, ...]:
        return tuple(self._of_collection.get(collection_id, {}).values())

    def indexed_collections(self) -> Iterable[CollectionID]:
        return tuple(self._of_collection)

    def unfinished_collections(self) -> Iterable[CollectionID]:
        """Return the collections with builds that have not ended."""
        return dict.fromkeys(self._unfinished.values())

    def build(self, index_id: IndexID, segment_id: SegmentID) -> Build | None:
        return self._builds.get(index_id, {}).get(segment_id)

    def builds(self) -> tuple[Build, ...]:
        return tuple(build for builds in self._builds.values() for build in builds.values())

    def builds_of(self, index_id: IndexID) -> Iterable[Build]:
        return self._builds.get(index_id, {}).values()

    @uncancellable
    async def put_index(self, index: Index) -> None:
        await self._meta.txn([Put(f"{_INDEXES}{index.index_id}", msgspec.json.encode(index))])
        self._show_index(index)

    @uncancellable
    async def put_build(self, *builds: Build) -> None:
        """Record builds in one transaction: at most `TXN_OPERATIONS_MAX`."""
        await self._meta.txn([Put(f"{_BUILDS}{b.build_id}", msgspec.json.encode(b)) for b in builds])
        for build in builds:
            self._show_build(build)

    @uncancellable
    async def remove_build(self, build: Build) -> None:
        await self._meta.txn([Delete(f"{_BUILDS}{build.build_id}")])
        self._unfinished.pop(build.build_id, None)
        builds = self._builds.get(build.index_id, {})
        builds.pop(build.segment_id, None)
        if not builds:
            self._builds.pop(build.index_id, None)
            self._leftover.pop(build.index_id, None)
            _remove(self._built, build.collection_id, build.index_id)

    @uncancellable
    async def remove_index(self, index: Index) -> None:
        """Remove the definition first: builds without one are then returned by `leftovers`."""
        await self._meta.txn([Delete(f"{_INDEXES}{index.index_id}")])
        self._indexes.pop(index.index_id, None)
        _remove(self._of_collection, index.collection_id, index.index_id)
        if index.index_id in self._builds:
            self._leftover[index.index_id] = None

    def leftovers(self) -> tuple[Build, ...]:
        """Return the builds of indexes that no longer exist."""
        return tuple(build for index_id in self._leftover for build in self.builds_of(index_id))

    def builds_of_dropped(self, collection_id: CollectionID, flushed: Set[SegmentID]) -> tuple[Build, ...]:
        """Return the builds of a collection's segments that are not in ``flushed``: they were dropped."""
        return tuple(
            build
            for index_id in self._built.get(collection_id, ())
            for build in self.builds_of(index_id)
            if build.segment_id not in flushed
        )

    def _show_index(self, index: Index) -> None:
        self._indexes[index.index_id] = index
        self._of_collection.setdefault(index.collection_id, {})[index.index_id] = index
        self._leftover.pop(index.index_id, None)

    def _show_build(self, build: Build) -> None:
        self._builds.setdefault(build.index_id, {})[build.segment_id] = build
        self._built.setdefault(build.collection_id, {})[build.index_id] = None
        if build.index_id not in self._indexes:
            self._leftover[build.index_id] = None
        if build.state in UNFINISHED:
            self._unfinished[build.build_id] = build.collection_id
        else:
            self._unfinished.pop(build.build_id, None)


def _remove(index: dict[CollectionID, dict[IndexID, Found]], key: CollectionID, index_id: IndexID) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(index_id, None)
        if not found:
            del index[key]
