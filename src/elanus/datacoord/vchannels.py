"""The vchannels of collections, from their creation until their data node has read the drop message."""

from __future__ import annotations

from dataclasses import replace

from elanus.api.fencing import while_active
from elanus.api.snapshots import DroppedCollection
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotFound, CoordinatorReplaced
from elanus.core.ids import CollectionID, NodeID, PartitionID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import IndexFile
from elanus.datacoord.clones import Clones, FirstRows
from elanus.datacoord.compactor import Compactor
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.dropped_collections import DroppedCollections
from elanus.datacoord.dropping import drop_segments
from elanus.datacoord.vchannel_table import Vchannel


class Vchannels:
    """Implements `elanus.api.datacoord.ChannelCalls`."""

    def __init__(
        self,
        context: DataContext,
        datanodes: DataNodes,
        compactor: Compactor,
        dropped: DroppedCollections,
    ) -> None:
        self._lease = context.lease
        self._state = context.state
        self._allocator = context.allocator
        self._rootcoord = context.rootcoord
        self._lock = context.lock
        self._changes = context.changes
        self._context = context
        self._datanodes = datanodes
        self._compactor = compactor
        self._clones = Clones(context)
        self._dropped = dropped

    async def borrowed_indexes(self, clone: Collection) -> tuple[IndexFile, ...]:
        return await self._clones.borrowed_indexes(clone)

    async def watch_channels(self, collection: Collection) -> None:
        new = self._new_vchannels(collection)
        if not new:
            return
        if collection.origin is None:
            await self._add(collection, FirstRows((), new))
            return
        named = {vchannel.vchannel: vchannel for vchannel in new}
        async with self._clones.first_rows(collection, collection.origin, named) as rows:
            await self._add(collection, rows)

    def _new_vchannels(self, collection: Collection) -> tuple[Vchannel, ...]:
        return tuple(
            Vchannel(name, collection.collection_id, collection.schema, start)
            for name, start in collection.starts.items()
            if self._state.vchannel(name) is None
        )

    async def _add(self, collection: Collection, rows: FirstRows) -> None:
        """Add a collection with what it has at first, in one change, if nobody else has meanwhile."""
        async with self._lock:
            if not self._new_vchannels(collection) or not await self._is_live(collection.collection_id):
                return
            try:
                await self._state.put(rows.segments, self._datanodes.placed(rows.vchannels))
            finally:  # a caller that is cancelled may have persisted it, and the next one finds nothing new
                self._changes.happened(collection.collection_id)
                self._datanodes.notify(v.vchannel for v in rows.vchannels)

    async def change_schema(self, collection_id: CollectionID, schema: CollectionSchema) -> None:
        """Persist the schema with a new epoch: the owners begin again from the checkpoints, and commits of
        jobs that have the former schema are refused."""
        async with self._lock:
            # The call may arrive late, or come from a rootcoord that was replaced amid the change: a later
            # change may have been made since.
            found = await self._rootcoord.collection_by_id(collection_id)
            if schema != found.readers_schema:
                raise CoordinatorReplaced(
                    f"collection {collection_id} is to have another schema by now: this change of its schema "
                    "is over"
                )
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
        return self._state.quarantined()

    async def remember_dropped(self, record: DroppedCollection) -> None:
        await self._dropped.remember(record)

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
            await self._drop(known, epoch)
        self._announce_drop(known)

    async def channel_unreadable(self, epoch: int, vchannel: str) -> bool:
        async with self._lock:
            known = self._state.vchannel(vchannel)
            if known is None or known.dropped:
                return True
            if not known.dropping:
                return False
            await self._drop(known, epoch)
        self._announce_drop(known)
        return True

    async def _drop(self, known: Vchannel, epoch: int) -> None:
        """Mark a vchannel and its segments dropped; under the lock. Raises `CommitRefused`."""
        self._datanodes.check_owner(known.vchannel, epoch)
        await drop_segments(self._context, self._state.segments_on(known.vchannel), known)
        self._allocator.forget_vchannel(known.vchannel)
        self._datanodes.forget_vchannel(known.vchannel)

    def _announce_drop(self, known: Vchannel) -> None:
        self._datanodes.notify([known.vchannel])
        self._changes.happened(known.collection_id)
