"""The persisted state of querycoord: what is to be served, and where it is.

`elanus.querycoord.replica_records` has the records of the replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from elanus.core.catalog import Collection
from elanus.core.errors import InvalidParameter, PartitionNotFound
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP, ResourceGroup
from elanus.core.schema import CollectionSchema
from elanus.meta.port import TXN_OPERATIONS_MAX, Delete, MetaStore, Put
from elanus.querycoord.replica_records import ReplicaRecord, ReplicaRecords

_LOADS = "querycoord/load/"
_GROUPS = "querycoord/group/"


@dataclass(frozen=True, slots=True)
class Load:
    """The loaded part of a collection.

    ``whole``: every partition, including those created later; ``partition_ids`` is empty then. ``replicas``:
    how many groups of query nodes hold the collection. ``groups``: the resource group of each replica; empty
    if all are in the default group. ``fields``: those that are held; empty for all fields, with those
    that are added later.
    """

    collection_id: CollectionID
    whole: bool
    partition_ids: tuple[PartitionID, ...]
    replicas: int = 1
    groups: tuple[str, ...] = ()
    fields: tuple[FieldID, ...] = ()

    def left_out(self, schema: CollectionSchema) -> frozenset[FieldID]:
        """Return the fields that are not loaded."""
        return frozenset(schema.by_id).difference(self.fields) if self.fields else frozenset()

    @property
    def resource_groups(self) -> tuple[str, ...]:
        """The resource group of each replica, in the order of the replica numbers."""
        return self.groups or (DEFAULT_RESOURCE_GROUP,) * self.replicas

    def partitions_of(self, collection: Collection) -> tuple[PartitionID, ...]:
        """Return the existing partitions that are to be served."""
        return tuple(
            p.partition_id
            for p in collection.partitions
            if self.whole or p.partition_id in self.partition_ids
        )


def check_partitions(collection: Collection, partition_ids: tuple[PartitionID, ...]) -> None:
    """Raises `PartitionNotFound` for partitions that are not there, such as one dropped since a proxy looked.

    A load of nothing else would never be complete, and reads would find nothing.
    """
    known = {partition.partition_id for partition in collection.partitions}
    for partition_id in partition_ids:
        if partition_id not in known:
            raise PartitionNotFound(
                f"partition not found[partition={partition_id}]: collection {collection.name} has no such "
                "partition any more"
            )


def with_partitions(
    load: Load | None,
    collection_id: CollectionID,
    added: tuple[PartitionID, ...],
    replicas: int,
    groups: tuple[str, ...] = (),
    fields: tuple[FieldID, ...] = (),
) -> Load:
    """Return the load that also serves ``added`` (none: everything). An existing load keeps its groups.

    ``replicas``: 0 for as many as there are, or one. ``fields``: of a new load; see `check_same_fields`.

    Raises `InvalidParameter` if the collection is loaded with a different number of replicas.
    """
    if load is not None and replicas not in (0, load.replicas):
        raise InvalidParameter(
            f"can't change the replica number for loaded collection: it is loaded with {load.replicas}, "
            f"requested {replicas}: release the collection and load it again"
        )
    empty = Load(
        collection_id, whole=False, partition_ids=(), replicas=replicas or 1, groups=groups, fields=fields
    )
    kept = load or empty
    if not added or kept.whole:
        return replace(kept, whole=True, partition_ids=())
    return replace(kept, partition_ids=tuple(dict.fromkeys((*kept.partition_ids, *added))))


def check_same_fields(load: Load, collection: Collection, fields: tuple[FieldID, ...]) -> None:
    """Check that a collection is loaded with these fields; none: with all. Dropped ones do not count.

    Raises `InvalidParameter`.
    """
    present = collection.readers_schema.by_id
    kept = tuple(field for field in load.fields if field in present)
    if set(kept or present) != set(fields or present):
        raise InvalidParameter(
            "can't change the load field list for loaded collection: release it and load it again: "
            f"invalid parameter[expected={_shown(kept)}][actual={_shown(fields)}]"
        )


def _shown(fields: tuple[FieldID, ...]) -> str:
    return f"fields {', '.join(map(str, fields))}" if fields else "all fields"


def without_partitions(load: Load, collection: Collection, released: tuple[PartitionID, ...]) -> Load | None:
    """Return the load without ``released``; None if nothing is left of it."""
    kept = tuple(p for p in load.partitions_of(collection) if p not in released)
    return replace(load, whole=False, partition_ids=kept) if kept else None


class LoadState:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._replicas = ReplicaRecords(meta)

    async def all(self) -> list[Load]:
        return [msgspec.json.decode(stored.value, type=Load) for _, stored in await self._meta.list(_LOADS)]

    async def restore(self) -> list[tuple[Load, list[ReplicaRecord]]]:
        """Return the loads, each with its replicas in the order of their numbers.

        Call it once, before anything else: it also removes what interruptions left.
        """
        loads = await self.all()
        records = await self._replicas.restore()
        return [(load, records.get(load.collection_id, [])) for load in loads]

    async def put(self, load: Load) -> None:
        await self._meta.txn([Put(f"{_LOADS}{load.collection_id}", msgspec.json.encode(load))])

    async def replicas(self, collection_id: CollectionID) -> list[ReplicaRecord]:
        """Return the collection's replicas, in the order of their numbers."""
        return await self._replicas.of(collection_id)

    async def put_replica(self, record: ReplicaRecord) -> None:
        await self._replicas.put(record)

    async def remove_replica(self, record: ReplicaRecord) -> None:
        await self._replicas.remove(record)

    async def remove_replicas(self, collection_id: CollectionID) -> None:
        """Remove the replicas of a load that is to begin again."""
        await self._replicas.remove_all(collection_id)

    async def groups(self) -> list[ResourceGroup]:
        """Return the resource groups that clients created."""
        return [
            msgspec.json.decode(stored.value, type=ResourceGroup)
            for _, stored in await self._meta.list(_GROUPS)
        ]

    async def put_groups(self, groups: Iterable[ResourceGroup]) -> None:
        """Write the groups: all or none, if they fit in one transaction.

        More than that change at once only when nodes are lost or join. Each node is in one group, so these
        changes can be written in several transactions.
        """
        puts = [Put(f"{_GROUPS}{group.name}", msgspec.json.encode(group)) for group in groups]
        for begin in range(0, len(puts), TXN_OPERATIONS_MAX):
            await self._meta.txn(puts[begin : begin + TXN_OPERATIONS_MAX])

    async def remove_group(self, name: str) -> None:
        await self._meta.txn([Delete(f"{_GROUPS}{name}")])

    async def remove(self, collection_id: CollectionID) -> None:
        """Remove the load with its replicas."""
        await self._replicas.remove_all(collection_id, Delete(f"{_LOADS}{collection_id}"))
