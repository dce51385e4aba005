"""The index coordinator role: definitions of indexes, and what is known of their builds.

The role is level-triggered: `elanus.indexcoord.builds` compares what is flushed with what is built, and
starts the missing builds. A build that was running when this role or its index node ended is simply missing
again; it is reassigned under a higher version, and the older result does not count. A build that fails is
retried before it counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from elanus.api.cache_invalidation import Invalidations, Notifications
from elanus.api.datacoord import DataCoordApi
from elanus.api.fencing import while_active
from elanus.api.gc import IndexReferences
from elanus.api.indexcoord import BuildState, IndexStatus
from elanus.api.indexnode import IndexNodeApi
from elanus.api.proxy import ProxyApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.catalog import Index
from elanus.core.change import Changes
from elanus.core.clock import Clock
from elanus.core.errors import CoordinatorReplaced, FieldNotFound, IndexConflict, IndexNotFound
from elanus.core.ids import CollectionID, FieldID, IndexID, NodeID, SegmentID
from elanus.core.index_properties import altered, without_properties
from elanus.core.lease import Lease
from elanus.core.schema import FieldSchema
from elanus.core.segments import IndexFile, SegmentState
from elanus.index import IndexSpec, check_field, json_path_of, mapped_params, resolve_field_index
from elanus.indexcoord.builds import Builder, IndexPolicy
from elanus.indexcoord.state import UNFINISHED, Build, IndexState
from elanus.meta.cancellation import uncancellable

_log = structlog.get_logger("indexcoord")


class IndexCoord:
    """Implements `elanus.api.indexcoord.IndexCoordApi`. ``lease``: this coordinator's own lease, which makes
    it the active one. ``dial`` makes a client for an index node."""

    def __init__(
        self,
        lease: Lease,
        state: IndexState,
        clock: Clock,
        rootcoord: RootCoordApi,
        datacoord: DataCoordApi,
        proxies: Mapping[NodeID, ProxyApi],
        dial: Callable[[str], IndexNodeApi],
        policy: IndexPolicy,
    ) -> None:
        self._lease = lease
        self._state = state
        self._rootcoord = rootcoord
        self._datacoord = datacoord
        self._invalidations = Invalidations(proxies)
        self._changes = Changes(clock.wall_ms())
        self._defining = asyncio.Lock()
        self._builder = Builder(state, clock, rootcoord, datacoord, dial, policy, self._changes)

    async def start(self) -> None:
        await self._state.start()
        self._invalidations.invalidate_everything()
        self._builder.start()

    async def stop(self) -> None:
        await self._builder.stop()
        await self._invalidations.stop()

    # definitions

    async def create_index(
        self,
        collection_id: CollectionID,
        field: FieldSchema,
        name: str,
        params: Mapping[str, str],
        built: tuple[IndexFile, ...] = (),
    ) -> None:
        spec = resolve_field_index(params, field)
        check_field(spec, field)
        async with self._defining:
            await self._check_present(collection_id, field)
            name = name or self._default_name(collection_id, spec, field)
            asked = (name, field.field_id, without_properties(params))
            for known in self._state.indexes(collection_id):
                if (known.name, known.field_id, without_properties(known.params)) == asked:
                    if built:
                        await self._builder.define(known, built)
                    await self._invalidations.all_confirmed()
                    return
                if known.name == name or _indexes_the_same(known, spec, field):
                    raise _conflict(known, name)
            index_id = IndexID(await self._rootcoord.alloc_ids(1))
            created = await self._rootcoord.alloc_timestamp(1)
            index = Index(index_id, collection_id, field.field_id, name, dict(params), created)
            change = self._builder.define(index, built) if built else self._state.put_index(index)
            notifications = await self._begin_change(collection_id, change)
        await self._invalidations.confirmed(notifications)

    async def _check_present(self, collection_id: CollectionID, field: FieldSchema) -> None:
        """Raises `CollectionNotFound`, `FieldNotFound`.

        The proxy checked its cached copy. Nothing else would ever remove an index of what was dropped since:
        the lock is held, so a drop that this check does not see yet drops the index with the others.
        """
        found = await self._rootcoord.collection_by_id(collection_id)
        if field.field_id not in found.readers_schema.by_id:
            raise FieldNotFound(f"cannot create index on non-exist field: {field.name}")

    def _default_name(self, collection_id: CollectionID, spec: IndexSpec, field: FieldSchema) -> str:
        """Return the name of an index that is created without one: that of the index in its place, else the
        field's with the path of a JSON field."""
        for known in self._state.indexes(collection_id):
            if _indexes_the_same(known, spec, field):
                return known.name
        path = json_path_of(spec, field)
        return field.name if path is None else f"{field.name}/{'/'.join(map(str, path))}"

    async def alter_index(
        self,
        collection_id: CollectionID,
        name: str,
        properties: Mapping[str, str],
        delete_keys: tuple[str, ...],
    ) -> None:
        async with self._defining:
            index = next((i for i in self._state.indexes(collection_id) if i.name == name), None)
            if index is None:
                raise IndexNotFound(f"index not found[indexName={name}]")
            params = altered(index.params, properties, delete_keys)
            if params == dict(index.params):
                await self._invalidations.all_confirmed()
                return
            change = self._state.put_index(replace(index, params=params))
            notifications = await self._begin_change(collection_id, change)
        await self._invalidations.confirmed(notifications)

    async def drop_index(self, collection_id: CollectionID, index_id: IndexID) -> None:
        async with self._defining:
            index = self._state.index(index_id)
            if index is None:
                await self._invalidations.all_confirmed()
                return
            notifications = await self._begin_change(collection_id, self._state.remove_index(index))
        await self._invalidations.confirmed(notifications)

    async def drop_other_indexes(self, collection_id: CollectionID, fields: tuple[FieldID, ...]) -> None:
        async with self._defining:
            others = [i for i in self._state.indexes(collection_id) if i.field_id not in fields]
            if not others:
                return
            found = await self._rootcoord.collection_by_id(collection_id)
            if found.readers_schema.by_id.keys() != set(fields):  # the call is late; see datacoord
                raise CoordinatorReplaced(
                    f"collection {collection_id} has other fields by now: this change of its schema is over"
                )
            notifications = await self._begin_change(collection_id, self._remove(others))
        await self._invalidations.confirmed(notifications)

    async def drop_collection(self, collection_id: CollectionID) -> None:
        async with self._defining:
            gone = self._state.indexes(collection_id)
            notifications = await self._begin_change(collection_id, self._remove(gone))
        await self._invalidations.confirmed(notifications)

    async def _remove(self, indexes: Sequence[Index]) -> None:
        for index in indexes:
            await self._state.remove_index(index)

    async def indexes(self, collection_id: CollectionID) -> tuple[Index, ...]:
        async with while_active(self._lease):
            return self._state.indexes(collection_id)

    async def describe(self, collection_id: CollectionID) -> tuple[IndexStatus, ...]:
        segments = await self._datacoord.segments(collection_id)
        flushed = {s.segment_id: s.rows for s in segments if s.state is SegmentState.FLUSHED}
        return tuple(self._status(index, flushed) for index in self._state.indexes(collection_id))

    def _status(self, index: Index, flushed: Mapping[SegmentID, int]) -> IndexStatus:
        builds = {s: self._state.build(index.index_id, s) for s in flushed}
        failed = [b for b in builds.values() if b is not None and b.state is BuildState.FAILED]
        indexed = sum(rows for s, rows in flushed.items() if _is_finished(builds[s]))
        total = sum(flushed.values())
        if failed:
            state = BuildState.FAILED
        elif indexed < total:
            state = BuildState.IN_PROGRESS
        else:
            state = BuildState.FINISHED
        return IndexStatus(
            index=index,
            state=state,
            fail_reason="; ".join(b.fail_reason for b in failed),
            total_rows=total,
            indexed_rows=indexed,
            pending_rows=total - indexed,
        )

    async def index_files(self, collection_id: CollectionID) -> tuple[IndexFile, ...]:
        return tuple(
            replace(build.file, params=mapped_params(build.file.params, index.params))
            for index in self._state.indexes(collection_id)
            for build in self._state.builds_of(index.index_id)
            if build.file is not None
        )

    async def rebuild(self, collection_id: CollectionID, path: str, reason: str) -> None:
        for build in self._state.builds():
            if build.collection_id == collection_id and build.file is not None and build.file.path == path:
                _log.error("index file not usable; building again", build=build.build_id, error=reason)
                await self._state.put_build(replace(build, state=BuildState.UNISSUED, file=None))
                self._changes.happened(collection_id)
                self._builder.examine_soon((collection_id,))

    async def unbuilt(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...]
    ) -> tuple[SegmentID, ...]:
        ended = (BuildState.FINISHED, BuildState.FAILED)
        indexes = self._state.indexes(collection_id)
        builds = {s: [self._state.build(index.index_id, s) for index in indexes] for s in segment_ids}
        return tuple(s for s in segment_ids if any(b is None or b.state not in ended for b in builds[s]))

    async def index_references(self) -> IndexReferences:
        """Return the index files in use. The lease is checked: a replaced coordinator must not answer,
        because the files that its successor has recorded would count as garbage."""
        async with while_active(self._lease), self._builder.numbering:
            builds_below = await self._rootcoord.alloc_ids(1)
            builds = self._state.builds()
        return IndexReferences(
            tuple(b.file.path for b in builds if b.file is not None),
            {b.build_id: b.version for b in builds if b.state in UNFINISHED},
            builds_below,
        )

    async def wait_change(self, since: int, timeout_s: float) -> int:
        return await self._changes.wait_change(since, timeout_s)

    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        return await self._changes.changed_since(since)

    async def register_indexnode(self, node_id: NodeID, address: str, builds_max: int = 1) -> None:
        self._builder.nodes.heartbeat(node_id, address, builds_max)

    async def indexnode_stops(self, node_id: NodeID) -> None:
        self._builder.nodes.stops(node_id)

    @uncancellable
    async def _begin_change(
        self, collection_id: CollectionID, change: Coroutine[Any, Any, None]
    ) -> Notifications:
        """Carry out a change of a collection's indexes, and begin to notify the proxies.

        If the caller is cancelled meanwhile, it does not learn whether the change was made; everyone else is
        notified all the same.
        """
        await change
        self._changes.happened(collection_id)
        self._builder.examine_soon((collection_id,))
        return self._invalidations.begin(collection_id)


def _indexes_the_same(known: Index, spec: IndexSpec, field: FieldSchema) -> bool:
    """Whether an index has the values that another is to have: those of the field, or of one JSON path."""
    if known.field_id != field.field_id:
        return False
    other = resolve_field_index(known.params, field)
    return json_path_of(other, field) == json_path_of(spec, field)


def _conflict(existing: Index, name: str) -> IndexConflict:
    """Return the error for a conflicting index. Like the reference, it distinguishes a second index on the
    field under another name from an index of the same name with other parameters."""
    what = (
        "at most one distinct index is allowed per field"
        if existing.name == name
        else "creating multiple indexes on same field is not supported"
    )
    known = f"index {existing.name} exists with {dict(existing.params)}"
    return IndexConflict(f"CreateIndex failed: {what}: {known}; drop it first")


def _is_finished(build: Build | None) -> bool:
    return build is not None and build.state is BuildState.FINISHED
