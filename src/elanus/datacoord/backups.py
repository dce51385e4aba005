"""Datacoord's part of backups and restores: it pins snapshots, and checks that no file is missing.

A restored collection is a clone (`elanus.datacoord.clones`) of a snapshot that another server took, with
files that were copied to new paths here. Until the clone is made the pin alone keeps them; if it never is,
they are garbage when the pin expires.
"""

from __future__ import annotations

from elanus.api.backups import ForeignRows, data_files, ids_for, relocated
from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.api.snapshots import CloneSource
from elanus.core.errors import InvalidParameter, SnapshotNotFound
from elanus.core.ids import CollectionID
from elanus.core.offload import Offload
from elanus.core.pins import Pin
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.datacoord.context import DataContext
from elanus.datacoord.named_snapshots import NamedSnapshots
from elanus.datacoord.pins import Pins, check_lease
from elanus.storage.paths import DELTA_LOG, INSERT_LOG, STATS_LOG
from elanus.storage.port import ObjectStore

_FIRST_IDS_MAX = 2**59
_IDS_PER_MS = 2**18


class Backups:
    """Implements `elanus.api.backups.BackupCalls`."""

    def __init__(
        self,
        context: DataContext,
        pins: Pins,
        named: NamedSnapshots,
        store: ObjectStore,
        offload: Offload,
    ) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._pins = pins
        self._named = named
        self._store = store
        self._offload = offload

    async def hold_backup(
        self, collection_id: CollectionID, moment: Timestamp, lease_ms: int
    ) -> SnapshotLease:
        check_lease(lease_ms)
        held = await self._named.hold_source(CloneSource(collection_id, moment=moment, lease_ms=lease_ms))
        return self._pins.lease(held.pin)

    async def receive_rows(self, rows: ForeignRows) -> SnapshotLease:
        check_lease(rows.lease_ms)
        now = await self._rootcoord.alloc_timestamp(1)
        snapshot = rows.snapshot
        if snapshot.collection is None:
            raise InvalidParameter("the snapshot has no definition of its collection: it is no backup")
        if snapshot.read_ts > now:
            raise InvalidParameter(
                f"the backup is of {snapshot.read_ts}, and this server's time is {now}: rows would be "
                "invisible until then. Set the clock of this machine"
            )
        for pin in self._state.pins():
            if pin.received == rows.key and not self._pins.is_over(pin):
                return self._pins.lease(pin)
        await self._pass(rows.last_id, now)
        first_id = await self._rootcoord.alloc_ids(ids_for(snapshot))
        here = relocated(snapshot, first_id)
        wanted = Pin(
            0,
            here.collection_id,
            "",
            int(self._clock.wall_ms()) + rows.lease_ms,
            read_ts=here.read_ts,
            received=rows.key,
        )
        return self._pins.lease(await self._pins.pin(here, wanted))

    async def check_received(self, snapshot_id: int, key_begins: str = "") -> CollectionID:
        pin = self._state.pin(snapshot_id)
        is_own = pin is not None and pin.received.startswith(key_begins)
        if pin is None or not pin.received or not is_own or self._pins.is_over(pin):
            raise SnapshotNotFound(
                f"snapshot not found[snapshot={snapshot_id}]: the restore's lease has ended, begin it again"
            )
        snapshot = await self._manifests.snapshot(pin.path)
        missing: list[str] = await self._offload(_missing, self._store, snapshot)
        if missing:
            raise InvalidParameter(
                f"{len(missing)} files of the restored collection are missing or have another size, such as "
                f"{missing[0]}: repeat the restore, it continues"
            )
        return pin.collection_id

    async def _pass(self, last_id: int, now: Timestamp) -> None:
        """Give out no id up to ``last_id`` any more."""
        most = _plausible_id(now)
        if not 0 <= last_id <= most:
            raise InvalidParameter(
                f"last_id={last_id}: a server has given out ids from 0 to {most} at most by now, so the "
                "backup was changed or damaged: restore another one"
            )
        following = await self._rootcoord.alloc_ids(1)
        if following < last_id:
            await self._rootcoord.alloc_ids(last_id - following)


def _plausible_id(now: Timestamp) -> int:
    """Return the largest id that a server may have given out by now.

    The bound grows faster than the ids of any server: one that a false ``last_id`` has moved up to it makes
    backups that others take. 64 bits are enough for it until the year 3000.
    """
    return _FIRST_IDS_MAX + physical_ms(now) * _IDS_PER_MS


def _missing(store: ObjectStore, snapshot: CollectionSnapshot) -> list[str]:
    """Return the paths that are not there with their size. Lists what the restore wrote, and nothing else."""
    found = {
        info.path: info.size_bytes
        for prefix in (INSERT_LOG, STATS_LOG, DELTA_LOG)
        for info in store.list(f"{prefix}/{snapshot.collection_id}")
    }
    return [
        path
        for path, size_bytes in data_files(snapshot)
        if path not in found or (size_bytes >= 0 and found[path] != size_bytes)
    ]
