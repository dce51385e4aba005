"""Segment allocation: allocates rows in growing segments, and tracks the allocations that are outstanding.

The free room of a segment is its maximum, less the rows that its channel has shown, less the allocations that
have neither expired nor been returned. Allocations are kept in memory only: a restarted coordinator treats
every growing segment as fully allocated, until one full expiration period from then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elanus.api.datacoord import AllocationRequest, SegmentAllocation
from elanus.api.fencing import while_active
from elanus.api.rootcoord import RootCoordApi
from elanus.core.allocation import OpenSegment, allocate
from elanus.core.errors import CollectionNotFound, PartitionNotFound
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.lease import Lease
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import LOGICAL_BITS, Timestamp
from elanus.datacoord.state import DataState


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """``expiration_ms``: how long an allocation is valid after it was made."""

    segment_size_max_bytes: int
    expiration_ms: int


class SegmentAllocator:
    """Implements `elanus.api.datacoord.AllocationCalls`. ``lease`` and ``lock``: the role's."""

    def __init__(
        self,
        state: DataState,
        rootcoord: RootCoordApi,
        policy: AllocationPolicy,
        lease: Lease,
        lock: asyncio.Lock,
    ) -> None:
        self._state = state
        self._rootcoord = rootcoord
        self._policy = policy
        self._lease = lease
        self._lock = lock
        self._allocated: dict[SegmentID, list[tuple[int, Timestamp]]] = {}
        """The outstanding allocations of each segment: rows, and when they expire."""
        self._seen_rows: dict[str, Mapping[SegmentID, int]] = {}

    def seen_rows(self, info: SegmentInfo) -> int:
        """Return how many rows of the segment are in the log but not in binlogs, as far as its data node has
        read."""
        return self._seen_rows.get(info.vchannel, {}).get(info.segment_id, 0)

    def show_rows(self, vchannel: str, rows: Mapping[SegmentID, int]) -> None:
        """Set the rows of a vchannel that are in the log but not in binlogs, by segment."""
        self._seen_rows[vchannel] = rows

    def committed(self, vchannel: str, rows: Mapping[SegmentID, int]) -> None:
        """Note that these rows are in binlogs now, and counted with the segments. Rows beyond them are still
        in the log."""
        seen = self._seen_rows.get(vchannel, {})
        self._seen_rows[vchannel] = {s: n - rows.get(s, 0) for s, n in seen.items() if n > rows.get(s, 0)}

    def forget_vchannel(self, vchannel: str) -> None:
        self._seen_rows.pop(vchannel, None)

    def expire(self, segment_id: SegmentID, tick: Timestamp) -> None:
        """Remove the allocations that expire up to the tick: no more rows can arrive under them."""
        allocated = self._allocated.get(segment_id)
        if allocated:
            self._allocated[segment_id] = [(rows, expires) for rows, expires in allocated if expires > tick]

    def forget(self, segment_id: SegmentID) -> None:
        """Remove the allocations of a segment that takes no more rows."""
        self._allocated.pop(segment_id, None)

    def returned(self, collection_id: CollectionID) -> None:
        """Remove the collection's allocations: every proxy has returned its own."""
        for info in self._state.unflushed_of(collection_id):
            self._allocated.pop(info.segment_id, None)

    async def restart(self) -> None:
        """Treat every growing segment as fully allocated until the latest possible expiry: earlier
        allocations are unknown."""
        expires = await self._expiry()
        for info in self._state.unflushed():
            if info.state is SegmentState.GROWING:
                self._allocated[info.segment_id] = [(info.max_rows, expires)]
                self._state.touch(replace(info, last_expire=expires))

    async def allocate(self, requests: tuple[AllocationRequest, ...]) -> tuple[SegmentAllocation, ...]:
        """Allocate rows in segments. The lease is checked, because room in an open segment is allocated
        without a transaction, which would reveal a successor that has sealed the segment by now."""
        allocations: list[SegmentAllocation] = []
        async with while_active(self._lease), self._lock:
            for request in requests:
                allocations += await self._allocate(request)
        return tuple(allocations)

    async def _allocate(self, request: AllocationRequest) -> list[SegmentAllocation]:
        """Allocate rows, in open segments first. Raises `CollectionNotFound` for a vchannel that is unknown
        or dropping, and `PartitionNotFound`."""
        vchannel = self._state.vchannel(request.vchannel)
        if vchannel is None or vchannel.dropping:
            raise CollectionNotFound(f"collection not found[collection={request.collection_id}]")
        max_rows = self.max_rows(vchannel.schema)
        expires = await self._expiry()
        segments = self._state.growing(request.collection_id, request.partition_id, request.vchannel)
        allocations = []
        for allocation in allocate(request.rows, [self._open(s) for s in segments], max_rows):
            if allocation.segment_id is None:
                segment_id = await self._open_segment(request, max_rows, expires)
            else:
                segment_id = allocation.segment_id
            self._allocated.setdefault(segment_id, []).append((allocation.rows, expires))
            self._state.touch(replace(self._state.segment(segment_id), last_expire=expires))
            allocations.append(
                SegmentAllocation(
                    request.collection_id,
                    request.partition_id,
                    request.vchannel,
                    segment_id,
                    allocation.rows,
                    expires,
                )
            )
        return allocations

    @property
    def segment_bytes_max(self) -> int:
        return self._policy.segment_size_max_bytes

    def max_rows(self, schema: CollectionSchema) -> int:
        """Return how many rows of the schema fit in a segment of the maximum size."""
        return max(1, self._policy.segment_size_max_bytes // schema.row_bytes_estimate)

    def _open(self, info: SegmentInfo) -> OpenSegment:
        allocated = sum(rows for rows, _ in self._allocated.get(info.segment_id, ()))
        free = info.max_rows - info.rows - self.seen_rows(info) - allocated
        return OpenSegment(info.segment_id, free)

    async def _open_segment(self, request: AllocationRequest, max_rows: int, expires: Timestamp) -> SegmentID:
        """Open a segment if rootcoord still has the partition: a drop that is decided later finds the segment
        here.

        Without this check, a write that was timestamped before the drop would open a segment that is never
        dropped.
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
