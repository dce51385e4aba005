"""What datacoord keeps, in memory and in the metadata: vchannels and segments.

One key a segment, one a vchannel. A vchannel's record points to a manifest object with its delta logs, a
segment's to its own manifest, so that records stay small however much there is. Changes are persisted
first, in one transaction that compares the revision of every record it touches, then shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from elanus.core.catalog import Checkpoint
from elanus.core.errors import CommitRefused, SegmentNotFound
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.meta.port import Compare, CompareFailed, Delete, MetaStore, Put

_SEGMENTS = "datacoord/segment/"
_VCHANNELS = "datacoord/vchannel/"
_BATCH = 100
_UNFLUSHED = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHING)


@dataclass(frozen=True, slots=True)
class Vchannel:
    """``deltas``: path of the manifest that lists its delta logs, "" when it has none.

    ``dropping``: its collection is dropped, its data node has not read the drop message yet.
    ``dropped_partitions`` get no quota any more.
    """

    vchannel: str
    collection_id: CollectionID
    schema: CollectionSchema
    checkpoint: Checkpoint
    deltas: str = ""
    dropping: bool = False
    dropped_partitions: tuple[PartitionID, ...] = ()


class DataState:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._segments: dict[SegmentID, SegmentInfo] = {}
        self._vchannels: dict[str, Vchannel] = {}
        self._revisions: dict[str, int] = {}
        self._unflushed: dict[SegmentID, None] = {}

    async def start(self) -> None:
        for key, stored in await self._meta.list(_SEGMENTS):
            segment = msgspec.json.decode(stored.value, type=SegmentInfo)
            self._show(segment)
            self._revisions[key] = stored.revision
        for key, stored in await self._meta.list(_VCHANNELS):
            vchannel = msgspec.json.decode(stored.value, type=Vchannel)
            self._vchannels[vchannel.vchannel] = vchannel
            self._revisions[key] = stored.revision

    # reading

    def segment(self, segment_id: SegmentID) -> SegmentInfo:
        """Raises `SegmentNotFound`."""
        try:
            return self._segments[segment_id]
        except KeyError:
            raise SegmentNotFound(f"segment not found[segment={segment_id}]") from None

    def find_segment(self, segment_id: SegmentID) -> SegmentInfo | None:
        return self._segments.get(segment_id)

    def segments(self) -> Iterable[SegmentInfo]:
        return self._segments.values()

    def segments_of(self, collection_id: CollectionID) -> list[SegmentInfo]:
        return [s for s in self._segments.values() if s.collection_id == collection_id]

    def segments_on(self, vchannel: str) -> list[SegmentInfo]:
        return [s for s in self._segments.values() if s.vchannel == vchannel]

    def unflushed(self) -> list[SegmentInfo]:
        """Growing, sealed and flushing segments."""
        return [self._segments[segment_id] for segment_id in self._unflushed]

    def growing(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str
    ) -> list[SegmentInfo]:
        key = (collection_id, partition_id, vchannel)
        return [
            s
            for s in self.unflushed()
            if s.state is SegmentState.GROWING and (s.collection_id, s.partition_id, s.vchannel) == key
        ]

    def vchannels(self) -> Iterable[Vchannel]:
        return self._vchannels.values()

    def vchannels_of(self, collection_id: CollectionID) -> list[Vchannel]:
        return [v for v in self._vchannels.values() if v.collection_id == collection_id]

    def vchannel(self, name: str) -> Vchannel | None:
        return self._vchannels.get(name)

    # writing

    async def put(self, segments: Sequence[SegmentInfo] = (), vchannels: Sequence[Vchannel] = ()) -> None:
        """Persist and show records, all or none. Raises `CommitRefused` when one changed meanwhile."""
        records = {f"{_SEGMENTS}{s.segment_id}": msgspec.json.encode(s) for s in segments}
        records |= {f"{_VCHANNELS}{v.vchannel}": msgspec.json.encode(v) for v in vchannels}
        compares = [Compare(key, self._revisions.get(key, 0)) for key in records]
        try:
            revision = await self._meta.txn([Put(k, v) for k, v in records.items()], compares)
        except CompareFailed as error:
            raise CommitRefused(f"another coordinator changed {', '.join(error.keys)}") from error
        self._revisions |= dict.fromkeys(records, revision)
        for segment in segments:
            self._show(segment)
        self._vchannels |= {v.vchannel: v for v in vchannels}

    async def put_segments(self, segments: Sequence[SegmentInfo]) -> None:
        """Persist and show any number of segments, in transactions of bounded size: each one all or none."""
        for begin in range(0, len(segments), _BATCH):
            await self.put(segments[begin : begin + _BATCH])

    async def remove_vchannel(self, name: str) -> None:
        key = f"{_VCHANNELS}{name}"
        await self._meta.txn([Delete(key)])
        self._vchannels.pop(name, None)
        self._revisions.pop(key, None)

    def touch(self, segment: SegmentInfo) -> None:
        """Show a change that need not outlive this process (the latest quota's expiry)."""
        self._show(segment)

    def _show(self, segment: SegmentInfo) -> None:
        self._segments[segment.segment_id] = segment
        if segment.state in _UNFLUSHED:
            self._unflushed[segment.segment_id] = None
        else:
            self._unflushed.pop(segment.segment_id, None)
