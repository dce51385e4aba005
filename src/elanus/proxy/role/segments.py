"""The segments for a write's rows: allocations are requested from datacoord and spent locally."""

from __future__ import annotations

from elanus.api.datacoord import AllocationRequest, DataCoordApi
from elanus.core.allocation import AllocationCache, SegmentRows
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.timestamps import Timestamp


class SegmentAssigner:
    """``rows_ahead``: the minimum rows to request at once, so that not every small write needs a call."""

    def __init__(self, datacoord: DataCoordApi, rows_ahead: int) -> None:
        self._datacoord = datacoord
        self._rows_ahead = rows_ahead
        self._allocations = AllocationCache()
        self._returns: dict[CollectionID, int] = {}
        """How often all allocations of a collection were returned."""

    async def assign(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str, rows: int, ts: Timestamp
    ) -> list[SegmentRows]:
        """Return the segments for ``rows`` rows stamped ``ts``, in row order."""
        key = (collection_id, partition_id, vchannel)
        while missing := self._allocations.missing(key, rows, ts):
            before = self._returns.get(collection_id, 0)
            request = AllocationRequest(collection_id, partition_id, vchannel, max(missing, self._rows_ahead))
            for allocation in await self._datacoord.allocate((request,)):
                # An allocation in transit while all were returned counts as returned.
                if self._returns.get(collection_id, 0) == before:
                    self._allocations.put(key, allocation.segment_id, allocation.rows, allocation.expires)
        return self._allocations.spend(key, rows)

    def return_all(self, collection_id: CollectionID) -> None:
        """Forget all allocations of a collection; the next write requests new ones."""
        self._returns[collection_id] = self._returns.get(collection_id, 0) + 1
        self._allocations.forget(collection_id)
