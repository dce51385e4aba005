"""The first rows of a clone: segments of its own whose manifests name the files of the source.

Everything becomes visible in one change of the metadata: the clone's vchannels and all of its segments, or
nothing. The manifests are written before, under the number of an attempt, so those of an interrupted try are
garbage. Row-sized work is not done: a segment costs one small object and one record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from elanus.api.connector import CollectionSnapshot
from elanus.core.attempts import stamped
from elanus.core.catalog import Collection, Origin
from elanus.core.clones import as_of, deletes_as_of, lent_indexes
from elanus.core.errors import Internal
from elanus.core.ids import NO_SEGMENT, SegmentID
from elanus.core.segments import IndexFile, SegmentInfo, SegmentManifest, SegmentState
from elanus.datacoord.attempts import OWN
from elanus.datacoord.context import DataContext
from elanus.datacoord.imported_segments import imported_segment
from elanus.datacoord.vchannel_table import Vchannel
from elanus.storage.paths import parse


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Records to be added in one change."""

    segments: tuple[SegmentInfo, ...]
    vchannels: tuple[Vchannel, ...]


class Clones:
    def __init__(self, context: DataContext) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._allocator = context.allocator
        self._attempts = context.attempts
        self._rootcoord = context.rootcoord

    @asynccontextmanager
    async def first_rows(
        self, collection: Collection, origin: Origin, vchannels: Mapping[str, Vchannel]
    ) -> AsyncIterator[FirstRows]:
        """Write the manifests; the records that name them are to be persisted within the block.

        ``vchannels``: the clone's, new. Raises `ObjectMissing` and `CorruptObject` for the snapshot.
        """
        snapshot = await self._manifests.snapshot(origin.path)
        attempt = await self._attempts.open(1, OWN)
        try:
            yield await self._written(collection, snapshot, origin, vchannels, stamped(attempt, "clone"))
        finally:
            self._attempts.close(attempt)

    async def borrowed_indexes(self, clone: Collection) -> tuple[IndexFile, ...]:
        """See `elanus.api.snapshots.CloneCalls`."""
        if clone.origin is None:
            return ()
        snapshot = await self._manifests.snapshot(clone.origin.path)
        lent = lent_indexes(snapshot.segments, snapshot.index_files, clone.origin.moment)
        owners = {
            info.lender: info.segment_id
            for info in self._state.segments_of(clone.collection_id)
            if info.state is SegmentState.FLUSHED
        }
        files = [
            replace(file, segment_id=owners[lender])
            for manifest, file in lent
            if (lender := _lender(manifest)) in owners
        ]
        return await self._manifests.present(files) if files else ()

    async def _written(
        self,
        collection: Collection,
        snapshot: CollectionSnapshot,
        origin: Origin,
        vchannels: Mapping[str, Vchannel],
        name: str,
    ) -> FirstRows:
        source = snapshot.collection
        if source is None or len(source.vchannels) != len(collection.vchannels):
            raise Internal(f"the snapshot {origin.path} cannot be cloned: it lacks a definition that fits")
        targets = dict(zip(source.vchannels, collection.vchannels, strict=True))
        held = as_of(snapshot.segments, origin.moment)
        first_id = await self._rootcoord.alloc_ids(len(held)) if held else 0
        manifests = [
            replace(
                manifest,
                segment_id=SegmentID(first_id + number),
                collection_id=collection.collection_id,
                vchannel=targets[manifest.vchannel],
                parents=(),
            )
            for number, manifest in enumerate(held)
        ]
        paths = await self._manifests.put_all(manifests, name)
        max_rows = self._allocator.max_rows(collection.schema)
        segments = tuple(
            _segment(manifest, path, max_rows, origin)
            for manifest, path in zip(manifests, paths, strict=True)
        )
        with_deletes = [
            await self._with_deletes(vchannels[target], snapshot, of, origin, name)
            for of, target in targets.items()
        ]
        return FirstRows(segments, tuple(with_deletes))

    async def _with_deletes(
        self, vchannel: Vchannel, snapshot: CollectionSnapshot, source: str, origin: Origin, name: str
    ) -> Vchannel:
        """Return the clone's vchannel with the deletes that the source's had at the moment."""
        logs = deletes_as_of(snapshot.delta_logs.get(source, ()), origin.moment)
        if not logs:
            return vchannel
        own = tuple(replace(log, vchannel=vchannel.vchannel) for log in logs)
        lenders = {_owner(log.file.path) for log in logs}
        return replace(await self._manifests.with_deltas(vchannel, own, name), lenders=tuple(sorted(lenders)))


def _segment(manifest: SegmentManifest, path: str, max_rows: int, origin: Origin) -> SegmentInfo:
    """Return the record of a cloned segment. ``max_rows``: of a segment of the schema.

    Clusters stay clusters, of one clustering compaction: the latest one of the source made all of them.
    """
    return replace(
        imported_segment(manifest, path, max_rows),
        created=origin.moment,
        last_expire=origin.moment,
        sealed_at=origin.moment,
        lender=_lender(manifest),
        clustering=0 if manifest.cluster is None else int(manifest.collection_id),
    )


def _lender(manifest: SegmentManifest) -> SegmentID:
    return SegmentID(int(_owner(manifest.insert_logs[0].path) or NO_SEGMENT))


def _owner(path: str) -> str:
    """Return the segment or vchannel that a file was written for."""
    name = parse(path)
    return "" if name is None else name.owner
