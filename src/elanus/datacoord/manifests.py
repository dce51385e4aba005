"""Manifest objects as datacoord uses them: read once, cached, and rewritten by each commit.

There are two kinds: a segment's manifest (its insert and stats logs) and a vchannel's list of delta logs.
Both are immutable objects; the metadata says which one is in force. The cache holds those in force
(`elanus.datacoord.segment_table.PathUses`), and for a moment those just written, which are about to be.

Nothing here is called under the role's lock: a store may take long. Readers get one moment's view without it
(`Manifests.current`), and writers write first and compare under the lock what they started from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot
from elanus.api.datacoord import SegmentOutput
from elanus.core.offload import Offload
from elanus.core.segments import BinlogFile, DeltaLog, SegmentInfo, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.state import Vchannel
from elanus.storage.manifests import read_delta_list, read_manifest, write_delta_list, write_manifest
from elanus.storage.parallel import for_each, write_each
from elanus.storage.paths import snapshot_path
from elanus.storage.port import ObjectMissing, ObjectStore
from elanus.storage.snapshots import read_snapshot, write_snapshot

T = TypeVar("T")
_READS_AT_ONCE = 256
"""How many manifests one piece of blocking work reads: others get the thread in between."""
_WRITTEN_MAX = 8192


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records whose manifests are wanted."""

    segments: Sequence[SegmentInfo]
    vchannels: Sequence[Vchannel] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """The objects that the records of one moment name, by path, see `of_segments` and `of_vchannel`."""

    segments: dict[str, SegmentManifest]
    deltas: dict[str, tuple[DeltaLog, ...]]

    def of_segments(self, infos: Sequence[SegmentInfo]) -> tuple[SegmentManifest, ...]:
        return tuple(self.segments[info.manifest] if info.manifest else _empty(info) for info in infos)

    def of_vchannel(self, vchannel: Vchannel) -> tuple[DeltaLog, ...]:
        return self.deltas[vchannel.deltas] if vchannel.deltas else ()


