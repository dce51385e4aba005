"""What querycoord keeps: which collections and partitions are to be served."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from elanus.core.catalog import Collection
from elanus.core.ids import CollectionID, PartitionID
from elanus.meta.port import Delete, MetaStore, Put

_LOADS = "querycoord/load/"


@dataclass(frozen=True, slots=True)
class Load:
    """``whole``: every partition, those created later included; ``partition_ids`` is empty then."""

    collection_id: CollectionID
    whole: bool
    partition_ids: tuple[PartitionID, ...]

    def partitions_of(self, collection: Collection) -> tuple[PartitionID, ...]:
        """The partitions to serve, of those that exist."""
        return tuple(
            p.partition_id
            for p in collection.partitions
            if self.whole or p.partition_id in self.partition_ids
        )


def with_partitions(load: Load | None, collection_id: CollectionID, added: tuple[PartitionID, ...]) -> Load:
    """The load that also serves ``added`` (none: everything)."""
    if not added or (load is not None and load.whole):
        return Load(collection_id, whole=True, partition_ids=())
    known = load.partition_ids if load is not None else ()
    return Load(collection_id, whole=False, partition_ids=tuple(dict.fromkeys((*known, *added))))


def without_partitions(load: Load, collection: Collection, released: tuple[PartitionID, ...]) -> Load | None:
    """The load less ``released`` (none: less everything); None when nothing is left of it."""
    if not released:
        return None
    kept = tuple(p for p in load.partitions_of(collection) if p not in released)
    return Load(load.collection_id, whole=False, partition_ids=kept) if kept else None


class LoadState:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta

    async def all(self) -> list[Load]:
        return [msgspec.json.decode(stored.value, type=Load) for _, stored in await self._meta.list(_LOADS)]

    async def put(self, load: Load) -> None:
        await self._meta.txn([Put(f"{_LOADS}{load.collection_id}", msgspec.json.encode(load))])

    async def remove(self, collection_id: CollectionID) -> None:
        await self._meta.txn([Delete(f"{_LOADS}{collection_id}")])
