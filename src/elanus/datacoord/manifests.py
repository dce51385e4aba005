"""Manifest objects as datacoord uses them: read once, cached, and rewritten by each commit.

Nothing here is called under the role's lock: a store may take long. Writers write first and compare under the
lock what they started from. `elanus.datacoord.manifest_reader` does the reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot
from elanus.api.datacoord import SegmentOutput
from elanus.core.segments import BinlogFile, DeltaLog, IndexFile, SegmentInfo, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.datacoord.manifest_reader import Chosen, ManifestReader, empty
from elanus.datacoord.snapshot_files import SnapshotFiles
from elanus.datacoord.vchannel_table import Vchannel
from elanus.storage.manifests import write_delta_list, write_manifest
from elanus.storage.parallel import for_each, write_each
from elanus.storage.paths import snapshot_path
from elanus.storage.port import ObjectMissing, ObjectStore
from elanus.storage.snapshots import read_snapshot, write_snapshot


class Manifests(ManifestReader):
    """Reads and writes manifests."""

    async def put(self, manifest: SegmentManifest, name: str) -> str:
        """Write a manifest under a new name and return its path."""
        (path,) = await self.put_all([manifest], name)
        return path

    async def put_all(
        self, manifests: Sequence[SegmentManifest], name: str, befores: Sequence[str] = ()
    ) -> list[str]:
        """Write manifests of different segments, each under a new name, and return their paths.

        ``befores``: for each the damaged manifest that it continues, or "".
        """
        if not manifests:
            return []
        befores = befores or [""] * len(manifests)
        named = [(m, name, before) for m, before in zip(manifests, befores, strict=True)]
        paths: list[str] = await self._offload(write_each, self._store, _write, named)
        for path, (manifest, _, before) in zip(paths, named, strict=True):
            if not before:
                self._remember_written(path, manifest)
        return paths

    async def add_outputs(
        self, outputs: Sequence[tuple[SegmentInfo, SegmentOutput]], name: str
    ) -> list[SegmentInfo]:
        """Return the segments with a range's files added, pointing at manifests written under a new name.

        A damaged manifest is continued: the commit holds up no other segment of the range.
        """
        infos = [info for info, _ in outputs]
        _, contents = await self.current(lambda: Chosen(infos), skip_damaged=True)
        befores = [info.manifest if info.manifest in contents.damaged else "" for info in infos]
        known = [
            empty(info) if before else contents.of_segments([info])[0]
            for info, before in zip(infos, befores, strict=True)
        ]
        manifests = [
            replace(
                manifest,
                insert_logs=manifest.insert_logs + output.insert_logs,
                stats_logs=manifest.stats_logs + output.stats_logs,
            )
            for manifest, (_, output) in zip(known, outputs, strict=True)
        ]
        paths = await self.put_all(manifests, name, befores)
        return [
            _described(info, manifest, path, continues=bool(before))
            for info, manifest, path, before in zip(infos, manifests, paths, befores, strict=True)
        ]

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
            cluster=output.cluster,
        )
        return _described(info, manifest, await self.put(manifest, name))

    async def add_delta(self, vchannel: Vchannel, delta: BinlogFile, name: str) -> Vchannel:
        """Return the vchannel with one more delta log. A damaged list is continued."""
        _, contents = await self.current(lambda: Chosen((), [vchannel]), skip_damaged=True)
        added = DeltaLog(vchannel.vchannel, delta)
        if vchannel.deltas in contents.damaged:
            return await self.with_deltas(vchannel, (added,), name, before=vchannel.deltas)
        return await self.with_deltas(vchannel, (*contents.of_vchannel(vchannel), added), name)

    async def with_deltas(
        self, vchannel: Vchannel, logs: tuple[DeltaLog, ...], name: str, before: str = ""
    ) -> Vchannel:
        """Return the vchannel with exactly these delta logs, in a list written under a new name.

        ``before``: a damaged list that it continues.
        """
        path: str = await self._offload(
            write_delta_list, self._store, vchannel.collection_id, vchannel.vchannel, logs, name, before
        )
        if not before:
            self._remember_written(path, logs)
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

    async def kept_by(self, path: str) -> SnapshotFiles:
        """Read which files a snapshot keeps. Raises `ObjectMissing`, `CorruptObject`."""
        found: SnapshotFiles = await self._offload(_kept_by, self._store, path)
        return found

    async def present(self, files: Sequence[IndexFile]) -> tuple[IndexFile, ...]:
        """Return those of the files that are there with their size."""
        found: list[bool] = await self._offload(for_each, self._store, _is_there, files)
        return tuple(file for file, is_there in zip(files, found, strict=True) if is_there)

    async def forget_snapshot(self, path: str) -> None:
        await self._offload(self._store.delete, path)


def _kept_by(store: ObjectStore, path: str) -> SnapshotFiles:
    return SnapshotFiles.of(read_snapshot(store, path, SNAPSHOTS).files | {path})


def _is_there(store: ObjectStore, file: IndexFile) -> bool:
    try:
        return store.head(file.path).size_bytes == file.size_bytes
    except ObjectMissing:
        return False


def _write(store: ObjectStore, named: tuple[SegmentManifest, str, str]) -> str:
    return write_manifest(store, *named)


def _described(
    info: SegmentInfo, manifest: SegmentManifest, path: str, *, continues: bool = False
) -> SegmentInfo:
    return replace(
        info,
        manifest=path,
        rows=manifest.rows + (info.rows if continues else 0),
        size_bytes=manifest.size_bytes + (info.size_bytes if continues else 0),
        is_sorted=manifest.is_sorted and not continues,
    )
