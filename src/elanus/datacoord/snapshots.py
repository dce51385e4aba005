"""Snapshots for readers outside the system: a consistent view of a collection, whose files are kept.

A snapshot is as of a fresh timestamp, and contains every write acknowledged before it. Entries that are only
in the log are written to files first: each vchannel's data node is asked to move its checkpoint past the
timestamp. This seals nothing and makes no small segments; growing segments are read from the files that they
have by then.

The snapshot itself is an object (`elanus.api.connector.CollectionSnapshot`), and a pin keeps the files that
it names (`elanus.datacoord.pins`). These may be index files too, for readers that search.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.api.early_ticks import request_early_tick
from elanus.api.indexcoord import IndexCoordApi
from elanus.core.catalog import Collection
from elanus.core.clones import as_of, folded_until
from elanus.core.errors import (
    CollectionNotFound,
    InvalidParameter,
    TimestampTooOld,
    Unavailable,
)
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.moments import format_moment
from elanus.core.pins import Pin, feed_start
from elanus.core.segments import SegmentState
from elanus.core.time_to_live import expired_until, time_to_live_s
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms, physical_ms
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.manifest_reader import Chosen
from elanus.datacoord.pins import Pins, check_lease
from elanus.datacoord.vchannel_table import Vchannel

_SYNC_WAIT_S = 60.0
_LOOK_S = 0.05
_ORDER_AGAIN_S = 5.0


class Snapshots:
    """Takes snapshots, and has them pinned. Implements `elanus.api.connector.SnapshotApi`.

    ``index``: knows which index files are in use. ``retention_s``: how long compaction leaves deletes in
    files of their own.
    """

    def __init__(
        self,
        context: DataContext,
        datanodes: DataNodes,
        pins: Pins,
        index: IndexCoordApi,
        retention_s: float,
    ) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._spawn = context.spawn
        self._moments = context.moments
        self._datanodes = datanodes
        self._pins = pins
        self._index = index
        self._retention_s = retention_s

    async def take_snapshot(
        self,
        collection_id: CollectionID,
        partition_ids: tuple[PartitionID, ...],
        lease_ms: int,
        with_indexes: bool = False,
    ) -> SnapshotLease:
        check_lease(lease_ms)
        collection = await self._rootcoord.collection_by_id(collection_id)
        now = await self._rootcoord.alloc_timestamp(1)
        snapshot = await self.shown(collection, now, partition_ids)
        wanted = Pin(0, collection_id, "", self._clock.wall_ms() + lease_ms, read_ts=snapshot.read_ts)
        if with_indexes:
            pin = await self.pin_with_indexes(snapshot, wanted)
        else:
            pin = await self._pins.pin(snapshot, wanted)
        return self._pins.lease(pin)

    async def pin_with_indexes(self, snapshot: CollectionSnapshot, wanted: Pin) -> Pin:
        """As `Pins.pin`, with the segments' built indexes.

        Indexcoord may forget a build between its answer and the pin. So the files are kept first, and then
        only those that are still in use are named: a collection that did not find them in use any more looks
        at the kept ones afterwards.
        """
        collection_id = snapshot.collection_id
        with self._pins.keeping(snapshot.files):
            indexes = snapshot.indexes or await self._index.indexes(collection_id)
            segments = {manifest.segment_id for manifest in snapshot.segments}
            found = [f for f in await self._index.index_files(collection_id) if f.segment_id in segments]
            with self._pins.keeping(frozenset(file.path for file in found)):
                in_use = {file.path for file in await self._index.index_files(collection_id)}
                files = tuple(file for file in found if file.path in in_use)
                return await self._pins.pin(replace(snapshot, indexes=indexes, index_files=files), wanted)

    async def shown(
        self, collection: Collection, moment: Timestamp, partition_ids: tuple[PartitionID, ...] = ()
    ) -> CollectionSnapshot:
        """Return what the collection shows at ``moment``, or at the moment up to which deletes were folded
        into files that were imported meanwhile.

        Lasts until the caller next waits. ``moment``: not before what compactions may have folded in.
        """
        ttl_s = time_to_live_s(collection.properties)
        while True:
            with self._moments.hold(moment):
                await self._synced(collection.collection_id, moment)
                snapshot = await self._collect(collection.collection_id, partition_ids, moment)
            folded = max((m.deletes_from for m in snapshot.segments), default=NO_TIMESTAMP)
            if folded <= moment:
                expired = expired_until(ttl_s, moment, collection.truncated)
                return replace(snapshot, expired_until=expired, created=collection.created)
            # Files written meanwhile have deletes up to ``folded`` applied: they are right only from then on.
            moment = folded

    async def shown_before(self, collection: Collection, moment: Timestamp) -> CollectionSnapshot:
        """As `shown`, at exactly this moment. Raises `TimestampTooOld` when later deletes are folded in."""
        with self._moments.hold(moment):
            await self._synced(collection.collection_id, moment)
            snapshot = await self._collect(collection.collection_id, (), moment)
        folded = folded_until(as_of(snapshot.segments, moment))
        if folded > moment:
            raise TimestampTooOld(
                f"deletes up to {folded} are folded into the files of {collection.name}, after the moment "
                f"{moment}: name a later one, or raise datacoord.retention_s"
            )
        return snapshot

    async def take_changes(
        self, collection_id: CollectionID, since: Timestamp, name: str, lease_ms: int
    ) -> SnapshotLease:
        since = max(since, (await self._rootcoord.collection_by_id(collection_id)).created)
        with self._moments.hold(since):  # before its time is compared: no compaction passes it from now on
            await self._check_kept(collection_id, since)
            if name:
                await self._pins.keep_changes(collection_id, since, name, lease_ms)
            return await self.take_snapshot(collection_id, (), lease_ms)

    async def release_snapshot(self, snapshot_id: int) -> None:
        pin = self._state.pin(snapshot_id)
        if pin is not None and not pin.name:  # a name is dropped, by its own call, with its own privilege
            await self._pins.release(snapshot_id)

    async def _check_kept(self, collection_id: CollectionID, since: Timestamp) -> None:
        """Raises `InvalidParameter` if ``since`` is later than now, `TimestampTooOld` if deletes after it may
        have been removed."""
        now = await self._rootcoord.alloc_timestamp(1)
        if since > now:
            raise InvalidParameter(f"changes since timestamp {since}, which is later than now, {now}")
        kept = minus_ms(now, round(self._retention_s * 1000))
        kept_from = min(kept, feed_start(self._state.pins(), collection_id, self._clock.wall_ms()))
        if since < kept_from:
            moment = format_moment(physical_ms(kept_from) * 1000)
            raise TimestampTooOld(
                f"changes since timestamp {since} are not complete: compaction may have removed deletes up "
                f"to {kept_from} ({moment}). Read the collection as a whole, and then the changes since the "
                "timestamp of that read. A reader that comes less often than datacoord.retention_s keeps "
                "its changes under a name (option keep_as)"
            )

    def _vchannels(self, collection_id: CollectionID) -> list[Vchannel]:
        vchannels = self._state.vchannels_of(collection_id)
        if not vchannels or any(v.dropping for v in vchannels):
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return vchannels

    async def _synced(self, collection_id: CollectionID, ts: Timestamp) -> None:
        """Wait until everything of the collection up to ``ts`` is in files. Raises `Unavailable`.

        An import that is being committed has its timestamp before its segments are known.
        """
        importing = self._state.imports_in_commit(collection_id)
        vchannels = [v.vchannel for v in self._vchannels(collection_id)]
        self._spawn(request_early_tick(self._rootcoord, vchannels, ts))
        deadline_s = self._clock.monotonic_s() + _SYNC_WAIT_S
        ordered_s: dict[str, float] = {}
        while True:
            behind = [v.vchannel for v in self._vchannels(collection_id) if v.checkpoint.ts < ts]
            importing &= self._state.imports_in_commit(collection_id)
            if not behind and not importing:
                return
            now_s = self._clock.monotonic_s()
            if now_s > deadline_s and importing:
                raise Unavailable(
                    f"imports {', '.join(map(str, sorted(importing)))} are still being committed after "
                    f"{_SYNC_WAIT_S:g} s: is the object store slow? Retry"
                )
            if now_s > deadline_s:
                raise Unavailable(
                    f"rows of {', '.join(behind)} are still in the log alone after {_SYNC_WAIT_S:g} s: "
                    "is the pipeline process up? `elanus jobs` shows whether flushes fail. Retry"
                )
            for vchannel in behind:
                is_due = now_s - ordered_s.get(vchannel, float("-inf")) > _ORDER_AGAIN_S
                if is_due and await self._datanodes.order_range(vchannel, ts):
                    ordered_s[vchannel] = now_s
            await asyncio.sleep(_LOOK_S)

    async def _collect(
        self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...], read_ts: Timestamp
    ) -> CollectionSnapshot:
        """Return a snapshot of the metadata as of this moment, which lasts until the caller next waits."""
        chosen, contents = await self._manifests.current(lambda: self._chosen(collection_id, partition_ids))
        deltas = {v.vchannel: contents.of_vchannel(v) for v in chosen.vchannels}
        schema, segments = chosen.vchannels[0].schema, contents.of_segments(chosen.segments)
        return CollectionSnapshot(collection_id, schema, read_ts, segments, deltas)

    def _chosen(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> Chosen:
        infos = [
            s
            for s in self._state.segments_of(collection_id)
            if s.state is not SegmentState.DROPPED
            and s.manifest
            and (not partition_ids or s.partition_id in partition_ids)
        ]
        return Chosen(infos, self._vchannels(collection_id))
