"""Pins: the files of which snapshots stay, and until when (`elanus.core.pins`).

A pin is a record in the metadata. As long as it exists and has not expired, garbage collection keeps the
files that its snapshot names (`Pins.pinned_files`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.core.attempts import stamped
from elanus.core.errors import InvalidParameter, SnapshotNotFound
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.path_digests import PathDigests
from elanus.core.pins import PIN_MS_MAX, Pin, expired
from elanus.core.timestamps import Timestamp
from elanus.datacoord.attempts import OWN
from elanus.datacoord.context import DataContext
from elanus.datacoord.snapshot_files import SnapshotFiles, segments_in
from elanus.meta.cancellation import uncancellable
from elanus.storage.port import ObjectMissing

_EXPIRY_LOOK_S = 10.0
_log = structlog.get_logger("datacoord")


def check_lease(lease_ms: int) -> None:
    """Raise `InvalidParameter` if no pin may last that long."""
    if not 0 < lease_ms <= PIN_MS_MAX:
        raise InvalidParameter(f"a lease of {lease_ms} ms: it lasts between 1 and {PIN_MS_MAX} ms")


class Pins:
    """Persists pins and ends them."""

    def __init__(self, context: DataContext) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._rootcoord = context.rootcoord
        self._attempts = context.attempts
        self._clock = context.clock
        self._lock = context.lock
        self._spawn = context.spawn
        self._is_expiring = False
        self._offload = context.offload
        self._files: dict[int, SnapshotFiles] = {}
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

    async def pin(self, snapshot: CollectionSnapshot, wanted: Pin) -> Pin:
        """Write the snapshot and persist its pin: ``wanted``, with the id and the path that it gets.

        Until then its files are kept by this object: a garbage collection whose moment is later than the
        snapshot's finds them in one place or the other. The snapshot itself is an open attempt meanwhile, so
        its object is kept as well.
        """
        with self.keeping(snapshot.files):
            pin_id = await self._attempts.open(1, OWN)
            try:
                name = stamped(pin_id, f"{snapshot.read_ts}")
                path = await self._manifests.put_snapshot(snapshot, name)
                pin = replace(wanted, pin_id=pin_id, path=path)
                async with self._lock:
                    self._check_name(pin)
                    await self._keep(pin)
            finally:
                self._attempts.close(pin_id)
        return pin

    @uncancellable
    async def _keep(self, pin: Pin) -> None:
        """Persist a pin and have it ended in time, even if the caller is cancelled between the two."""
        await self._state.put(pins=[pin])
        self.start()

    @contextmanager
    def keeping(self, files: frozenset[str]) -> Iterator[None]:
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
            await self._keep(another)
        return another

    def _check_name(self, pin: Pin) -> None:
        for known in self._state.pins():
            if pin.name and (known.name, known.collection_id) == (pin.name, pin.collection_id):
                raise InvalidParameter(
                    f"snapshot name {pin.name} already exists: drop it, or use another name"
                )

    async def keep_changes(
        self, collection_id: CollectionID, since: Timestamp, name: str, lease_ms: int
    ) -> None:
        """Persist the pin of a change feed, in the place of its former one."""
        check_lease(lease_ms)
        new_id = await self._rootcoord.alloc_ids(1)
        async with self._lock:
            own = [p for p in self._state.pins() if (p.collection_id, p.feed) == (collection_id, name)]
            pin_id = own[0].pin_id if own else new_id
            expires_ms = self._clock.wall_ms() + lease_ms
            await self._keep(Pin(pin_id, collection_id, "", expires_ms, read_ts=since, feed=name))

    async def release(self, pin_id: int) -> None:
        """End a pin. One that does not exist any more counts as released."""
        pin = self._state.pin(pin_id)
        if pin is not None:
            await self._end([pin])

    def lease(self, pin: Pin) -> SnapshotLease:
        """Return what a reader outside the system needs."""
        return SnapshotLease(pin.pin_id, self._manifests.store_url, pin.path, pin.read_ts, pin.expires_ms)

    # what they keep

    async def pinned_files(self) -> PathDigests:
        """Return all paths that must be kept: the snapshots, and the files that they name. Expired pins keep
        nothing."""
        while unread := [pin for pin in self._live() if pin.pin_id not in self._files]:
            for pin in unread:
                found = await self._files_of(pin)
                if self._state.pin(pin.pin_id) is not None:  # else it was released meanwhile
                    self._files[pin.pin_id] = found
        kept = PathDigests.union(self._files[pin.pin_id].paths for pin in self._live())
        for taken in tuple(self._taking):
            kept |= await self._offload(PathDigests.of, taken)
        return kept

    async def pinned_segments(self) -> frozenset[SegmentID]:
        """Return the segments of which live pins keep files, as far as `pinned_files` has read them."""
        live = (pin.pin_id for pin in self._live())
        kept = [self._files[pin_id] for pin_id in live if pin_id in self._files]
        found: frozenset[SegmentID] = await self._offload(segments_in, kept)
        return found

    def ended(self) -> int:
        """Return how many pins have been released, each counted before its files are let go."""
        return self._ended

    async def _files_of(self, pin: Pin) -> SnapshotFiles:
        if not pin.path:
            return SnapshotFiles.of(())
        try:
            return await self._manifests.kept_by(pin.path)
        except ObjectMissing:
            return SnapshotFiles.of(())  # its release was interrupted

    def _live(self) -> list[Pin]:
        found = expired(self._state.pins(), self._clock.wall_ms())
        self._over |= {pin.pin_id for pin in found if not pin.clones}
        return [pin for pin in self._state.pins() if pin.pin_id not in self._over]

    def is_over(self, pin: Pin) -> bool:
        """Return whether the pin has expired, so that its files may be gone."""
        return pin.pin_id not in {live.pin_id for live in self._live()}

    # their end

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
