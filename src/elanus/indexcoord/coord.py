"""The index coordinator role.

The role is level-triggered: whenever segments or indexes of a collection have changed, it compares what is
flushed with what is built and starts the missing builds. Collections that have not changed are not examined.
A build that was running when this role or its index node ended is simply missing again; it is reassigned
under a higher version, and the older result does not count. A build that fails is retried before it counts as
failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from elanus.api.cache_invalidation import Invalidations, Notifications
from elanus.api.datacoord import DataCoordApi
from elanus.api.fencing import while_active
from elanus.api.gc import IndexReferences
from elanus.api.indexcoord import BuildState, IndexStatus
from elanus.api.indexnode import BuildIndex, IndexNodeApi
from elanus.api.proxy import ProxyApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.catalog import Index
from elanus.core.change import Changes
from elanus.core.clock import Clock
from elanus.core.errors import (
    Cancelled,
    CollectionNotFound,
    DeadlineExceeded,
    ElanusError,
    IndexConflict,
    Unavailable,
)
from elanus.core.ids import BuildID, CollectionID, IndexID, NodeID, SegmentID
from elanus.core.lease import Lease
from elanus.core.schema import FieldSchema
from elanus.core.segments import IndexFile, SegmentManifest, SegmentState
from elanus.index import resolve_index
from elanus.indexcoord.nodes import IndexNodes
from elanus.indexcoord.state import UNFINISHED, Build, IndexState
from elanus.meta.cancellation import uncancellable
from elanus.storage.port import ObjectStore

_FOLLOW_TIMEOUT_S = 5.0
_RETRY_PAUSE_S = 1.0
_RETRY_FACTOR = 10.0
_ATTEMPTS_MAX = 3
_log = structlog.get_logger("indexcoord")


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """``rows_min``: segments with fewer rows are searched without an index. ``builds_max``: how many builds
    an index node has at a time."""

    rows_min: int
    builds_max: int


class IndexCoord:
    """Implements `elanus.api.indexcoord.IndexCoordApi`. ``lease``: this coordinator's own lease, which makes
    it the active one. ``dial`` makes a client for an index node."""

    def __init__(
        self,
        lease: Lease,
        state: IndexState,
        clock: Clock,
        store: ObjectStore,
        offload: Callable[..., Awaitable[object]],
        rootcoord: RootCoordApi,
        datacoord: DataCoordApi,
        proxies: Mapping[NodeID, ProxyApi],
        dial: Callable[[str], IndexNodeApi],
        policy: IndexPolicy,
    ) -> None:
        self._lease = lease
        self._state = state
        self._store = store
        self._offload = offload
        self._rootcoord = rootcoord
        self._datacoord = datacoord
        self._invalidations = Invalidations(proxies)
        self._policy = policy
        self._changes = Changes(clock.wall_ms())
        self._defining = asyncio.Lock()
        self._numbering = asyncio.Lock()
        """Held from the allocation of a build's id until it is recorded: else its files count as garbage."""
        self._wake = asyncio.Event()
        self._due: dict[CollectionID, None] = {}
        """The collections to examine."""
        self._nodes = IndexNodes(clock, dial, policy.builds_max, self._take_up_unfinished)
        self._running: dict[BuildID, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._state.start()
        self._invalidations.invalidate_everything()
        self._loops = [
            asyncio.create_task(self._follow_segments(), name="indexcoord follow"),
            asyncio.create_task(self._reconcile_loop(), name="indexcoord reconcile"),
        ]

    async def stop(self) -> None:
        tasks = [*self._loops, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._invalidations.stop()

    # definitions

    async def create_index(
        self, collection_id: CollectionID, field: FieldSchema, name: str, params: Mapping[str, str]
    ) -> None:
        resolve_index(params, field.data_type, field.dim)
        async with self._defining:
            for known in self._state.indexes(collection_id):
                if (known.name, known.field_id, dict(known.params)) == (name, field.field_id, dict(params)):
                    await self._invalidations.all_confirmed()
                    return
                if known.name == name or known.field_id == field.field_id:
                    raise _conflict(known, name)
            index_id = IndexID(await self._rootcoord.alloc_ids(1))
            created = await self._rootcoord.alloc_timestamp(1)
            index = Index(index_id, collection_id, field.field_id, name, dict(params), created)
            notifications = await self._begin_change(collection_id, self._state.put_index(index))
        await self._invalidations.confirmed(notifications)

    async def drop_index(self, collection_id: CollectionID, index_id: IndexID) -> None:
        index = self._state.index(index_id)
        if index is None:
            await self._invalidations.all_confirmed()
        else:
            removal = self._state.remove_index(index)
            await self._invalidations.confirmed(await self._begin_change(collection_id, removal))

    async def drop_collection(self, collection_id: CollectionID) -> None:
        removal = self._remove_indexes(collection_id)
        await self._invalidations.confirmed(await self._begin_change(collection_id, removal))

    async def _remove_indexes(self, collection_id: CollectionID) -> None:
        for index in self._state.indexes(collection_id):
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
            build.file
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
                self._examine_soon((collection_id,))

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
        async with while_active(self._lease), self._numbering:
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

    async def register_indexnode(self, node_id: NodeID, address: str) -> None:
        self._nodes.heartbeat(node_id, address)

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
        self._examine_soon((collection_id,))
        return self._invalidations.begin(collection_id)

    # builds

    def _examine_soon(self, collections: Iterable[CollectionID]) -> None:
        self._due |= dict.fromkeys(collections)
        self._wake.set()

    def _take_up_unfinished(self) -> None:
        """Start the builds that wait for an index node: there is one more."""
        self._examine_soon(self._state.unfinished_collections())

    async def _follow_segments(self) -> None:
        seen = 0
        while True:
            try:
                now = await self._datacoord.wait_change(seen, _FOLLOW_TIMEOUT_S)
                concerned = await self._datacoord.changed_since(seen) if now != seen else ()
            except ElanusError as error:
                _log.info("datacoord not reached", error=error.message)
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            seen = now
            # Woken without a change, too: nodes may have fallen silent.
            self._examine_soon(self._state.indexed_collections() if concerned is None else concerned)

    async def _reconcile_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._reconcile()
            except Exception:  # noqa: BLE001 - the next round may succeed, and without rounds nothing is built
                _log.exception("index reconciliation failed; trying again")
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._wake.set()

    async def _reconcile(self) -> None:
        self._nodes.forget_silent()
        due, self._due = list(self._due), {}
        for number, collection_id in enumerate(due):
            try:
                await self._examine(collection_id)
            except BaseException:
                self._due |= dict.fromkeys([*due[number + 1 :], collection_id])
                raise
        await self._remove(self._state.leftovers())

    async def _examine(self, collection_id: CollectionID) -> None:
        if not self._state.indexes(collection_id):
            return
        try:
            recovery = await self._datacoord.recovery_info(collection_id)
        except CollectionNotFound:
            return
        await self._remove(
            self._state.builds_of_dropped(collection_id, {m.segment_id for m in recovery.flushed})
        )
        for index in self._state.indexes(collection_id):
            for manifest in recovery.flushed:
                await self._ensure_build(index, manifest)

    async def _remove(self, builds: Iterable[Build]) -> None:
        """Remove builds, files first: after an interruption the build is still recorded and removed again."""
        for build in builds:
            running = self._running.get(build.build_id)
            if running is not None:
                running.cancel()
                continue
            if build.file is not None:
                await self._offload(self._store.delete, build.file.path)
            await self._state.remove_build(build)

    async def _ensure_build(self, index: Index, manifest: SegmentManifest) -> None:
        build = self._state.build(index.index_id, manifest.segment_id)
        if build is None:
            build = await self._new_build(index, manifest)
        pending = build.state in UNFINISHED
        if pending and build.build_id not in self._running and self._nodes:
            task = asyncio.create_task(
                self._run_build(index, build, manifest), name=f"build {build.build_id}"
            )
            self._running[build.build_id] = task
            task.add_done_callback(lambda ended: self._build_ended(build, ended))

    async def _new_build(self, index: Index, manifest: SegmentManifest) -> Build:
        small = manifest.rows < self._policy.rows_min
        async with self._numbering:
            build = Build(
                BuildID(await self._rootcoord.alloc_ids(1)),
                index.index_id,
                index.collection_id,
                manifest.segment_id,
                manifest.rows,
                version=0,
                state=BuildState.FINISHED if small else BuildState.UNISSUED,
            )
            await self._state.put_build(build)
        self._changes.happened(build.collection_id)
        return build

    def _build_ended(self, build: Build, task: asyncio.Task[None]) -> None:
        """Examine the collection again, unless the build has come to its end: then nothing is missing."""
        self._running.pop(build.build_id, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("index build not recorded; trying again", build=build.build_id, error=str(error))
            asyncio.get_running_loop().call_later(_RETRY_PAUSE_S, self._examine_soon, (build.collection_id,))
            return
        recorded = self._state.build(build.index_id, build.segment_id)
        if task.cancelled() or (recorded is not None and recorded.state in UNFINISHED):
            self._examine_soon((build.collection_id,))
        else:
            self._wake.set()  # it may be left over from an index that was dropped meanwhile

    async def _run_build(self, index: Index, build: Build, manifest: SegmentManifest) -> None:
        """Run a build to its end, or until its index node is lost: it is then simply missing again.

        A failure may be transient (a full disk, a JVM that was killed): it counts only when it is repeated.
        """
        pause_s = _RETRY_PAUSE_S
        for attempts_left in reversed(range(_ATTEMPTS_MAX)):
            build = replace(build, version=build.version + 1, state=BuildState.IN_PROGRESS)
            async with self._nodes.one() as node:
                if node is None:
                    return
                await self._state.put_build(build)
                try:
                    file = await self._nodes.build(node, await self._request(index, build, manifest))
                except (Unavailable, DeadlineExceeded) as error:
                    _log.info("index build interrupted", build=build.build_id, error=error.message)
                    return
                except Cancelled as error:
                    await self._end_build(replace(build, state=BuildState.FAILED, fail_reason=error.message))
                    return
                except ElanusError as error:
                    _log.error("index build failed", build=build.build_id, error=error.message)
                    failure = error.message
                else:
                    await self._end_build(replace(build, state=BuildState.FINISHED, file=file))
                    return
            if attempts_left:
                await asyncio.sleep(pause_s)
                pause_s *= _RETRY_FACTOR
        await self._end_build(replace(build, state=BuildState.FAILED, fail_reason=failure))

    async def _end_build(self, build: Build) -> None:
        await self._state.put_build(build)
        self._changes.happened(build.collection_id)

    async def _request(self, index: Index, build: Build, manifest: SegmentManifest) -> BuildIndex:
        collection = await self._rootcoord.collection_by_id(index.collection_id)
        field = collection.schema.by_id[index.field_id]
        return BuildIndex(build.build_id, build.version, index.index_id, field, index.params, manifest)


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
