"""Clones: new collections with the definition and the rows of another one, without a copy of any file.

A clone succeeds with the catalog's write, as any creation does. The steps that follow are repeatable, and are
repeated after a restart or an error until it is complete: datacoord adds the clone's vchannels and segments
in one change, the indexes are defined, with the source's index files as their builds, and the pin that kept
the source's files is released.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.api.rootcoord import CloneRequest
from elanus.api.snapshots import HeldSource
from elanus.core.catalog import Collection, Origin
from elanus.core.errors import CollectionAlreadyExists, ElanusError
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import NO_TIMESTAMP, physical_ms
from elanus.rootcoord.catalog import renamed
from elanus.rootcoord.lifecycle import Lifecycle


class Clones(Lifecycle):
    async def clone_collection(self, request: CloneRequest) -> Collection:
        self._check_free(request)
        held = await self._peers.data.hold_source(request.source)  # may wait for files: not under the lock
        async with self._ddl_lock:
            try:
                self._check_free(request)
                self._check_room(self._catalog.database(request.database))
            except ElanusError:
                await self._peers.data.unpin_snapshot(held.pin.pin_id)  # else it ends with its lease
                raise
            await self._invalidations.all_confirmed()  # another may just have left the name
            collection = await self._create_clone(request, held)
            with self._or_later():
                await self._peers.data.watch_channels(collection)
                return await self._complete_clone(collection)

    def _check_free(self, request: CloneRequest) -> None:
        database = self._catalog.database(request.database)
        if self._catalog.find(database, request.name) is not None:
            raise CollectionAlreadyExists(
                f"collection already exists[database={request.database}][collection={request.name}]: "
                "a clone is a new collection, give it another name"
            )

    async def _create_clone(self, request: CloneRequest, held: HeldSource) -> Collection:
        source = held.collection
        collection_id = CollectionID(await self._ids.allocate(1))
        vchannels = self._announcer.place_shards(
            collection_id, len(source.vchannels), self._catalog.vchannel_counts()
        )
        await self._announcer.use(vchannels)
        async with self._announcer.barrier() as ts:
            starts = await self._announcer.announce(MsgKind.CREATE_COLLECTION, ts, collection_id, vchannels)
            origin = Origin(
                request.job_id,
                held.snapshot,
                source.name,
                source.collection_id,
                held.pin.path,
                held.pin.pin_id,
                held.pin.read_ts,
                held.indexes,
                began_ms=physical_ms(ts),
            )
            database = self._catalog.database(request.database)
            clone = replace(
                renamed(source, request.name, DatabaseID(database.database_id)),
                collection_id=collection_id,
                vchannels=vchannels,
                starts=starts,
                created=ts,
                aliases=(),
                dropped=NO_TIMESTAMP,
                leaving=(),
                truncated=source.truncated if source.truncated <= origin.moment else NO_TIMESTAMP,
                origin=origin,
            )
            with self._or_later():
                await self._catalog.put(clone)
        return clone

    async def _complete_clone(self, collection: Collection) -> Collection:
        origin = collection.origin
        if origin is None or origin.is_done:
            return collection
        fields = collection.schema.by_id
        files = await self._peers.data.borrowed_indexes(collection) if origin.indexes else ()
        for index in origin.indexes:
            if index.field_id in fields:
                await self._peers.index.create_index(
                    collection.collection_id,
                    fields[index.field_id],
                    index.name,
                    index.params,
                    tuple(file for file in files if file.index_id == index.index_id),
                )
        took_ms = max(1, physical_ms(self._oracle.allocate()) - origin.began_ms)
        done = replace(collection, origin=replace(origin, indexes=(), is_done=True, took_ms=took_ms))
        await self._change(done)
        await self._peers.data.unpin_snapshot(origin.pin_id)
        return done
