"""Snapshots by name, and the sources of clones: what each pins, and for how long.

A named snapshot outlives its collection: it has the definition and keeps the files. A clone is made of a
snapshot, of a collection as of a moment, or of one that was dropped whose files still exist. In each case a
pin keeps the files until the clone is made.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.api.connector import CollectionSnapshot
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.snapshots import (
    CloneSource,
    DroppedCollection,
    HeldSource,
    NamedSnapshot,
    NewSnapshot,
    PinnedCollection,
)
from elanus.core.catalog import Collection
from elanus.core.clones import as_of, deletes_as_of
from elanus.core.errors import (
    CollectionNotFound,
    InvalidParameter,
    SnapshotNotFound,
    TimestampTooOld,
)
from elanus.core.gc import GcPolicy, expires_ms
from elanus.core.ids import CollectionID
from elanus.core.moments import format_moment
from elanus.core.pins import Pin, expired
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms, physical_ms
from elanus.datacoord.backup_moments import BackupMoments
from elanus.datacoord.context import DataContext
from elanus.datacoord.dropped_collections import DroppedCollections
from elanus.datacoord.manifest_reader import Chosen
from elanus.datacoord.pins import Pins
from elanus.datacoord.snapshots import Snapshots
from elanus.datacoord.vchannel_table import Vchannel
from elanus.storage.port import ObjectMissing

_CLONE_MS = 3_600_000
"""How long the files of a source stay if the clone is never made."""


class NamedSnapshots:
    """Implements `elanus.api.snapshots.SnapshotCalls`. ``retention_s``: how far back in time reads may go."""

    def __init__(
        self,
        context: DataContext,
        snapshots: Snapshots,
        pins: Pins,
        index: IndexCoordApi,
        dropped: DroppedCollections,
        policy: GcPolicy,
        retention_s: float,
    ) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._snapshots = snapshots
        self._pins = pins
        self._index = index
        self._dropped = dropped
        self._policy = policy
        self._retention_s = retention_s
        self._backups = BackupMoments(context)

    # snapshots by name

    async def create_snapshot(self, request: NewSnapshot) -> Pin:
        collection_id, name = request.collection_id, request.name
        if any(p.name == name and p.collection_id == collection_id for p in self._state.pins()):
            raise InvalidParameter(f"snapshot name {name} already exists: drop it, or use another name")
        collection = await self._rootcoord.collection_by_id(collection_id)
        indexes = await self._index.indexes(collection_id)
        now = await self._rootcoord.alloc_timestamp(1)
        snapshot = await self._snapshots.shown(collection, now)
        snapshot = replace(snapshot, collection=collection, indexes=indexes)
        wanted = Pin(
            0, collection_id, "", request.expires_ms, name, request.description, read_ts=snapshot.read_ts
        )
        return await self._snapshots.pin_with_indexes(snapshot, wanted)

    async def drop_snapshot(self, collection_id: CollectionID, name: str) -> None:
        for pin in self._state.pins():
            if pin.name == name and pin.collection_id == collection_id:
                self._check_unpinned(pin)
                await self._pins.release(pin.pin_id)

    async def named_snapshots(self) -> tuple[Pin, ...]:
        return tuple(sorted((p for p in self._state.pins() if p.name), key=lambda p: p.pin_id))

    async def named_snapshot(self, pin_id: int) -> NamedSnapshot:
        pin = self._pin(pin_id)
        snapshot = await self._manifests.snapshot(pin.path)
        collection = _definition(snapshot)
        return NamedSnapshot(
            pin,
            f"{self._manifests.store_url.rstrip('/')}/{pin.path}",
            collection.database_id,
            collection.name,
            tuple(partition.name for partition in collection.partitions),
            sum(manifest.size_bytes for manifest in snapshot.segments),
        )

    async def pinned_collection(self, pin_id: int) -> PinnedCollection:
        pin = self._state.pin(pin_id)
        if pin is None:
            raise SnapshotNotFound(f"snapshot not found[snapshot={pin_id}]: it was released, or has expired")
        if pin.received:
            return PinnedCollection(pin, None)
        try:
            return PinnedCollection(pin, await self._rootcoord.collection_by_id(pin.collection_id))
        except CollectionNotFound:
            return PinnedCollection(pin, await self._dropped_definition(pin))

    async def _dropped_definition(self, pin: Pin) -> Collection | None:
        """Return the definition of a dropped collection; None if only a reader's snapshot is left of it."""
        now = await self._rootcoord.alloc_timestamp(1)
        dropped = await self._dropped.find(pin.collection_id, now)
        if dropped is not None:
            return dropped.collection
        if not pin.path:
            return None
        try:
            return (await self._manifests.snapshot(pin.path)).collection
        except ObjectMissing:
            return None  # its release was interrupted

    async def pin_snapshot(self, pin_id: int, expires_ms: int) -> Pin:
        pin = self._pin(pin_id)
        return await self._pins.pin_again(pin, Pin(0, pin.collection_id, "", expires_ms))

    async def unpin_snapshot(self, pin_id: int) -> None:
        pin = self._state.pin(pin_id)
        if pin is not None and not pin.name:
            await self._pins.release(pin_id)

    def _check_unpinned(self, snapshot: Pin) -> None:
        """Raises `InvalidParameter` while a client's pin, or the lease of a backup, is on the snapshot."""
        own = [p for p in self._state.pins() if p.path == snapshot.path and p is not snapshot]
        over = expired(own, self._clock.wall_ms())
        if active := [p for p in own if not (p.name or p.clones or p.received) and p not in over]:
            ids = ", ".join(str(p.pin_id) for p in active)
            raise InvalidParameter(
                f"{len(active)} active pins, unpin before dropping: "
                f"snapshot is pinned[snapshot={snapshot.name}][pins={ids}]"
            )

    def _pin(self, pin_id: int) -> Pin:
        pin = self._state.pin(pin_id)
        if pin is None or not pin.name:
            raise SnapshotNotFound(f"snapshot not found[snapshot={pin_id}]")
        return pin

    # sources of clones

    def _of_clones(self, pin_id: int) -> Pin:
        """Return a named snapshot, or one whose files a restore has written."""
        pin = self._state.pin(pin_id)
        return pin if pin is not None and pin.received else self._pin(pin_id)

    async def hold_source(self, source: CloneSource) -> HeldSource:
        expires_ms = self._clock.wall_ms() + (source.lease_ms or _CLONE_MS)
        wanted = Pin(0, source.collection_id, "", int(expires_ms), clones=not source.lease_ms)
        if source.pin_id:
            named = self._of_clones(source.pin_id)
            snapshot = await self._manifests.snapshot(named.path)
            pin = await self._pins.pin_again(named, wanted)
            return HeldSource(pin, named.name, _definition(snapshot), snapshot.indexes)
        snapshot = await self._source(source)
        wanted = replace(wanted, read_ts=snapshot.read_ts)
        pin = await self._snapshots.pin_with_indexes(snapshot, wanted)
        try:
            await self._check_kept(_definition(snapshot))
        except CollectionNotFound:
            await self._pins.release(pin.pin_id)
            raise
        return HeldSource(pin, "", _definition(snapshot), snapshot.indexes)

    async def dropped_collections(self) -> tuple[Collection, ...]:
        now = await self._rootcoord.alloc_timestamp(1)
        return tuple(record.collection for record in await self._dropped.all(now))

    async def _source(self, source: CloneSource) -> CollectionSnapshot:
        """Return what is to be cloned. Lasts until the caller next waits."""
        begins_backup = bool(source.lease_ms) and source.moment == NO_TIMESTAMP
        if self._backups.is_held(source.moment):
            self._backups.hold(source.moment)
        now = await (self._backups.begin() if begins_backup else self._rootcoord.alloc_timestamp(1))
        dropped = await self._dropped.find(source.collection_id, now)
        if dropped is not None:
            return await self._of_dropped(dropped, source.moment)
        collection = await self._rootcoord.collection_by_id(source.collection_id)
        indexes = await self._index.indexes(source.collection_id)
        if source.moment == NO_TIMESTAMP:
            snapshot = await self._snapshots.shown(collection, now)
        else:
            self._check_moment(source.moment, now, collection)
            snapshot = await self._snapshots.shown_before(collection, source.moment)
        if begins_backup or self._backups.is_held(snapshot.read_ts):
            self._backups.hold(snapshot.read_ts)
        return replace(snapshot, collection=collection, indexes=indexes)

    def _check_moment(self, moment: Timestamp, now: Timestamp, collection: Collection) -> None:
        if moment > now:
            raise InvalidParameter(
                f"the moment {_shown(moment)} has not come yet, it is {_shown(now)}: name one in the past"
            )
        if moment < collection.created:
            raise InvalidParameter(
                f"the collection was created at {_shown(collection.created)}, later than the moment "
                f"{_shown(moment)}: name a later one"
            )
        is_kept = moment >= minus_ms(now, int(self._retention_s * 1000)) or self._backups.is_held(moment)
        if not is_kept:
            raise TimestampTooOld(
                f"the moment {_shown(moment)} is {_ms_between(moment, now) / 1000:.0f} s ago, and rows "
                "deleted since may be gone: name one within "
                f"datacoord.retention_s={self._retention_s:g}, or raise that"
            )

    async def _of_dropped(self, record: DroppedCollection, moment: Timestamp) -> CollectionSnapshot:
        """Return the dropped collection as of the last moment that all of its vchannels have in files: rows
        that only the log held are gone with the drop."""
        collection = record.collection
        chosen, contents = await self._manifests.current(lambda: self._chosen_of(collection))
        complete = min(vchannel.checkpoint.ts for vchannel in chosen.vchannels)
        read_ts = min(complete, collection.dropped, moment or collection.dropped)
        if moment and read_ts < moment:
            raise TimestampTooOld(
                f"the files of {collection.name} are complete up to {read_ts}, not {moment}: later rows "
                "were in the log alone when it was dropped. Name no moment, or an earlier one"
            )
        segments = as_of(contents.of_segments(chosen.segments), read_ts)
        deltas = {v.vchannel: deletes_as_of(contents.of_vchannel(v), read_ts) for v in chosen.vchannels}
        return CollectionSnapshot(
            collection.collection_id,
            collection.schema,
            read_ts,
            segments,
            deltas,
            collection=collection,
            indexes=record.indexes,
        )

    def _chosen_of(self, collection: Collection) -> Chosen:
        """Return the vchannels and the segments with which the collection was dropped."""
        vchannels = self._vchannels(collection)
        segments = [
            info
            for vchannel in vchannels
            for info in self._state.segments_on(vchannel.vchannel)
            if _was_there(info, vchannel)
        ]
        return Chosen(segments, vchannels)

    def _vchannels(self, collection: Collection) -> list[Vchannel]:
        """Raises `CollectionNotFound` if one has no record any more."""
        found = [self._state.vchannel(name) for name in collection.vchannels]
        if any(vchannel is None for vchannel in found):
            raise _gone(collection)
        return [vchannel for vchannel in found if vchannel is not None]

    async def _check_kept(self, collection: Collection) -> None:
        """Raise `CollectionNotFound` if files of a dropped collection may be gone already.

        Called when their pin is persisted. A garbage collection whose moment is earlier than ``now`` has
        found them within the tolerance; a later one finds the pin.
        """
        now = await self._rootcoord.alloc_timestamp(1)
        for vchannel in self._vchannels(collection):
            if vchannel.dropped and physical_ms(now) >= expires_ms(vchannel.dropped, self._policy):
                raise _gone(collection)


def _ms_between(first: Timestamp, then: Timestamp) -> int:
    return physical_ms(then) - physical_ms(first)


def _shown(moment: Timestamp) -> str:
    return f"{format_moment(physical_ms(moment) * 1000)} ({moment})"


def _was_there(info: SegmentInfo, vchannel: Vchannel) -> bool:
    """Whether a segment was in force when its vchannel was dropped."""
    if info.state is SegmentState.DROPPED and info.dropped != vchannel.dropped:
        return False
    return bool(info.manifest)


def _gone(collection: Collection) -> CollectionNotFound:
    return CollectionNotFound(
        f"collection not found[collection={collection.name}]: it was dropped, and its files may be gone"
    )


def _definition(snapshot: CollectionSnapshot) -> Collection:
    if snapshot.collection is None:
        raise InvalidParameter(
            "the snapshot has no definition of the collection: it is one for the Spark connector"
        )
    return snapshot.collection
