"""The steps of a definition that follow the catalog's write, and their completion after an interruption.

Every step is repeatable. After a crash or an error the steps are repeated until they are complete: by the
next tidying, or by the next definition whose answer depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.snapshots import DroppedCollection
from elanus.core.catalog import Collection
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.messages import MsgKind
from elanus.core.segments import SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, physical_ms
from elanus.rootcoord.announcer import Announcer
from elanus.rootcoord.definitions import Definitions

_log = structlog.get_logger("rootcoord")


@dataclass(frozen=True, slots=True)
class OtherCoordinators:
    """The other coordinators, which follow what is defined here."""

    data: DataCoordApi
    index: IndexCoordApi
    query: QueryCoordApi


class Completion:
    """Keeps track of the collections whose definition was interrupted, and completes each by itself."""

    def __init__(self, definitions: Definitions, announcer: Announcer, others: OtherCoordinators) -> None:
        self._definitions = definitions
        self._catalog = definitions.catalog
        self._announcer = announcer
        self._others = others
        self._unfinished: dict[CollectionID, None] = {}
        """The collections that the catalog has changed without the others certainly knowing."""

    def start(self) -> None:
        """A predecessor may have left any collection of the catalog unfinished."""
        self._unfinished = dict.fromkeys(c.collection_id for c in self._catalog.everything())

    @contextmanager
    def or_later(self, collection_id: CollectionID) -> Iterator[None]:
        """If the block fails after the catalog has changed the collection, the next tidying completes the
        rest. The lock is held."""
        done = False
        try:
            yield
            done = True
        finally:
            if not done:
                self._unfinished[collection_id] = None

    async def tidy(self) -> None:
        """Complete what a crash or an error interrupted; forget dropped collections without data.

        An error of one collection keeps no other back. Raises the first one at the end.
        """
        failures: list[Exception] = []
        for collection_id in tuple(self._unfinished):
            try:
                async with self._definitions.lock:
                    await self._finish(collection_id)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        for collection in self._catalog.dropped():
            if not await self._others.data.holds_channels(collection.collection_id):
                async with self._definitions.lock:
                    if collection.collection_id in self._unfinished:  # proxies may still know the name
                        continue
                    await self._catalog.remove(collection)
                    self._announcer.unuse(collection.vchannels, self._catalog.vchannel_counts())
        if failures:
            raise failures[0]

    async def finish_drops(self, database: str, name: str, collection_id: CollectionID | None) -> None:
        """Called before a "collection not found" answer: it must then be true for every role. The lock is
        held.

        Only the drop of ``collection_id`` is finished if that one had the name, otherwise of all that had it.
        """
        had = self._catalog.dropped_as(database, name)
        meant = tuple(c for c in had if c.collection_id == collection_id)
        for collection in meant or had:
            await self._finish(collection.collection_id)

    async def finish_leaving(self, collection: Collection) -> None:
        """Called before a "partition not found" answer, as `finish_drops`."""
        if collection.leaving:
            await self._complete(collection.collection_id)

    async def settled(self, database: str, name: str) -> Collection:
        """Return the collection, after a change of its schema that was interrupted has been completed."""
        found = self._catalog.collection(database, name)
        if found.becoming is not None:
            await self.apply_schema(found.collection_id)
        return self._catalog.by_id(found.collection_id)

    async def _finish(self, collection_id: CollectionID) -> None:
        """Complete whatever was interrupted of the collection, if anything. The lock is held."""
        if collection_id in self._unfinished:
            await self._complete(collection_id)
            del self._unfinished[collection_id]

    async def _complete(self, collection_id: CollectionID) -> None:
        collection = self._catalog.record(collection_id)
        if collection is None:
            return
        if collection.dropped != NO_TIMESTAMP:
            self._announcer.check_taken(collection.vchannels)
            async with self._announcer.barrier(collection.vchannels) as ts:
                await self._announcer.announce(
                    MsgKind.DROP_COLLECTION, ts, collection_id, collection.vchannels
                )
            await self.release_dropped(collection)
            await self._definitions.invalidations.all_confirmed()
            return
        if collection.becoming is not None:
            await self.apply_schema(collection_id)
            collection = self._catalog.by_id(collection_id)
        await self._others.data.watch_channels(collection)
        await self.complete_clone(collection)
        segments = await self._others.data.segments(collection_id)
        held = {s.partition_id for s in segments if s.state is not SegmentState.DROPPED}
        leftover = held - {p.partition_id for p in collection.partitions}
        for partition_id in sorted(leftover.union(collection.leaving)):
            self._announcer.check_taken(collection.vchannels)
            _log.info("partition drop resumed", collection=collection_id, partition=partition_id)
            await self.end_partition(self._catalog.by_id(collection_id), partition_id)

    # the steps

    async def release_dropped(self, collection: Collection) -> None:
        """Release the memory first, then the definitions, then the data.

        Before all that the definition is kept: a repeated call finds no indexes any more.
        """
        collection_id = collection.collection_id
        indexes = await self._others.index.indexes(collection_id)
        await self._others.data.remember_dropped(DroppedCollection(collection, indexes))
        await self._others.query.release(collection_id, ())
        await self._others.index.drop_collection(collection_id)
        await self._others.data.drop_collection(collection_id)

    async def end_partition(self, kept: Collection, partition_id: PartitionID) -> None:
        """Make ``kept``, which lacks the partition, the collection, and notify every role concerned.

        The partition is ``leaving`` until that is done, so a successor completes it, even if no row of the
        partition is known yet: a proxy that does not know of the drop may still open a segment in it.
        """
        async with self._announcer.barrier(kept.vchannels) as ts:
            notifications = await self._definitions.begin_change(kept)
            await self._announcer.announce(
                MsgKind.DROP_PARTITION, ts, kept.collection_id, kept.vchannels, partition_id
            )
        await self._others.query.release(kept.collection_id, (partition_id,))
        await self._others.data.drop_partition(kept.collection_id, partition_id)
        await self._definitions.invalidations.confirmed(notifications)
        gone = tuple(p for p in kept.leaving if p != partition_id)
        await self._catalog.put(replace(kept, leaving=gone))

    async def apply_schema(self, collection_id: CollectionID) -> None:
        """Give every role the schema that the collection is to have."""
        found = self._catalog.by_id(collection_id)
        schema = found.readers_schema
        await self._others.index.drop_other_indexes(collection_id, tuple(schema.by_id))
        await self._others.data.change_schema(collection_id, schema)
        await self._others.query.reload(collection_id)
        stamp = self._definitions.oracle.allocate()
        await self._definitions.change(found.with_schema(schema, stamp))

    async def complete_clone(self, collection: Collection) -> Collection:
        """Define the indexes of a clone and release its source; returns the collection then. Does nothing for
        any other."""
        origin = collection.origin
        if origin is None or origin.is_done:
            return collection
        fields = collection.schema.by_id
        files = await self._others.data.borrowed_indexes(collection) if origin.indexes else ()
        for index in origin.indexes:
            if index.field_id in fields:
                await self._others.index.create_index(
                    collection.collection_id,
                    fields[index.field_id],
                    index.name,
                    index.params,
                    tuple(file for file in files if file.index_id == index.index_id),
                )
        took_ms = max(1, physical_ms(self._definitions.oracle.allocate()) - origin.began_ms)
        done = replace(collection, origin=replace(origin, indexes=(), is_done=True, took_ms=took_ms))
        await self._definitions.change(done)
        await self._others.data.unpin_snapshot(origin.pin_id)
        return done
