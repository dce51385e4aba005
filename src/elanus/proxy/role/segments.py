"""The segments for a write's rows: allocations are requested from datacoord and spent locally."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elanus.api.datacoord import AllocationRequest, DataCoordApi, SegmentAllocation
from elanus.core.allocation import AllocationCache, SegmentRows
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.timestamps import Timestamp


@dataclass(eq=False, slots=True)
class _Request:
    """A request under way. ``returned``: all allocations of the collection were returned meanwhile."""

    collection_id: CollectionID
    returned: bool = False


class SegmentAssigner:
    """``rows_ahead``: the minimum rows to request at once, so that not every small write needs a call."""

    def __init__(self, datacoord: DataCoordApi, rows_ahead: int) -> None:
        self._datacoord = datacoord
        self._rows_ahead = rows_ahead
        self._allocations = AllocationCache()
        self._under_way: set[_Request] = set()

    async def assign(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str, rows: int, ts: Timestamp
    ) -> list[SegmentRows]:
        """Return the segments for ``rows`` rows stamped ``ts``, in row order."""
        key = (collection_id, partition_id, vchannel)
        while missing := self._allocations.missing(key, rows, ts):
            request = AllocationRequest(collection_id, partition_id, vchannel, max(missing, self._rows_ahead))
            for allocation in await self._request(request):
                self._allocations.put(key, allocation.segment_id, allocation.rows, allocation.expires)
        return self._allocations.spend(key, rows)

    async def _request(self, request: AllocationRequest) -> Sequence[SegmentAllocation]:
        """Return allocations; none if all were returned while these were in transit: they count as such."""
        under_way = _Request(request.collection_id)
        self._under_way.add(under_way)
        try:
            allocations = await self._datacoord.allocate((request,))
        finally:
            self._under_way.discard(under_way)
        return () if under_way.returned else allocations

    def return_all(self, collection_id: CollectionID) -> None:
        """Forget all allocations of a collection; the next write requests new ones."""
        for request in self._under_way:
            request.returned = request.returned or request.collection_id == collection_id
        self._allocations.forget(collection_id)
