"""Handing out segment quota, and remembering what is outstanding.

What a segment can still promise is its maximum less the rows its channel has shown less the promises
that have neither expired nor been given back. Promises live in memory only: a restarted coordinator
treats every growing segment as if all its room were promised, until one full term from now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elanus.core.errors import CollectionNotFound, PartitionNotFound
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.quota import OpenSegment, allocate
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import LOGICAL_BITS, Timestamp
from elanus.datacoord.state import DataState
from elanus.rpc.datacoord import Quota, QuotaRequest
from elanus.rpc.rootcoord import RootCoordApi


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """``expiration_ms``: how long a promise holds after it was made."""

    segment_size_max_bytes: int
    expiration_ms: int


class QuotaDesk:
    def __init__(self, state: DataState, rootcoord: RootCoordApi, policy: QuotaPolicy) -> None:
        self._state = state
        self._rootcoord = rootcoord
        self._policy = policy
        self._promises: dict[SegmentID, list[tuple[int, Timestamp]]] = {}
        self._seen_rows: dict[str, Mapping[SegmentID, int]] = {}

    def seen_rows(self, info: SegmentInfo) -> int:
        """Rows of the segment that lie in the log beyond its binlogs, as far as its data node has read."""
        return self._seen_rows.get(info.vchannel, {}).get(info.segment_id, 0)

    def show_rows(self, vchannel: str, rows: Mapping[SegmentID, int]) -> None:
        """All such rows of a vchannel, by segment."""
        self._seen_rows[vchannel] = rows

    def committed(self, vchannel: str, rows: Mapping[SegmentID, int]) -> None:
        """These of them are in binlogs now, counted with the segments. Those beyond are in the log still."""
        seen = self._seen_rows.get(vchannel, {})
        self._seen_rows[vchannel] = {s: n - rows.get(s, 0) for s, n in seen.items() if n > rows.get(s, 0)}

    def forget_vchannel(self, vchannel: str) -> None:
        self._seen_rows.pop(vchannel, None)

    def expire(self, segment_id: SegmentID, tick: Timestamp) -> None:
        """Promises up to the tick can bring no more rows."""
        promises = self._promises.get(segment_id)
        if promises:
            self._promises[segment_id] = [p for p in promises if p[1] > tick]

    def forget(self, segment_id: SegmentID) -> None:
        """The segment takes no more rows."""
        self._promises.pop(segment_id, None)

    def give_back(self, collection_id: CollectionID) -> None:
        """Every proxy has given its quota of the collection back."""
        for info in self._state.unflushed():
            if info.collection_id == collection_id:
                self._promises.pop(info.segment_id, None)

    async def restart(self) -> None:
        """What was promised before is unknown: it is taken for all the room, expiring as late as can be."""
        expires = await self._expiry()
        for info in self._state.unflushed():
            if info.state is SegmentState.GROWING:
                self._promises[info.segment_id] = [(info.max_rows, expires)]
                self._state.touch(replace(info, last_expire=expires))

    async def assign(self, request: QuotaRequest) -> list[Quota]:
        """Raises `CollectionNotFound` for a vchannel that is unknown or dropping, and `PartitionNotFound`."""
        vchannel = self._state.vchannel(request.vchannel)
        if vchannel is None or vchannel.dropping:
            raise CollectionNotFound(f"collection not found[collection={request.collection_id}]")
        max_rows = self.max_rows(vchannel.schema)
        expires = await self._expiry()
        segments = self._state.growing(request.collection_id, request.partition_id, request.vchannel)
        quotas = []
        for allocation in allocate(request.rows, [self._open(s) for s in segments], max_rows):
            if allocation.segment_id is None:
                segment_id = await self._open_segment(request, max_rows, expires)
            else:
                segment_id = allocation.segment_id
            self._promises.setdefault(segment_id, []).append((allocation.rows, expires))
            self._state.touch(replace(self._state.segment(segment_id), last_expire=expires))
            quotas.append(
                Quota(
                    request.collection_id,
                    request.partition_id,
                    request.vchannel,
                    segment_id,
                    allocation.rows,
                    expires,
                )
            )
        return quotas

    def max_rows(self, schema: CollectionSchema) -> int:
        """Rows of the schema that fit in a segment of the maximum size."""
        return max(1, self._policy.segment_size_max_bytes // schema.row_bytes_estimate)

    def _open(self, info: SegmentInfo) -> OpenSegment:
        promised = sum(rows for rows, _ in self._promises.get(info.segment_id, ()))
        free = info.max_rows - info.rows - self.seen_rows(info) - promised
        return OpenSegment(info.segment_id, free)

    async def _open_segment(self, request: QuotaRequest, max_rows: int, expires: Timestamp) -> SegmentID:
        """Where the partition lives by rootcoord's word: a drop that is decided later finds the segment here.

        A write that was stamped before the drop would open one that nobody drops again.
        """
        collection = await self._rootcoord.collection_by_id(request.collection_id)
        if all(p.partition_id != request.partition_id for p in collection.partitions):
            raise PartitionNotFound(f"partition not found[partition={request.partition_id}]")
        segment_id = SegmentID(await self._rootcoord.alloc_ids(1))
        created = await self._rootcoord.alloc_timestamp(1)
        info = SegmentInfo(
            segment_id,
            request.collection_id,
            request.partition_id,
            request.vchannel,
            SegmentState.GROWING,
            max_rows,
            created,
            last_expire=expires,
        )
        await self._state.put([info])
        return segment_id

    async def _expiry(self) -> Timestamp:
        now = await self._rootcoord.alloc_timestamp(1)
        return Timestamp(now + (self._policy.expiration_ms << LOGICAL_BITS))