class Manifests:
    """Reads and writes manifests. ``offload(function, *args)`` runs blocking I/O off the event loop.

    Implements `elanus.datacoord.segment_table.PathUses`.
    """

    def __init__(self, store: ObjectStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._used: set[str] = set()
        self._segments: dict[str, SegmentManifest] = {}
        self._deltas: dict[str, tuple[DeltaLog, ...]] = {}
        self._written: dict[str, SegmentManifest | tuple[DeltaLog, ...]] = {}
        """The latest that were written here and are not in force, or not yet."""

    # the cache

    def use(self, path: str) -> None:
        self._used.add(path)
        written = self._written.pop(path, None)
        if isinstance(written, SegmentManifest):
            self._segments[path] = written
        elif written is not None:
            self._deltas[path] = written

    def forget(self, path: str) -> None:
        self._used.discard(path)
        self._segments.pop(path, None)
        self._deltas.pop(path, None)

    def __len__(self) -> int:
        """How many objects are cached."""
        return len(self._segments) + len(self._deltas) + len(self._written)

    def _remember_written(self, path: str, content: SegmentManifest | tuple[DeltaLog, ...]) -> None:
        self._written[path] = content
        while len(self._written) > _WRITTEN_MAX:
            del self._written[next(iter(self._written))]

    # reading

    async def current(self, choose: Callable[[], Chosen]) -> tuple[Chosen, Contents]:
        """Return what ``choose`` returns, and the contents of its manifests, as of one moment: the present,
        until the caller next waits.

        ``choose`` is called again after each wait for objects, until all that it chooses has been read.
        Raises what it raises, `ObjectMissing`, `CorruptObject`.
        """
        known = Contents({}, {})
        while True:
            chosen = choose()
            unread = self._unread(_segment_paths(chosen), self._segments, known.segments)
            unread_deltas = self._unread(_delta_paths(chosen), self._deltas, known.deltas)
            if not unread and not unread_deltas:
                return chosen, known
            try:
                known.segments.update(await self._read_segments(unread))
                known.deltas.update(await self._read_deltas(unread_deltas))
            except ObjectMissing:
                again = choose()
                if not {*unread, *unread_deltas} - _segment_paths(again) - _delta_paths(again):
                    raise
                # Else a record names another manifest now, and the one before may have been swept.

    def _unread(self, paths: set[str], cached: dict[str, T], known: dict[str, T]) -> list[str]:
        """Move what is cached into ``known``; return the rest."""
        known.update((path, cached[path]) for path in paths if path in cached)
        return sorted(paths - known.keys())

    async def of_segment(self, info: SegmentInfo) -> SegmentManifest:
        """Return the manifest that the record names; an empty one before the first commit."""
        (found,) = await self.of_segments([info])
        return found

    async def of_segments(self, infos: Sequence[SegmentInfo]) -> tuple[SegmentManifest, ...]:
        _, contents = await self.current(lambda: Chosen(infos))
        return contents.of_segments(infos)

    async def of_vchannel(self, vchannel: Vchannel) -> tuple[DeltaLog, ...]:
        _, contents = await self.current(lambda: Chosen((), [vchannel]))
        return contents.of_vchannel(vchannel)

    async def _read_segments(self, paths: Sequence[str]) -> dict[str, SegmentManifest]:
        found: dict[str, SegmentManifest] = {}
        for first in range(0, len(paths), _READS_AT_ONCE):
            some = paths[first : first + _READS_AT_ONCE]
            read = await self._offload(for_each, self._store, read_manifest, some)
            found |= zip(some, read, strict=True)
            self._segments |= {path: m for path, m in zip(some, read, strict=True) if path in self._used}
        return found

    async def _read_deltas(self, paths: Sequence[str]) -> dict[str, tuple[DeltaLog, ...]]:
        if not paths:
            return {}
        read = await self._offload(for_each, self._store, read_delta_list, paths)
        found = dict(zip(paths, read, strict=True))
        self._deltas |= {path: logs for path, logs in found.items() if path in self._used}
        return found

    # writing

    async def put(self, manifest: SegmentManifest, name: str) -> str:
        """Write a manifest under a new name and return its path."""
        (path,) = await self.put_all([manifest], name)
        return path

    async def put_all(self, manifests: Sequence[SegmentManifest], name: str) -> list[str]:
        """Write manifests of different segments, each under a new name, and return their paths."""
        if not manifests:
            return []
        named = [(manifest, name) for manifest in manifests]
        paths: list[str] = await self._offload(write_each, self._store, _write, named)
        for path, manifest in zip(paths, manifests, strict=True):
            self._remember_written(path, manifest)
        return paths

    async def add_outputs(
        self, outputs: Sequence[tuple[SegmentInfo, SegmentOutput]], name: str
    ) -> list[SegmentInfo]:
        """Return the segments with a range's files added, pointing at manifests written under a new name."""
        known = await self.of_segments([info for info, _ in outputs])
        manifests = [
            replace(
                manifest,
                insert_logs=manifest.insert_logs + output.insert_logs,
                stats_logs=manifest.stats_logs + output.stats_logs,
            )
            for manifest, (_, output) in zip(known, outputs, strict=True)
        ]
        paths = await self.put_all(manifests, name)
        return [
            _described(info, manifest, path)
            for (info, _), manifest, path in zip(outputs, manifests, paths, strict=True)
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
        )
        return _described(info, manifest, await self.put(manifest, name))

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

    async def forget_snapshot(self, path: str) -> None:
        await self._offload(self._store.delete, path)


def _segment_paths(chosen: Chosen) -> set[str]:
    return {info.manifest for info in chosen.segments if info.manifest}


def _delta_paths(chosen: Chosen) -> set[str]:
    return {vchannel.deltas for vchannel in chosen.vchannels if vchannel.deltas}


def _empty(info: SegmentInfo) -> SegmentManifest:
    return SegmentManifest(
        info.segment_id,
        info.collection_id,
        info.partition_id,
        info.vchannel,
        insert_logs=(),
        stats_logs=(),
        deletes_from=NO_TIMESTAMP,
    )


def _write(store: ObjectStore, named: tuple[SegmentManifest, str]) -> str:
    return write_manifest(store, *named)


def _described(info: SegmentInfo, manifest: SegmentManifest, path: str) -> SegmentInfo:
    return replace(
        info,
        manifest=path,
        rows=manifest.rows,
        size_bytes=manifest.size_bytes,
        is_sorted=manifest.is_sorted,
    )
