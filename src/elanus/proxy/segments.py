"""Which segments a write's rows go to: quota from datacoord, spent from a local store (seed 3, 6.3)."""

from __future__ import annotations

from elanus.core.ids import CollectionID, PartitionID
from elanus.core.quota import Place, QuotaCache
from elanus.core.timestamps import Timestamp
from elanus.rpc.datacoord import DataCoordApi, QuotaRequest


class SegmentAssigner:
    """``rows_ahead``: the least to ask for at once, so that small writes need no call each."""

    def __init__(self, datacoord: DataCoordApi, rows_ahead: int) -> None:
        self._datacoord = datacoord
        self._rows_ahead = rows_ahead
        self._quota = QuotaCache()
        self._given_back: dict[CollectionID, int] = {}

    async def assign(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str, rows: int, ts: Timestamp
    ) -> list[Place]:
        """Segments for ``rows`` rows stamped ``ts``, in row order."""
        key = (collection_id, partition_id, vchannel)
        while missing := self._quota.missing(key, rows, ts):
            before = self._given_back.get(collection_id, 0)
            request = QuotaRequest(collection_id, partition_id, vchannel, max(missing, self._rows_ahead))
            for quota in await self._datacoord.assign_quota((request,)):
                # Quota that was on its way here while all quota was given back counts as given back.
                if self._given_back.get(collection_id, 0) == before:
                    self._quota.put(key, quota.segment_id, quota.rows, quota.expires)
        return self._quota.spend(key, rows)

    def give_back(self, collection_id: CollectionID) -> None:
        """Forget all quota of a collection; the next write asks anew."""
        self._given_back[collection_id] = self._given_back.get(collection_id, 0) + 1
        self._quota.give_back(collection_id)
