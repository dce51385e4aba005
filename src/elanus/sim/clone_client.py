"""Clients that clone a collection, use the clones, drop them, and bring dropped ones back.

A clone is judged like any collection: it has the rows of its source as of the moment, and what is written
into it. `elanus.sim.truth` learns of it from the catalog, as everything else that reads the records does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from elanus.api.backups import ForeignRows, copied_files
from elanus.api.connector import SNAPSHOTS, SnapshotLease
from elanus.api.indexcoord import BuildState, IndexStatus
from elanus.api.rootcoord import CloneRequest
from elanus.api.snapshots import CloneSource, NewSnapshot
from elanus.core.catalog import Collection
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import CollectionNotLoaded
from elanus.core.ids import CollectionID
from elanus.core.names import DEFAULT_DATABASE
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms
from elanus.sim.workload import Client
from elanus.storage.snapshots import read_snapshot

T = TypeVar("T")

_PAST_MS_MAX = 3000
_LOOK_S = 0.3
_LOOKS_MAX = 20
_BACKUP_EVERY = 3
_LEASE_MS = 3_600_000
_USES = ("insert", "upsert", "delete", "flush", "compact", "query", "count", "search")


class CloneClient(Client):
    """``_clones``: the names of those that it has and that are loaded."""

    _clones: tuple[str, ...] = ()
    _snapshot: str = ""

    async def _clone(self, name: str) -> str:
        """Clone the collection as of now or of a moment in the past, and read the clone."""
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        moment = NO_TIMESTAMP
        if self._random.random() < 0.5:
            past = minus_ms(self._system.stamp(), self._random.randrange(1, _PAST_MS_MAX))
            moment = Timestamp(max(past, cached.view.created))
        source = CloneSource(cached.collection_id, moment=moment)
        if self._number % _BACKUP_EVERY == 0:
            source = await self._from_backup(source)
        return await self._made(f"{name}_{self._number}", source)

    async def _from_backup(self, source: CloneSource) -> CloneSource:
        """Back the collection up, and write the files of a restore, as `elanus backup` and `restore` do.

        Every other restore lacks an index file: that index is built again.
        """
        system, data = self._system, self._system.roles_of_clients.data
        await self._leased(lambda: data.hold_backup(source.collection_id, source.moment, _LEASE_MS))
        await self._indexed(source)  # what the log had only is in files now
        held = await self._leased(lambda: data.hold_backup(source.collection_id, source.moment, _LEASE_MS))
        snapshot = read_snapshot(system.store, held.path, SNAPSHOTS)
        rows = ForeignRows(snapshot, 0, f"{held.snapshot_id}", _LEASE_MS)
        here = await self._leased(lambda: data.receive_rows(rows))
        there = read_snapshot(system.store, here.path, SNAPSHOTS)
        files = list(zip(copied_files(snapshot), copied_files(there), strict=True))
        if there.index_files and self._number % 2:
            files.pop()
            system.trace.count("backups restored without an index file")
        for (path, _), (to, _) in files:
            system.store.put(to, system.store.get(path))
        system.trace.count("backups restored")
        if there.index_files:
            system.trace.count("backups restored with indexes")
        return CloneSource(await data.check_received(here.snapshot_id), here.snapshot_id)

    async def _indexed(self, source: CloneSource) -> None:
        """Wait until all flushed segments have their indexes, or for a while."""
        for _ in range(_LOOKS_MAX):
            statuses = await self._asked("look", partial(self._described, source.collection_id))
            if all(status.state is BuildState.FINISHED for status in statuses):
                return
            await asyncio.sleep(_LOOK_S)

    async def _described(self, collection_id: CollectionID) -> tuple[IndexStatus, ...]:
        return await self._system.roles_of_clients.index.describe(collection_id)

    async def _take_snapshot(self, name: str) -> str:
        """Take a snapshot, and drop the one before."""
        data = self._system.roles_of_clients.data
        before, self._snapshot = self._snapshot, f"s{self._number}"
        request = partial(self._of_collection, "snapshot", name)
        await request(lambda cid: data.create_snapshot(NewSnapshot(cid, self._snapshot)))
        if before:
            await request(lambda cid: data.drop_snapshot(cid, before))
        return f"snapshot {self._snapshot}"

    async def _restore(self, name: str) -> str:
        """Make a collection of the latest snapshot."""
        pins = await self._system.roles_of_clients.data.named_snapshots()
        pin = next((pin for pin in pins if pin.name == self._snapshot), None)
        if pin is None:
            return "no snapshot"
        return await self._made(f"{name}_{self._number}", CloneSource(pin.collection_id, pin.pin_id))

    async def _use_clone(self, name: str) -> str:
        """Write into a clone, or read it."""
        if not self._clones:
            return "no clone"
        kind = self._random.choice(_USES)
        target = self._random.choice(self._clones)
        return f"{kind} of {target}: {await getattr(self, f'_{kind}')(target)}"

    async def _drop_clone(self, name: str) -> str:
        if not self._clones:
            return "no clone"
        target, *rest = self._clones
        self._clones = tuple(rest)
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(target))
        root = self._system.roles_of_clients.root
        drop = partial(root.drop_collection, DEFAULT_DATABASE, target, cached.collection_id)
        await self._define("drop", drop)
        self._judge.dropped(cached.collection_id)
        return f"dropped {cached.collection_id}"

    async def _undrop(self, name: str) -> str:
        """Bring back the collection that was dropped last, under another name."""
        dropped = await self._system.roles_of_clients.data.dropped_collections()
        if not dropped:
            return "nothing was dropped"
        return await self._made(f"{name}_{self._number}", CloneSource(dropped[-1].collection_id))

    async def _made(self, target: str, source: CloneSource) -> str:
        root, query = self._system.roles_of_clients.root, self._system.roles_of_clients.query
        request = CloneRequest(DEFAULT_DATABASE, target, source, self._number)
        clone: Collection = await self._asked("clone", lambda: root.clone_collection(request))
        assert clone.origin is not None, "a clone knows its origin"
        if clone.collection_id not in self._system.records.indexed:
            await self._index(target)  # its source had none either: a proxy would refuse to load it
        await self._define("load", lambda: query.load(clone.collection_id, (), self._system.reading.replicas))
        self._clones = (*self._clones, target)
        self._system.trace.count("clones read")
        while True:
            try:
                counted = await self._count(target, ConsistencyLevel.STRONG)
                break
            except CollectionNotLoaded:  # not yet
                await asyncio.sleep(_LOOK_S)
        await self._query(target, ConsistencyLevel.STRONG)
        return f"clone {clone.collection_id} as of {clone.origin.moment}, {counted}"

    async def _leased(self, work: Callable[[], Awaitable[SnapshotLease]]) -> SnapshotLease:
        return await self._asked("lease", work)

    async def _asked(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        async def ask(_: object) -> T:
            return await work()

        return await self._system.ask(self._proxy(), what, ask)
