"""The definitions of dropped collections, kept while their files exist, so that a drop can be undone.

A definition is forgotten when the tolerance of garbage collection has passed since the drop: from then on the
files may be deleted at any moment.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from elanus.api.snapshots import DroppedCollection
from elanus.core.errors import RecordTooLarge
from elanus.core.gc import GcPolicy, expires_ms
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import Delete, MetaStore, Put

_DROPPED = "datacoord/dropped_collection/"
_REMOVED_AT_ONCE = 50
_log = structlog.get_logger("datacoord")


class DroppedCollections:
    """In the order of the drops. Read from the metadata when they are first needed."""

    def __init__(self, meta: MetaStore, policy: GcPolicy) -> None:
        self._meta = meta
        self._policy = policy
        self._known: dict[CollectionID, DroppedCollection] = {}
        self._reading = asyncio.Lock()
        self._is_read = False

    async def _read(self) -> None:
        async with self._reading:
            if not self._is_read:
                await self._read_all()
                self._is_read = True

    async def _read_all(self) -> None:
        stored = await self._meta.list(_DROPPED)
        found = [msgspec.json.decode(value.value, type=DroppedCollection) for _, value in stored]
        found.sort(key=lambda record: record.collection.dropped)
        self._known = {record.collection.collection_id: record for record in found}

    async def remember(self, record: DroppedCollection) -> None:
        """Keep a definition, once; forget those whose files may be gone, a few at a time.

        One that does not fit a record with its indexes is not kept: the drop must go on.
        """
        key = record.collection.collection_id
        await self._read()
        if key in self._known or not self._policy.drop_tolerance_s:
            return
        try:
            await self._put(record)
        except RecordTooLarge as error:
            _log.warning("this drop cannot be undone", collection=key, error=error.message)
        await self._forget_old(record.collection.dropped)

    async def all(self, now: Timestamp) -> tuple[DroppedCollection, ...]:
        """Return those whose files still exist at ``now``."""
        await self._read()
        return tuple(record for record in self._known.values() if self._is_kept(record, now))

    async def find(self, collection_id: CollectionID, now: Timestamp) -> DroppedCollection | None:
        await self._read()
        record = self._known.get(collection_id)
        return record if record is not None and self._is_kept(record, now) else None

    def _is_kept(self, record: DroppedCollection, now: Timestamp) -> bool:
        return physical_ms(now) < expires_ms(record.collection.dropped, self._policy)

    @uncancellable
    async def _put(self, record: DroppedCollection) -> None:
        key = record.collection.collection_id
        await self._meta.txn([Put(f"{_DROPPED}{key}", msgspec.json.encode(record))])
        self._known[key] = record

    @uncancellable
    async def _forget_old(self, now: Timestamp) -> None:
        old: list[CollectionID] = []
        for key, record in self._known.items():
            if self._is_kept(record, now) or len(old) == _REMOVED_AT_ONCE:
                break
            old.append(key)
        if old:
            await self._meta.txn([Delete(f"{_DROPPED}{key}") for key in old])
            for key in old:
                del self._known[key]
