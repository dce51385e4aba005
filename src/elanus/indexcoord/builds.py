"""Builds of indexes: which are missing, and how each is carried out.

Whenever segments or indexes of a collection have changed, what is flushed is compared with what is built, and
the missing builds are started. Collections that have not changed are not examined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.api.following import follow_changes
from elanus.api.indexcoord import BuildState
from elanus.api.indexnode import BuildIndex, IndexNodeApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.batches import batched
from elanus.core.catalog import Index
from elanus.core.change import Changes
from elanus.core.clock import Clock
from elanus.core.errors import (
    Cancelled,
    CollectionNotFound,
    DeadlineExceeded,
    DiskFull,
    ElanusError,
    FieldNotFound,
    StoreRefused,
    Unavailable,
)
from elanus.core.ids import BuildID, CollectionID, SegmentID
from elanus.core.segments import IndexFile, SegmentManifest, SegmentState
from elanus.indexcoord.nodes import IndexNodes
from elanus.indexcoord.state import UNFINISHED, Build, IndexState
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import TXN_OPERATIONS_MAX
from elanus.meta.tasks import cancel_and_wait

_RETRY_PAUSE_S = 1.0
_RETRY_FACTOR = 10.0
_RETRY_PAUSE_MAX_S = 300.0
_ATTEMPTS_MAX = 3
_log = structlog.get_logger("indexcoord")


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """``rows_min``: segments with fewer rows are searched without an index."""

    rows_min: int


class Builder:
    """Finds and runs the missing builds. ``changes`` counts what becomes of builds; ``numbering`` is held
    from the allocation of a build's id until it is recorded: else its files count as garbage."""

    def __init__(
        self,
        state: IndexState,
        clock: Clock,
        rootcoord: RootCoordApi,
        datacoord: DataCoordApi,
        dial: Callable[[str], IndexNodeApi],
        policy: IndexPolicy,
        changes: Changes,
    ) -> None:
        self._state = state
        self._rootcoord = rootcoord
        self._datacoord = datacoord
        self._policy = policy
        self._changes = changes
        self.numbering = asyncio.Lock()
        self._wake = asyncio.Event()
        self._due: dict[CollectionID, None] = {}
        """The collections to examine."""
        self.nodes = IndexNodes(clock, dial, self._take_up_unfinished)
        self._running: dict[BuildID, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._loops = [
            asyncio.create_task(self._follow_segments(), name="indexcoord follow"),
            asyncio.create_task(self._reconcile_loop(), name="indexcoord reconcile"),
        ]

    async def stop(self) -> None:
        await cancel_and_wait(*self._loops, *self._running.values())

    def examine_soon(self, collections: Iterable[CollectionID]) -> None:
        """Compare what is flushed with what is built, in these collections."""
        self._due |= dict.fromkeys(collections)
        self._wake.set()

    def _take_up_unfinished(self) -> None:
        """Start the builds that wait for an index node: there is one more."""
        self.examine_soon(self._state.unfinished_collections())

    async def _follow_segments(self) -> None:
        def changed(concerned: tuple[CollectionID, ...] | None) -> None:
            # Woken without a change, too: nodes may have fallen silent.
            self.examine_soon(self._state.indexed_collections() if concerned is None else concerned)

        def unreached(error: ElanusError) -> None:
            _log.info("datacoord not reached", error=error.message)

        await follow_changes(self._datacoord, changed, unreached)

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
        self.nodes.forget_silent()
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
        segments = await self._datacoord.segments(collection_id)
        flushed = {s.segment_id for s in segments if s.state is SegmentState.FLUSHED}
        await self._remove(self._state.builds_of_dropped(collection_id, flushed))
        if not self._is_missing(collection_id, flushed):
            return
        try:
            recovery = await self._datacoord.recovery_info(collection_id)
        except CollectionNotFound:
            return
        for index in self._state.indexes(collection_id):
            for some in batched(recovery.flushed, TXN_OPERATIONS_MAX):
                await self._ensure_builds(index, some)

    def _is_missing(self, collection_id: CollectionID, flushed: Iterable[SegmentID]) -> bool:
        """Whether a segment lacks a build that has ended. If none does, nothing has to be read: after a
        restart every collection is examined, and reading the manifests of all would take minutes."""
        builds = (
            self._state.build(i.index_id, s) for i in self._state.indexes(collection_id) for s in flushed
        )
        return any(build is None or build.state in UNFINISHED for build in builds)

    async def _remove(self, builds: Iterable[Build]) -> None:
        """Remove the records of builds. Their files are left to garbage collection: a reader outside the
        system may hold a snapshot that names them."""
        for build in builds:
            running = self._running.get(build.build_id)
            if running is not None:
                running.cancel()
                continue
            await self._state.remove_build(build)

    async def _ensure_builds(self, index: Index, manifests: Sequence[SegmentManifest]) -> None:
        missing = [m for m in manifests if self._state.build(index.index_id, m.segment_id) is None]
        if missing:
            await self._new_builds(index, missing)
        for manifest in manifests:
            build = self._state.build(index.index_id, manifest.segment_id)
            if build is None or build.state not in UNFINISHED:  # None: the index was dropped meanwhile
                continue
            if build.build_id not in self._running and self.nodes:
                task = asyncio.create_task(
                    self._run_build(index, build, manifest), name=f"build {build.build_id}"
                )
                self._running[build.build_id] = task
                task.add_done_callback(partial(self._build_ended, build))

    @uncancellable
    async def define(self, index: Index, files: Sequence[IndexFile]) -> None:
        """Record the index, and these files of its segments as finished builds. Segments that have a build
        keep theirs. ``numbering`` is held, so no other build of them is recorded meanwhile."""
        async with self.numbering:
            new = [file for file in files if self._state.build(index.index_id, file.segment_id) is None]
            first_id = await self._rootcoord.alloc_ids(len(new)) if new else 0
            if self._state.index(index.index_id) is None:
                await self._state.put_index(index)
            builds = [_adopted(index, file, BuildID(first_id + number)) for number, file in enumerate(new)]
            for some in batched(builds, TXN_OPERATIONS_MAX):
                await self._state.put_build(*some)
        self._changes.happened(index.collection_id)

    async def _new_builds(self, index: Index, manifests: Sequence[SegmentManifest]) -> None:
        """Record builds together: a flush of thousands of partitions leaves as many segments."""
        async with self.numbering:
            manifests = [m for m in manifests if self._state.build(index.index_id, m.segment_id) is None]
            if not manifests:
                return
            first_id = await self._rootcoord.alloc_ids(len(manifests))
            builds = [
                Build(
                    BuildID(first_id + number),
                    index.index_id,
                    index.collection_id,
                    manifest.segment_id,
                    manifest.rows,
                    version=0,
                    state=self._first_state(manifest),
                )
                for number, manifest in enumerate(manifests)
            ]
            await self._state.put_build(*builds)
        if any(m.parents and b.state not in UNFINISHED for m, b in zip(manifests, builds, strict=True)):
            # Others need not look: only the output of a compaction waits to be served until its build ends.
            self._changes.happened(index.collection_id)

    def _first_state(self, manifest: SegmentManifest) -> BuildState:
        return BuildState.FINISHED if manifest.rows < self._policy.rows_min else BuildState.UNISSUED

    def _build_ended(self, build: Build, task: asyncio.Task[None]) -> None:
        """Examine the collection again, unless the build has come to its end: then nothing is missing."""
        self._running.pop(build.build_id, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("index build not recorded; trying again", build=build.build_id, error=str(error))
            asyncio.get_running_loop().call_later(_RETRY_PAUSE_S, self.examine_soon, (build.collection_id,))
            return
        recorded = self._state.build(build.index_id, build.segment_id)
        if task.cancelled() or (recorded is not None and recorded.state in UNFINISHED):
            self.examine_soon((build.collection_id,))
        else:
            self._wake.set()  # it may be left over from an index that was dropped meanwhile

    async def _run_build(self, index: Index, build: Build, manifest: SegmentManifest) -> None:
        """Run a build to its end, or until its index node is lost: it is then simply missing again.

        A failure may be transient (a JVM that was killed): it counts only when it is repeated. That there is
        no room, or that the object store takes no keys, says nothing of the build, and ends when somebody
        acts: it never counts.
        """
        pause_s, attempts_left = _RETRY_PAUSE_S, _ATTEMPTS_MAX
        while attempts_left:
            build = replace(build, version=build.version + 1, state=BuildState.IN_PROGRESS)
            async with self.nodes.one() as node:
                if node is None:
                    return
                await self._state.put_build(build)
                try:
                    file = await self.nodes.build(node, await self._request(index, build, manifest))
                except (Unavailable, DeadlineExceeded) as error:
                    _log.info("index build interrupted", build=build.build_id, error=error.message)
                    return
                except Cancelled as error:
                    await self._end_build(replace(build, state=BuildState.FAILED, fail_reason=error.message))
                    return
                except (CollectionNotFound, FieldNotFound) as error:
                    _log.info("index build given up", build=build.build_id, reason=error.message)
                    await self._end_build(replace(build, state=BuildState.FAILED, fail_reason=error.message))
                    return
                except (DiskFull, StoreRefused) as error:
                    _log.error("index build failed; trying again", build=build.build_id, error=error.message)
                except ElanusError as error:
                    _log.error("index build failed", build=build.build_id, error=error.message)
                    failure = error.message
                    attempts_left -= 1
                else:
                    await self._end_build(replace(build, state=BuildState.FINISHED, file=file))
                    return
            if attempts_left:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * _RETRY_FACTOR, _RETRY_PAUSE_MAX_S)
        await self._end_build(replace(build, state=BuildState.FAILED, fail_reason=failure))

    async def _end_build(self, build: Build) -> None:
        await self._state.put_build(build)
        self._changes.happened(build.collection_id)

    async def _request(self, index: Index, build: Build, manifest: SegmentManifest) -> BuildIndex:
        collection = await self._rootcoord.collection_by_id(index.collection_id)
        schema = collection.readers_schema
        field = schema.by_id.get(index.field_id)
        if field is None:
            raise FieldNotFound(f"field {index.field_id} of index {index.name} has been dropped")
        texts = schema if field.is_added and field.is_function_output else None
        return BuildIndex(build.build_id, build.version, index.index_id, field, index.params, manifest, texts)


def _adopted(index: Index, file: IndexFile, build_id: BuildID) -> Build:
    own = replace(file, build_id=build_id, index_id=index.index_id)
    return Build(
        build_id,
        index.index_id,
        index.collection_id,
        file.segment_id,
        file.rows,
        version=1,
        state=BuildState.FINISHED,
        file=own,
    )
