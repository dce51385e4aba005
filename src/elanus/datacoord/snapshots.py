"""Snapshots for readers outside the system: a consistent view of a collection, whose files are kept.

A snapshot is as of a fresh timestamp, and contains every write acknowledged before it. Entries that are only
in the log are written to files first: each vchannel's data node is asked to move its checkpoint past the
timestamp. This seals nothing and makes no small segments; growing segments are read from the files that they
have by then.

The snapshot itself is an object (`elanus.api.connector.CollectionSnapshot`). A record in the metadata pins
it: as long as the record exists and has not expired, garbage collection keeps the files that the object names
(`Snapshots.pinned_files`). These may be index files too, for readers that search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.api.indexcoord import IndexCoordApi
from elanus.core.attempts import stamped
from elanus.core.catalog import Collection
from elanus.core.clones import as_of, folded_until
from elanus.core.errors import (
    CollectionNotFound,
    InvalidParameter,
    SnapshotNotFound,
    TimestampTooOld,
    Unavailable,
)
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.moments import format_moment
from elanus.core.pins import PIN_MS_MAX, Pin, expired, feed_start
from elanus.core.segments import SegmentState
from elanus.core.time_to_live import expired_until, time_to_live_s
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms, physical_ms
from elanus.datacoord.attempts import OWN
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.early_ticks import request_early_tick
from elanus.datacoord.manifest_reader import Chosen
from elanus.datacoord.vchannel_table import Vchannel
from elanus.storage.paths import segments_of
from elanus.storage.port import ObjectMissing

_SYNC_WAIT_S = 60.0
_LOOK_S = 0.05
_ORDER_AGAIN_S = 5.0
_EXPIRY_LOOK_S = 10.0
_log = structlog.get_logger("datacoord")


class Snapshots:
    """Takes, pins and releases snapshots. Implements `elanus.api.connector.SnapshotApi`.

    ``index``: knows which index files are in use. ``retention_s``: how long compaction leaves deletes in
    files of their own.
    """

    def __init__(
        self, context: DataContext, datanodes: DataNodes, index: IndexCoordApi, retention_s: float
    ) -> None:
        self._index = index
        self._retention_s = retention_s
        self._state = context.state
        self._manifests = context.manifests
        self._rootcoord = context.rootcoord
        self._attempts = context.attempts
        self._clock = context.clock
        self._lock = context.lock
        self._spawn = context.spawn
        self._moments = context.moments
        self._datanodes = datanodes
        self._is_expiring = False
        self._files: dict[int, frozenset[str]] = {}
        self._segments: dict[int, frozenset[SegmentID]] = {}
        self._ended = 0
        self._over: set[int] = set()
        """The pins that were found expired. They stay so when the clock is set back: files may be gone."""
        self._taking: list[frozenset[str]] = []
        """The files of snapshots whose pins are not persisted yet."""

    def start(self) -> None:
        """Start the expiry loop if there are pins; without pins there is nothing to do."""
        if self._state.pins() and not self._is_expiring:
            self._is_expiring = True
            self._spawn(self._expire())

    async def take_snapshot(
        self,
        collection_id: CollectionID,
        partition_ids: tuple[PartitionID, ...],
        lease_ms: int,
        with_indexes: bool = False,
    ) -> SnapshotLease:
        if not 0 < lease_ms <= PIN_MS_MAX:
            raise InvalidParameter(f"a lease of {lease_ms} ms: it lasts between 1 and {PIN_MS_MAX} ms")
        collection = await self._rootcoord.collection_by_id(collection_id)
        now = await self._rootcoord.alloc_timestamp(1)
        snapshot = await self.shown(collection, now, partition_ids)
        wanted = Pin(0, collection_id, "", self._clock.wall_ms() + lease_ms, read_ts=snapshot.read_ts)
        if with_indexes:
            pin = await self.pin_with_indexes(snapshot, wanted)
        else:
            pin = await self.pin(snapshot, wanted)
        return SnapshotLease(pin.pin_id, self._manifests.store_url, pin.path, pin.read_ts, pin.expires_ms)

    async def pin_with_indexes(self, snapshot: CollectionSnapshot, wanted: Pin) -> Pin:
        """As `pin`, with the segments' built indexes.

        Indexcoord may forget a build between its answer and the pin. So the files are kept first, and then
        only those that are still in use are named: a collection that did not find them in use any more looks
        at the kept ones afterwards.
        """
        collection_id = snapshot.collection_id
        with self._keeping(snapshot.files):
            indexes = snapshot.indexes or await self._index.indexes(collection_id)
            segments = {manifest.segment_id for manifest in snapshot.segments}
            found = [f for f in await self._index.index_files(collection_id) if f.segment_id in segments]
            with self._keeping(frozenset(file.path for file in found)):
                in_use = {file.path for file in await self._index.index_files(collection_id)}
                files = tuple(file for file in found if file.path in in_use)
                return await self.pin(replace(snapshot, indexes=indexes, index_files=files), wanted)

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
                return replace(snapshot, expired_until=expired)
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
        now = await self._rootcoord.alloc_timestamp(1)
        if since > now:
            raise InvalidParameter(f"changes since timestamp {since}, which is later than now, {now}")
        since = max(since, (await self._rootcoord.collection_by_id(collection_id)).created)
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
        if name:
            await self._keep_changes(collection_id, since, name, lease_ms)
        return await self.take_snapshot(collection_id, (), lease_ms)

    async def _keep_changes(
        self, collection_id: CollectionID, since: Timestamp, name: str, lease_ms: int
    ) -> None:
        """Persist the pin of a change feed, in the place of its former one."""
        if not 0 < lease_ms <= PIN_MS_MAX:
            raise InvalidParameter(f"a lease of {lease_ms} ms: it lasts between 1 and {PIN_MS_MAX} ms")
        new_id = await self._rootcoord.alloc_ids(1)
        async with self._lock:
            own = [p for p in self._state.pins() if (p.collection_id, p.feed) == (collection_id, name)]
            pin_id = own[0].pin_id if own else new_id
            expires_ms = self._clock.wall_ms() + lease_ms
            await self._state.put(pins=[Pin(pin_id, collection_id, "", expires_ms, read_ts=since, feed=name)])
        self.start()

    async def release_snapshot(self, snapshot_id: int) -> None:
        pin = self._state.pin(snapshot_id)
        if pin is not None:
            await self._end([pin])

    async def pinned_files(self) -> frozenset[str]:
        """Return all paths that must be kept: the snapshots, and the files that they name. Expired pins keep
        nothing."""
        while unread := [pin for pin in self._live() if pin.pin_id not in self._files]:
            for pin in unread:
                self._files[pin.pin_id] = await self._files_of(pin)
        kept = [self._files[pin.pin_id] for pin in self._live()]
        return frozenset[str]().union(*kept, *self._taking)

    def pinned_segments(self) -> frozenset[SegmentID]:
        """Return the segments of which live pins keep files, as far as `pinned_files` has read them."""
        of_pins = (self._segments.get(pin.pin_id, frozenset()) for pin in self._live())
        return frozenset[SegmentID]().union(*of_pins)

    def pins_ended(self) -> int:
        """Return how many pins have been released, each counted before its files are let go."""
        return self._ended

    async def _files_of(self, pin: Pin) -> frozenset[str]:
        if not pin.path:
            return frozenset()
        try:
            snapshot = await self._manifests.snapshot(pin.path)
        except ObjectMissing:
            return frozenset()  # its release was interrupted
        self._segments[pin.pin_id] = segments_of(snapshot.files)
        return snapshot.files | {pin.path}

    def _live(self) -> list[Pin]:
        found = expired(self._state.pins(), self._clock.wall_ms())
        self._over |= {pin.pin_id for pin in found if not pin.clones}
        return [pin for pin in self._state.pins() if pin.pin_id not in self._over]

    def is_over(self, pin: Pin) -> bool:
        """Return whether the pin has expired, so that its files may be gone."""
        return pin.pin_id not in {live.pin_id for live in self._live()}

    def _vchannels(self, collection_id: CollectionID) -> list[Vchannel]:
        vchannels = self._state.vchannels_of(collection_id)
        if not vchannels or any(v.dropping for v in vchannels):
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return vchannels

    async def _synced(self, collection_id: CollectionID, ts: Timestamp) -> None:
        """Wait until everything of the collection up to ``ts`` is in files. Raises `Unavailable`."""
        vchannels = [v.vchannel for v in self._vchannels(collection_id)]
        self._spawn(request_early_tick(self._rootcoord, vchannels, ts))
        deadline_s = self._clock.monotonic_s() + _SYNC_WAIT_S
        ordered_s: dict[str, float] = {}
        while True:
            behind = [v.vchannel for v in self._vchannels(collection_id) if v.checkpoint.ts < ts]
            if not behind:
                return
            now_s = self._clock.monotonic_s()
            if now_s > deadline_s:
                raise Unavailable(
                    f"rows of {', '.join(behind)} are still in the log alone after {_SYNC_WAIT_S:g} s: "
                    "is the pipeline process up? Retry"
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

    async def pin(self, snapshot: CollectionSnapshot, wanted: Pin) -> Pin:
        """Write the snapshot and persist its pin: ``wanted``, with the id and the path that it gets.

        Until then its files are kept by this object: a garbage collection whose moment is later than the
        snapshot's finds them in one place or the other. The snapshot itself is an open attempt meanwhile, so
        its object is kept as well.
        """
        with self._keeping(snapshot.files):
            pin_id = await self._attempts.open(1, OWN)
            try:
                name = stamped(pin_id, f"{snapshot.read_ts}")
                path = await self._manifests.put_snapshot(snapshot, name)
                pin = replace(wanted, pin_id=pin_id, path=path)
                async with self._lock:
                    self._check_name(pin)
                    await self._state.put(pins=[pin])
            finally:
                self._attempts.close(pin_id)
        self.start()
        return pin

    @contextmanager
    def _keeping(self, files: frozenset[str]) -> Iterator[None]:
        """Keep files whose pin is not persisted yet."""
        self._taking.append(files)
        try:
            yield
        finally:
            self._taking.remove(files)

    async def pin_again(self, pin: Pin, wanted: Pin) -> Pin:
        """Persist a further pin on the snapshot of another one, which exists and has not expired."""
        async with self._lock:
            pin_id = await self._rootcoord.alloc_ids(1)
            if self.is_over(pin):
                raise SnapshotNotFound(
                    f"snapshot not found[snapshot={pin.name or pin.pin_id}]: it was dropped, or has expired"
                )
            another = replace(wanted, pin_id=pin_id, path=pin.path, read_ts=pin.read_ts)
            await self._state.put(pins=[another])
        self.start()
        return another

    def _check_name(self, pin: Pin) -> None:
        for known in self._state.pins():
            if pin.name and (known.name, known.collection_id) == (pin.name, pin.collection_id):
                raise InvalidParameter(
                    f"snapshot name {pin.name} already exists: drop it, or use another name"
                )

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_LOOK_S)
            try:
                live = self._live()
                over = [pin for pin in self._state.pins() if pin.pin_id in self._over]
                held_for_clones = expired(live, self._clock.wall_ms())
                over += [pin for pin in held_for_clones if not await self._is_needed(pin)]
                await self._end(over)
            except Exception as error:  # noqa: BLE001 - the next look may succeed; until then files stay
                _log.info(
                    "expired snapshots not released; trying again", error=f"{type(error).__name__}: {error}"
                )

    async def _is_needed(self, pin: Pin) -> bool:
        """Whether a clone is still to be made of what the pin keeps: a crash interrupted it."""
        collections = await self._rootcoord.list_collections("")
        origins = (collection.origin for collection in collections)
        return any(o is not None and not o.is_done and o.pin_id == pin.pin_id for o in origins)

    async def _end(self, pins: list[Pin]) -> None:
        """Delete objects, then records: a record whose object is gone keeps nothing, and is found again.

        The object stays while another pin is on it. The lock is held: no such pin is made meanwhile.
        """
        if not pins:
            return
        self._ended += len(pins)
        async with self._lock:
            ending = {pin.pin_id for pin in pins}
            shared = {pin.path for pin in self._state.pins() if pin.pin_id not in ending}
            for path in {pin.path for pin in pins if pin.path} - shared:
                await self._manifests.forget_snapshot(path)
            await self._state.forget_pins(pins)
        for pin in pins:
            self._over.discard(pin.pin_id)
            self._files.pop(pin.pin_id, None)
            self._segments.pop(pin.pin_id, None)
