"""The verbs of snapshots by name, of clones, and of dropped collections."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from elanus.api.rootcoord import CloneRequest, RootCoordApi
from elanus.api.snapshots import (
    CloneSource,
    NamedSnapshot,
    NewSnapshot,
    RestoreJob,
    SnapshotCalls,
    SnapshotView,
)
from elanus.core.catalog import Collection, Database
from elanus.core.errors import CollectionNotFound, DatabaseNotFound, JobNotFound, SnapshotNotFound
from elanus.core.ids import CollectionID
from elanus.core.names import check_collection_name, check_snapshot_name
from elanus.core.pins import NEVER, Pin, restored_place
from elanus.core.privileges import ANY
from elanus.core.rate_limits import Action
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.verbs.family import VerbFamily

_TIMEOUT_S = 120.0
"""Rows that only the log has are written to files first."""


class Cloning(VerbFamily):
    """Implements `elanus.proxy.api.snapshots.SnapshotVerbs`.

    Nothing here goes through the DdQueue: a definition behind a snapshot would wait for its files.
    """

    @property
    def _snapshots(self) -> SnapshotCalls:
        return self._proxy.coordinators.data

    @property
    def _roots(self) -> RootCoordApi:
        return self._proxy.coordinators.root

    # snapshots

    def create_snapshot(
        self, database: str, collection: str, name: str, description: str, timeout_s: float | None = None
    ) -> None:
        check_snapshot_name(name)
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        request = NewSnapshot(cached.collection_id, name, description)
        waits_s = _TIMEOUT_S if timeout_s is None else min(timeout_s, _TIMEOUT_S)
        self._proxy.call(self._snapshots.create_snapshot(request), waits_s)

    def drop_snapshot(self, database: str, collection: str, name: str) -> None:
        check_snapshot_name(name)
        self._proxy.admission.allow_in(Action.DDL, database)
        self._proxy.call(self._drop(database, collection, name))

    def list_snapshots(self, database: str, collection: str = "") -> Sequence[str]:
        return self._proxy.call(self._names(database, collection))

    def describe_snapshot(self, database: str, collection: str, name: str) -> SnapshotView:
        check_snapshot_name(name)
        return self._proxy.call(self._snapshot_view(database, collection, name))

    def pin_snapshot(self, database: str, collection: str, name: str, ttl_s: int) -> int:
        check_snapshot_name(name)
        return self._proxy.call(self._pinned(database, collection, name, ttl_s))

    def unpin_snapshot(self, pin_id: int) -> None:
        self._proxy.call(self._snapshots.unpin_snapshot(pin_id))

    def place_of_pin(self, pin_id: int) -> tuple[str, str] | None:
        async def place() -> tuple[str, str] | None:
            try:
                held = await self._snapshots.pinned_collection(pin_id)
            except SnapshotNotFound:
                return None
            if held.pin.received:
                return restored_place(held.pin.received)
            if held.collection is None or not (database := await self._name_of(held.collection)):
                return ANY, ""
            return database, held.collection.name

        return self._proxy.call(place())

    # clones

    def restore_snapshot(
        self, database: str, collection: str, name: str, target_database: str, target: str
    ) -> RestoreJob:
        check_snapshot_name(name)
        check_collection_name(target)
        self._proxy.admission.allow_in(Action.DDL, target_database)

        async def restore() -> RestoreJob:
            pin = await self._pin(database, collection, name)
            return await self._clone(target_database, target, CloneSource(pin.collection_id, pin.pin_id))

        return self._proxy.call(restore(), _TIMEOUT_S)

    def clone_collection(
        self,
        database: str,
        collection: str,
        target_database: str,
        target: str,
        moment: Timestamp = NO_TIMESTAMP,
    ) -> RestoreJob:
        check_collection_name(target)
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.READING, cached)
        self._proxy.admission.allow_in(Action.DDL, target_database)
        source = CloneSource(cached.collection_id, moment=moment)
        return self._proxy.call(self._clone(target_database, target, source), _TIMEOUT_S)

    def undrop_collection(self, database: str, collection: str, target: str = "") -> RestoreJob:
        check_collection_name(target or collection)
        self._proxy.admission.allow_in(Action.DDL, database)

        async def undrop() -> RestoreJob:
            database_id = (await self._database(database)).database_id
            for dropped in reversed(await self._snapshots.dropped_collections()):
                if (dropped.database_id, dropped.name) == (database_id, collection):
                    source = CloneSource(dropped.collection_id)
                    return await self._clone(database, target or collection, source)
            raise CollectionNotFound(
                f"collection not found[database={database}][collection={collection}]: none of that name was "
                "dropped within gc.drop_tolerance_s"
            )

        return self._proxy.call(undrop(), _TIMEOUT_S)

    def restore_jobs(self, database: str, collection: str = "") -> Sequence[RestoreJob]:
        async def jobs() -> list[RestoreJob]:
            found = await self._roots.list_collections(database)
            named = [c for c in found if not collection or c.name == collection]
            return [job_of(c, database) for c in named if c.origin is not None and c.origin.snapshot]

        return self._proxy.call(jobs())

    def restore_job(self, job_id: int) -> RestoreJob:
        async def job() -> RestoreJob:
            for found in await self._roots.list_collections(""):
                if found.origin is not None and found.origin.job_id == job_id:
                    return job_of(found, await self._name_of(found))
            raise JobNotFound(
                f"restore job not found[job={job_id}]: it never was, or its collection was dropped"
            )

        return self._proxy.call(job())

    # on the event loop

    async def _clone(self, database: str, target: str, source: CloneSource) -> RestoreJob:
        job_id = await self._roots.alloc_ids(1)
        clone = await self._roots.clone_collection(CloneRequest(database, target, source, job_id))
        return job_of(clone, database)

    async def _drop(self, database: str, collection: str, name: str) -> None:
        try:
            pin = await self._pin(database, collection, name)
        except SnapshotNotFound:
            return
        await self._snapshots.drop_snapshot(pin.collection_id, name)

    async def _snapshot_view(self, database: str, collection: str, name: str) -> SnapshotView:
        pin = await self._pin(database, collection, name)
        found = await self._snapshots.named_snapshot(pin.pin_id)
        return SnapshotView(
            pin.name,
            pin.description,
            found.collection,
            found.partitions,
            pin.read_ts,
            found.location,
            found.bytes,
        )

    async def _pinned(self, database: str, collection: str, name: str, ttl_s: int) -> int:
        pin = await self._pin(database, collection, name)
        expires_ms = int(time.time() * 1000) + ttl_s * 1000 if ttl_s else NEVER
        return (await self._snapshots.pin_snapshot(pin.pin_id, expires_ms)).pin_id

    async def _names(self, database: str, collection: str) -> list[str]:
        pins = await self._snapshots.named_snapshots()
        if collection:
            ids = await self._ids_of(database, collection, pins)
            return [pin.name for pin in pins if pin.collection_id in ids]
        known = await self._database(database)
        live = {c.collection_id for c in await self._roots.list_collections(database)}
        others = [s for pin in pins if pin.collection_id not in live and (s := await self._of_dropped(pin))]
        there = live | {s.pin.collection_id for s in others if s.database_id == known.database_id}
        return [pin.name for pin in pins if pin.collection_id in there]

    async def _pin(self, database: str, collection: str, name: str) -> Pin:
        """Raises `CollectionNotFound`, `SnapshotNotFound`."""
        pins = [pin for pin in await self._snapshots.named_snapshots() if pin.name == name]
        for collection_id in await self._ids_of(database, collection, pins):
            for pin in pins:
                if pin.collection_id == collection_id:
                    return pin
        raise SnapshotNotFound(f"collection {collection}: snapshot not found[snapshot={name}]")

    async def _ids_of(self, database: str, collection: str, pins: Sequence[Pin]) -> list[CollectionID]:
        """Return the ids of the collection with this name, and of those that were dropped under it and have
        snapshots, the latest first. Raises `CollectionNotFound` if there are none."""
        known = await self._database(database)
        live: Collection | None = None
        with contextlib.suppress(CollectionNotFound):
            live = await self._roots.describe_collection(database, collection)
        ids = [] if live is None else [live.collection_id]
        for pin in reversed(pins):
            if pin.collection_id not in ids:
                found = await self._of_dropped(pin)
                if found and (found.database_id, found.collection) == (known.database_id, collection):
                    ids.append(pin.collection_id)
        if not ids:
            raise CollectionNotFound(f"collection not found[database={database}][collection={collection}]")
        return ids

    async def _of_dropped(self, pin: Pin) -> NamedSnapshot | None:
        """Return a snapshot of a dropped collection; None for one of a collection that exists, or that is
        gone."""
        try:
            await self._roots.collection_by_id(pin.collection_id)
        except CollectionNotFound:
            try:
                return await self._snapshots.named_snapshot(pin.pin_id)
            except SnapshotNotFound:
                return None
        return None

    async def _database(self, name: str) -> Database:
        for database in await self._roots.list_databases():
            if database.name == name:
                return database
        raise DatabaseNotFound(f"database not found[database={name}]")

    async def _name_of(self, collection: Collection) -> str:
        databases = await self._roots.list_databases()
        return next((d.name for d in databases if d.database_id == collection.database_id), "")


def job_of(collection: Collection, database: str) -> RestoreJob:
    """Return how a clone came to be."""
    origin = collection.origin
    assert origin is not None, f"{collection.name} is no clone"
    return RestoreJob(
        origin.job_id,
        origin.snapshot,
        database,
        collection.name,
        origin.moment,
        origin.is_done,
        origin.began_ms,
        origin.took_ms,
    )
