"""The vchannels of collections, from their creation until their data node has read the drop message."""

from __future__ import annotations

from dataclasses import replace

from elanus.api.fencing import while_active
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID, NodeID, PartitionID
from elanus.core.schema import CollectionSchema
from elanus.datacoord.compactor import Compactor
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.dropping import drop_segments
from elanus.datacoord.state import Vchannel


class Vchannels:
    """Implements `elanus.api.datacoord.ChannelCalls`."""

    def __init__(self, context: DataContext, datanodes: DataNodes, compactor: Compactor) -> None:
        self._lease = context.lease
        self._state = context.state
        self._allocator = context.allocator
        self._rootcoord = context.rootcoord
        self._lock = context.lock
        self._changes = context.changes
        self._context = context
        self._datanodes = datanodes
        self._compactor = compactor

    async def watch_channels(self, collection: Collection) -> None:
        async with self._lock:
            new = [
                Vchannel(name, collection.collection_id, collection.schema, start)
                for name, start in collection.starts.items()
                if self._state.vchannel(name) is None
            ]
            if not new or not await self._is_live(collection.collection_id):
                return
            await self._state.put(vchannels=self._datanodes.placed(new))
        self._changes.happened(collection.collection_id)
        self._datanodes.notify(v.vchannel for v in new)

    async def change_schema(self, collection_id: CollectionID, schema: CollectionSchema) -> None:
        """Persist the schema with a new epoch: the owners begin again from the checkpoints, and commits of
        jobs that have the former schema are refused."""
        async with self._lock:
            changed = [
                replace(v, schema=schema)
                for v in self._state.vchannels_of(collection_id)
                if not v.dropping and v.schema != schema
            ]
            await self._datanodes.begin_again(changed)

    async def _is_live(self, collection_id: CollectionID) -> bool:
        """Whether rootcoord still has the collection: the call may arrive late, or twice.

        Called under the lock. A drop that rootcoord decides after it has answered finds the vchannels here.
        """
        try:
            await self._rootcoord.collection_by_id(collection_id)
        except CollectionNotFound:
            return False
        return True

    async def holds_channels(self, collection_id: CollectionID) -> bool:
        async with while_active(self._lease):
            return bool(self._state.vchannels_of(collection_id))

    async def channel_owners(self) -> dict[str, NodeID]:
        return {v.vchannel: v.owner for v in self._state.vchannels() if not v.dropped}

    async def owned_vchannels(self) -> dict[NodeID, int]:
        return dict(self._state.owned_counts())

    async def quarantined(self) -> dict[str, int]:
        return {v.vchannel: v.quarantined for v in self._state.vchannels() if v.quarantined and not v.dropped}

    async def drop_collection(self, collection_id: CollectionID) -> None:
        async with self._lock:
            await self._compactor.cancel(collection_id, None)
            dropping = [
                replace(v, dropping=True) for v in self._state.vchannels_of(collection_id) if not v.dropping
            ]
            if dropping:
                await self._state.put(vchannels=dropping)
        self._changes.happened(collection_id)

    async def drop_partition(self, collection_id: CollectionID, partition_id: PartitionID) -> None:
        async with self._lock:
            await self._compactor.cancel(collection_id, partition_id)
            segments = [s for s in self._state.segments_of(collection_id) if s.partition_id == partition_id]
            await drop_segments(self._context, segments)
        self._changes.happened(collection_id)

    async def channel_dropped(self, epoch: int, vchannel: str) -> None:
        async with self._lock:
            known = self._state.vchannel(vchannel)
            if known is None or known.dropped:
                return  # reported before
            self._datanodes.check_owner(vchannel, epoch)
            await drop_segments(self._context, self._state.segments_on(vchannel), known)
            self._allocator.forget_vchannel(vchannel)
        self._datanodes.notify([vchannel])
        self._changes.happened(known.collection_id)
