"""Clones: new collections with the definition and the rows of another one, without a copy of any file.

A clone succeeds with the catalog's write, as any creation does. The steps that follow are completed whatever
happens (`elanus.rootcoord.completion`): datacoord adds the clone's vchannels and segments in one change, the
indexes are defined, with the source's index files as their builds, and the pin that kept the source's files
is released.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.api.datacoord import DataCoordApi
from elanus.api.rootcoord import CloneRequest
from elanus.api.snapshots import HeldSource
from elanus.core.catalog import Collection, Origin
from elanus.core.errors import CollectionAlreadyExists, ElanusError
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import NO_TIMESTAMP, physical_ms
from elanus.rootcoord.announcer import Announcer
from elanus.rootcoord.catalog import renamed
from elanus.rootcoord.completion import Completion
from elanus.rootcoord.definitions import Definitions


class Clones:
    """Implements `elanus.api.rootcoord.CollectionCloneCalls`. ``completion`` completes each clone."""

    def __init__(
        self,
        definitions: Definitions,
        announcer: Announcer,
        data: DataCoordApi,
        completion: Completion,
    ) -> None:
        self._definitions = definitions
        self._catalog = definitions.catalog
        self._announcer = announcer
        self._data = data
        self._completion = completion

    async def clone_collection(self, request: CloneRequest) -> Collection:
        self._check_free(request)
        held = await self._data.hold_source(request.source)  # may wait for files: not under the lock
        async with self._definitions.lock:
            try:
                self._check_free(request)
                self._catalog.check_room(self._catalog.database(request.database))
            except ElanusError:
                await self._data.unpin_snapshot(held.pin.pin_id)  # else it ends with its lease
                raise
            await self._definitions.invalidations.all_confirmed()  # another may just have left the name
            collection = await self._create_clone(request, held)
            with self._completion.or_later(collection.collection_id):
                await self._data.watch_channels(collection)
                return await self._completion.complete_clone(collection)

    def _check_free(self, request: CloneRequest) -> None:
        database = self._catalog.database(request.database)
        if self._catalog.find(database, request.name) is not None:
            raise CollectionAlreadyExists(
                f"collection already exists[database={request.database}][collection={request.name}]: "
                "a clone is a new collection, give it another name"
            )

    async def _create_clone(self, request: CloneRequest, held: HeldSource) -> Collection:
        source = held.collection
        collection_id = CollectionID(await self._definitions.ids.allocate(1))
        vchannels = self._announcer.place_shards(
            collection_id, len(source.vchannels), self._catalog.vchannel_counts()
        )
        await self._announcer.use(vchannels)
        async with self._announcer.barrier(vchannels) as ts:
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
            with self._completion.or_later(collection_id):
                await self._catalog.put(clone)
        return clone
