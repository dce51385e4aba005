"""Snapshots for readers outside the system: one consistent moment of a collection, whose files stay.

A snapshot is as of a fresh timestamp, and holds every write acknowledged before it. What lies in the log
alone is brought into files first: each vchannel's data node is asked to move its checkpoint past the
timestamp. That seals nothing and makes no small segments; growing segments are read from the files they
have by then.

The snapshot itself is an object (`elanus.rpc.connector.CollectionSnapshot`). A record in the metadata pins
it: as long as that is there and not over, garbage collection keeps what the object names
(`Snapshots.pinned_files`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from elanus.core.attempts import stamped
from elanus.core.errors import CollectionNotFound, InvalidParameter, Unavailable
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.pins import PIN_MS_MAX, Pin, expired
from elanus.core.segments import SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.world import Clock
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.state import DataState, Vchannel
from elanus.rpc.connector import CollectionSnapshot, SnapshotLease
from elanus.rpc.rootcoord import RootCoordApi
from elanus.storage.port import ObjectMissing

_SYNC_WAIT_S = 60.0
_LOOK_S = 0.05
_ORDER_AGAIN_S = 5.0
_EXPIRY_LOOK_S = 10.0
_log = structlog.get_logger("datacoord")


class ChannelSync(Protocol):
    """Has vchannels brought up to a moment; what the role does with its data node."""

    async def hurry(self, vchannels: list[Vchannel], at_least: Timestamp) -> None:
        """Have a tick written soon."""
        ...

    async def order(self, vchannel: str, at_least: Timestamp) -> bool:
        """Order a range of the vchannel if its data node's tick has passed the moment; whether it has."""
        ...


class Snapshots:
    """``lock`` is the role's; ``spawn`` runs something until the role stops."""

    def __init__(
        self,
        state: DataState,
        manifests: Manifests,
        rootcoord: RootCoordApi,
        clock: Clock,
        lock: asyncio.Lock,
        sync: ChannelSync,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._state = state
        self._manifests = manifests
        self._rootcoord = rootcoord
        self._clock = clock
        self._lock = lock
        self._sync = sync
        self._spawn = spawn
        self._is_expiring = False
        self._files: dict[int, frozenset[str]] = {}

    def start(self) -> None:
        """Let pins end; without any there is nothing to do."""
        if self._state.pins() and not self._is_expiring:
            self._is_expiring = True
            self._spawn(self._expire())

    async def take(
        self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...], lease_ms: int
    ) -> SnapshotLease:
        """See `elanus.rpc.connector.SnapshotApi.take_snapshot`."""
        if not 0 < lease_ms <= PIN_MS_MAX:
            raise InvalidParameter(f"a lease of {lease_ms} ms: it lasts between 1 and {PIN_MS_MAX} ms")
        read_ts = await self._rootcoord.alloc_timestamp(1)
        while True:
            await self._synced(collection_id, read_ts)
            async with self._lock:
                snapshot = await self._collect(collection_id, partition_ids, read_ts)
                folded = max((m.deletes_from for m in snapshot.segments), default=NO_TIMESTAMP)
                if folded <= read_ts:
                    return await self._pin(snapshot, lease_ms)
            # Files written meanwhile have deletes up to there applied: only from then on are they right.
            read_ts = folded

    async def release(self, pin_id: int) -> None:
        async with self._lock:
            await self._end([pin for pin in self._state.pins() if pin.pin_id == pin_id])

    async def pinned_files(self) -> frozenset[str]:
        """All paths that must stay: of the snapshots, and of what they name. Expired pins hold nothing."""
        pins = self._live()
        for pin in pins:
            if pin.pin_id not in self._files:
                self._files[pin.pin_id] = await self._files_of(pin)
        return frozenset[str]().union(*(self._files[pin.pin_id] for pin in pins))

    async def _files_of(self, pin: Pin) -> frozenset[str]:
        try:
            snapshot = await self._manifests.snapshot(pin.path)
        except ObjectMissing:
            return frozenset()  # its release was cut off
        return snapshot.files | {pin.path}

    def _live(self) -> list[Pin]:
        over = set(expired(self._state.pins(), self._clock.wall_ms()))
        return [pin for pin in self._state.pins() if pin not in over]

    def _vchannels(self, collection_id: CollectionID) -> list[Vchannel]:
        vchannels = self._state.vchannels_of(collection_id)
        if not vchannels or any(v.dropping for v in vchannels):
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return vchannels

    async def _synced(self, collection_id: CollectionID, ts: Timestamp) -> None:
        """Until everything of the collection up to ``ts`` is in files. Raises `Unavailable`."""
        await self._sync.hurry(self._vchannels(collection_id), ts)
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
                if now_s - ordered_s.get(vchannel, float("-inf")) > _ORDER_AGAIN_S and await self._sync.order(
                    vchannel, ts
                ):
                    ordered_s[vchannel] = now_s
            await asyncio.sleep(_LOOK_S)

    async def _collect(
        self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...], read_ts: Timestamp
    ) -> CollectionSnapshot:
        """Under the lock: one moment of the metadata."""
        vchannels = self._vchannels(collection_id)
        infos = [
            s
            for s in self._state.segments_of(collection_id)
            if s.state is not SegmentState.DROPPED
            and s.manifest
            and (not partition_ids or s.partition_id in partition_ids)
        ]
        deltas = {v.vchannel: await self._manifests.of_vchannel(v) for v in vchannels}
        return CollectionSnapshot(
            collection_id, vchannels[0].schema, read_ts, await self._manifests.of_segments(infos), deltas
        )

    async def _pin(self, snapshot: CollectionSnapshot, lease_ms: int) -> SnapshotLease:
        pin_id = await self._rootcoord.alloc_ids(1)
        name = stamped(pin_id, f"{snapshot.read_ts}")
        path = await self._manifests.put_snapshot(snapshot, name)
        pin = Pin(pin_id, snapshot.collection_id, path, self._clock.wall_ms() + lease_ms)
        await self._state.put(pins=[pin])
        self.start()
        return SnapshotLease(pin_id, self._manifests.store_url, path, snapshot.read_ts, pin.expires_ms)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_LOOK_S)
            try:
                async with self._lock:
                    await self._end(expired(self._state.pins(), self._clock.wall_ms()))
            except Exception as error:  # noqa: BLE001 - the next look may succeed; until then files stay
                _log.info("pins not ended", error=f"{type(error).__name__}: {error}")

    async def _end(self, pins: tuple[Pin, ...] | list[Pin]) -> None:
        """The object first: a record whose object is gone holds nothing, and is found again."""
        for pin in pins:
            await self._manifests.forget_snapshot(pin.path)
        await self._state.forget_pins(pins)
        for pin in pins:
            self._files.pop(pin.pin_id, None)
