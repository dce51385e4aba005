"""Manifest objects as datacoord uses them: read once, cached, and rewritten by each commit.

There are two kinds: a segment's manifest (its insert and stats logs) and a vchannel's list of delta logs.
Both are immutable objects; the metadata says which one is in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot
from elanus.api.datacoord import SegmentOutput
from elanus.core.offload import Offload
from elanus.core.segments import BinlogFile, DeltaLog, SegmentInfo, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.state import Vchannel
from elanus.storage.manifests import read_delta_list, read_manifest, write_delta_list, write_manifest
from elanus.storage.paths import snapshot_path
from elanus.storage.port import ObjectStore
from elanus.storage.snapshots import read_snapshot, write_snapshot


class Manifests:
    """A cache of manifests. ``offload(function, *args)`` runs blocking I/O off the event loop."""

    def __init__(self, store: ObjectStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._segments: dict[str, SegmentManifest] = {}
        self._deltas: dict[str, tuple[DeltaLog, ...]] = {}

    async def of_segment(self, info: SegmentInfo) -> SegmentManifest:
        """Return the manifest in force; an empty one before the first commit."""
        if not info.manifest:
            return SegmentManifest(
                info.segment_id,
                info.collection_id,
                info.partition_id,
                info.vchannel,
                insert_logs=(),
                stats_logs=(),
                deletes_from=NO_TIMESTAMP,
            )
        if info.manifest not in self._segments:
            self._segments[info.manifest] = await self._offload(read_manifest, self._store, info.manifest)
        return self._segments[info.manifest]

    async def of_segments(self, infos: Sequence[SegmentInfo]) -> tuple[SegmentManifest, ...]:
        await asyncio.gather(*(self.of_segment(i) for i in infos if i.manifest not in self._segments))
        return tuple([await self.of_segment(i) for i in infos])

    async def of_vchannel(self, vchannel: Vchannel) -> tuple[DeltaLog, ...]:
        if not vchannel.deltas:
            return ()
        if vchannel.deltas not in self._deltas:
            self._deltas[vchannel.deltas] = await self._offload(read_delta_list, self._store, vchannel.deltas)
        return self._deltas[vchannel.deltas]

    async def put(self, manifest: SegmentManifest, name: str) -> str:
        """Write a manifest under a new name and return its path."""
        path: str = await self._offload(write_manifest, self._store, manifest, name)
        self._segments[path] = manifest
        return path

    async def add_output(self, info: SegmentInfo, output: SegmentOutput, name: str) -> SegmentInfo:
        """Return the segment with a range's files added, pointing at a manifest written under a new name."""
        known = await self.of_segment(info)
        manifest = replace(
            known,
            insert_logs=known.insert_logs + output.insert_logs,
            stats_logs=known.stats_logs + output.stats_logs,
        )
        path = await self.put(manifest, name)
        self._segments.pop(info.manifest, None)
        return _described(info, manifest, path)

    async def add_compacted(
        self, info: SegmentInfo, output: SegmentOutput, deletes_from: Timestamp, name: str
    ) -> SegmentInfo:
        """Return a segment made by compaction, pointing at its first and only manifest."""
        manifest = SegmentManifest(
            info.segment_id,
            info.collection_id,
            info.partition_id,
            info.vchannel,
            output.insert_logs,
            output.stats_logs,
            deletes_from,
            info.compacted_from,
        )
        path = await self._offload(write_manifest, self._store, manifest, name)
        self._segments[path] = manifest
        return _described(info, manifest, path)

    def forget(self, infos: Sequence[SegmentInfo]) -> None:
        """Drop the cached manifests of these segments: they are no longer in force."""
        for info in infos:
            self._segments.pop(info.manifest, None)

    async def add_delta(self, vchannel: Vchannel, delta: BinlogFile, name: str) -> Vchannel:
        """Return the vchannel with one more delta log."""
        return await self.with_deltas(
            vchannel, (*await self.of_vchannel(vchannel), DeltaLog(vchannel.vchannel, delta)), name
        )

    async def with_deltas(self, vchannel: Vchannel, logs: tuple[DeltaLog, ...], name: str) -> Vchannel:
        """Return the vchannel with exactly these delta logs, in a list written under a new name."""
        path: str = await self._offload(
            write_delta_list, self._store, vchannel.collection_id, vchannel.vchannel, logs, name
        )
        self._deltas.pop(vchannel.deltas, None)
        self._deltas[path] = logs
        return replace(vchannel, deltas=path)

    # snapshots

    @property
    def store_url(self) -> str:
        return self._store.url

    async def put_snapshot(self, snapshot: CollectionSnapshot, name: str) -> str:
        """Write a snapshot and return its path."""
        path = snapshot_path(snapshot.collection_id, name)
        await self._offload(write_snapshot, self._store, path, snapshot)
        return path

    async def snapshot(self, path: str) -> CollectionSnapshot:
        """Read a snapshot. Raises `ObjectMissing`, `CorruptObject`."""
        found: CollectionSnapshot = await self._offload(read_snapshot, self._store, path, SNAPSHOTS)
        return found

    async def forget_snapshot(self, path: str) -> None:
        await self._offload(self._store.delete, path)


def _described(info: SegmentInfo, manifest: SegmentManifest, path: str) -> SegmentInfo:
    return replace(
        info,
        manifest=path,
        rows=manifest.rows,
        size_bytes=manifest.size_bytes,
        is_sorted=manifest.is_sorted,
    )
