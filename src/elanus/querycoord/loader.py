"""One loaded collection: brings what its query node serves to what datacoord and indexcoord have.

Level-triggered: it looks at what is persisted and at what the node serves, and does what is missing, in
the order that loses and doubles nothing: follow the vchannels, load segments beside what is served, then
announce one new version that names them all (seed 5). The same steps are the first load, a handoff of a
flushed segment, the exchange for an indexed copy, and the recovery of a node that came back empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from elanus.core.catalog import Collection, Index
from elanus.core.channels import pchannel_of
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.querycoord.state import Load
from elanus.rpc.datacoord import DataCoordApi, RecoveryInfo
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.querynode import (
    FieldIndexSpec,
    LoadCollection,
    LoadSegment,
    QueryNodeApi,
    QueryNodeStatus,
    SealedSegmentsChange,
    SegmentServing,
    WatchVchannel,
)
from elanus.rpc.rootcoord import RootCoordApi

_RETRY_PAUSE_S = 0.5
_RETRY_PAUSE_MAX_S = 15.0
_log = structlog.get_logger("querycoord")


@dataclass(frozen=True, slots=True)
class Peers:
    root: RootCoordApi
    data: DataCoordApi
    index: IndexCoordApi
    node: QueryNodeApi


@dataclass(frozen=True, slots=True)
class _Target:
    """What should be served, as of one look at the metadata."""

    collection: Collection
    partition_ids: tuple[PartitionID, ...]
    recovery: RecoveryInfo
    segments: Mapping[SegmentID, SegmentManifest]
    indexes: tuple[Index, ...]
    files: Mapping[SegmentID, tuple[IndexFile, ...]]


class CollectionLoader:
    """``load_ts``: the load is complete when the node has caught up with this moment."""

    def __init__(self, load: Load, peers: Peers, load_ts: Timestamp) -> None:
        self.load = load
        self._peers = peers
        self._load_ts = load_ts
        self._initial: dict[SegmentID, PartitionID] | None = None
        self._vchannels: tuple[str, ...] = ()
        self._wake = asyncio.Event()
        self._wake.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def collection_id(self) -> CollectionID:
        return self.load.collection_id

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"load {self.collection_id}")

    def wake(self) -> None:
        self._wake.set()

    async def change(self, load: Load, load_ts: Timestamp) -> None:
        """Serve other partitions from now on."""
        self.load, self._load_ts, self._initial = load, load_ts, None
        self.wake()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def is_served(self, status: QueryNodeStatus) -> bool:
        """Whether the node has a version of the collection and follows all of its vchannels."""
        fails = any(v in status.failures for v in self._vchannels)
        return bool(status.versions.get(self.collection_id)) and not fails

    async def percentages(self, status: QueryNodeStatus) -> dict[PartitionID, int]:
        """How far each partition's load has come; 100 only when it answers as of the load."""
        collection = await self._peers.root.collection_by_id(self.collection_id)
        served = _served(status, self.collection_id)
        ready = self._is_ready(collection, status, served)
        return {p: 100 if ready else self._share(p, served) for p in self.load.partitions_of(collection)}

    def _is_ready(
        self, collection: Collection, status: QueryNodeStatus, served: Mapping[SegmentID, SegmentServing]
    ) -> bool:
        if self._initial is None or not status.versions.get(self.collection_id):
            return False
        caught_up = all(status.service_times.get(v, 0) >= self._load_ts for v in collection.vchannels)
        return caught_up and all(segment_id in served for segment_id in self._initial)

    def _share(self, partition_id: PartitionID, served: Mapping[SegmentID, SegmentServing]) -> int:
        wanted = [s for s, p in (self._initial or {}).items() if p == partition_id]
        if not wanted:
            return 0
        return min(99, 100 * sum(s in served for s in wanted) // len(wanted))

    async def _run(self) -> None:
        pause_s = _RETRY_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._reconcile()
            except CollectionNotFound:
                return
            except Exception as error:  # noqa: BLE001 - a file that cannot be read must not end the load for ever
                _log.warning(
                    "load not complete; trying again",
                    collection=self.collection_id,
                    error=f"{type(error).__name__}: {error}",
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_PAUSE_MAX_S)
                self._wake.set()
            else:
                pause_s = _RETRY_PAUSE_S

    async def _reconcile(self) -> None:
        target = await self._target()
        status = await self._peers.node.status()
        self._vchannels = target.collection.vchannels
        if any(v in status.failures for v in self._vchannels):
            await self._peers.node.release_collection(self.collection_id)
            status = await self._peers.node.status()
        served = _served(status, self.collection_id)
        await self._follow(target)
        online = [m for m in target.segments.values() if not _serves(served, m, target)]
        await self._load(target, online)
        offline = tuple(s for s in served if s not in target.segments)
        version = status.versions.get(self.collection_id, 0)
        if online or offline or not version:
            await self._peers.node.announce(
                SealedSegmentsChange(
                    self.collection_id, version + 1, tuple(m.segment_id for m in online), offline
                )
            )
        # Only now: a partition that was added is complete when the version names its segments.
        await self._peers.node.set_partitions(self.collection_id, target.partition_ids)
        for vchannel in target.recovery.vchannels:
            await self._peers.node.forget_deletes(
                self.collection_id, vchannel.vchannel, vchannel.checkpoint.ts
            )

    async def _target(self) -> _Target:
        load, load_ts = self.load, self._load_ts
        collection = await self._peers.root.collection_by_id(self.collection_id)
        partition_ids = load.partitions_of(collection)
        # Files first: a build that finishes after this look is found by the next one.
        indexes = await self._peers.index.indexes(self.collection_id)
        files: dict[SegmentID, tuple[IndexFile, ...]] = {}
        for file in await self._peers.index.index_files(self.collection_id):
            files[file.segment_id] = (*files.get(file.segment_id, ()), file)
        recovery = await self._peers.data.recovery_info(self.collection_id)
        segments = {m.segment_id: m for m in recovery.flushed if m.partition_id in partition_ids}
        if self._initial is None and self.load is load:  # else the next look is the first of another load
            self._initial = {s: m.partition_id for s, m in segments.items()}
            await self._peers.root.tick_now(tuple(map(pchannel_of, collection.vchannels)), load_ts)
        elif self._initial is not None:
            self._initial = {s: p for s, p in self._initial.items() if s in segments}
        return _Target(collection, partition_ids, recovery, segments, indexes, files)

    async def _follow(self, target: _Target) -> None:
        collection = target.collection
        node = self._peers.node
        await node.load_collection(
            LoadCollection(
                self.collection_id,
                collection.schema,
                target.partition_ids,
                tuple(FieldIndexSpec(i.field_id, i.index_id, i.params) for i in target.indexes),
                collection.vchannels,
                self.load.whole,
            )
        )
        for vchannel in target.recovery.vchannels:
            growing = tuple(m for m in vchannel.growing if m.partition_id in target.partition_ids)
            await node.watch_vchannel(
                WatchVchannel(
                    self.collection_id,
                    vchannel.vchannel,
                    vchannel.checkpoint,
                    growing,
                    vchannel.excluded,
                    vchannel.delta_logs,
                )
            )

    async def _load(self, target: _Target, segments: list[SegmentManifest]) -> None:
        vchannels = {v.vchannel: v for v in target.recovery.vchannels}
        for manifest in segments:
            vchannel = vchannels[manifest.vchannel]
            await self._peers.node.load_segment(
                LoadSegment(
                    self.collection_id,
                    manifest,
                    target.files.get(manifest.segment_id, ()),
                    vchannel.delta_logs,
                    vchannel.checkpoint,
                )
            )


def _served(status: QueryNodeStatus, collection_id: CollectionID) -> dict[SegmentID, SegmentServing]:
    """The sealed segments that the version in force names."""
    return {s.segment_id: s for s in status.segments if s.sealed and s.collection_id == collection_id}


def _serves(served: Mapping[SegmentID, SegmentServing], manifest: SegmentManifest, target: _Target) -> bool:
    """Whether the segment is served as it should be: with its index, once that is built."""
    serving = served.get(manifest.segment_id)
    if serving is None:
        return False
    built = {file.index_id for file in target.files.get(manifest.segment_id, ())}
    return built <= set(serving.index_ids)
