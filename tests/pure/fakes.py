"""Peers of a role, as its tests see them: they remember what they were asked, and fail as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fake_altering import FakeAltering
from fake_calls import Calls as Calls
from fake_calls import FakeLease as FakeLease
from fake_calls import FakeProxy as FakeProxy
from fake_querycoord import FakeQueryCoord as FakeQueryCoord

from elanus.api.datacoord import AllocationRequest, FlushOutcome, SegmentAllocation
from elanus.api.gc import IndexReferences
from elanus.api.imports import ImportRequest
from elanus.api.recovery import RecoveryInfo, VchannelRecovery
from elanus.api.rootcoord import TickReport
from elanus.api.snapshots import CloneSource, DroppedCollection, HeldSource
from elanus.core.catalog import Checkpoint, Collection, Database, Index, Partition
from elanus.core.change import Changes
from elanus.core.channels import pchannel_name, vchannel_name
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID, DatabaseID, FieldID, IndexID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.nodes import Nodes
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import BinlogFile, IndexFile, SegmentInfo, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, compose

CID = CollectionID(400)
DEFAULT = PartitionID(401)
OTHER = PartitionID(402)


async def settle(steps: int = 50) -> None:
    """Let everything run that can, without time passing."""
    for _ in range(steps):
        await asyncio.sleep(0)


async def inline(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Stands for `offload`: nothing here blocks."""
    return function(*args, **kwargs)


class FakeRoot:
    """Timestamps count up from ``now_ms``; ids from 1000. Collections are those it is given."""

    def __init__(self, *collections: Collection, now_ms: int = 1000) -> None:
        self.calls = Calls()
        self.collections = {c.collection_id: c for c in collections}
        self.now_ms = now_ms
        self.database_properties: dict[str, str] = {}
        self._logical = 0
        self._next_id = 1000
        self.indexes_dropped: list[CollectionID] = []
        self.shares: dict[str, float] = {}

    def stamp(self) -> Timestamp:
        self._logical += 1
        return compose(self.now_ms, self._logical)

    async def alloc_timestamp(self, count: int) -> Timestamp:
        self.calls.note("alloc_timestamp", count)
        return self.stamp()

    async def alloc_ids(self, count: int) -> int:
        self.calls.note("alloc_ids", count)
        first, self._next_id = self._next_id, self._next_id + count
        return first

    async def collection_by_id(self, collection_id: CollectionID) -> Collection:
        self.calls.note("collection_by_id", collection_id)
        if collection_id not in self.collections:
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return self.collections[collection_id]

    async def describe_collection(self, database: str, name: str) -> Collection:
        self.calls.note("describe_collection", (database, name))
        for found in self.collections.values():
            if name == found.name or name in found.aliases:
                return found
        raise CollectionNotFound(f"collection not found[database={database}][collection={name}]")

    async def list_databases(self) -> tuple[Database, ...]:
        self.calls.note("list_databases")
        return (Database(DatabaseID(1), "default", NO_TIMESTAMP, self.database_properties),)

    async def list_collections(self, database: str) -> tuple[Collection, ...]:
        self.calls.note("list_collections", database)
        return tuple(self.collections.values())

    async def update_channel_time_tick(self, report: TickReport) -> Mapping[str, float]:
        self.calls.note("update_channel_time_tick", report)
        return self.shares

    async def tick_now(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        self.calls.note("tick_now", (pchannels, at_least))

    async def fence_gone(self, pchannels: tuple[str, ...]) -> None:
        self.calls.note("fence_gone", pchannels)

    async def ticks(self) -> Mapping[str, Timestamp]:
        self.calls.note("ticks")
        return {p: self.stamp() for c in self.collections.values() for p in pchannels_of(c)}

    async def refused_channels(self) -> Mapping[str, str]:
        return {}

    async def tick_holders(self) -> Mapping[str, NodeID]:
        return {}


class FakeNodes(Nodes[Any]):
    """The nodes of a role, which come and go as the test says. ``registered`` shows at the next refresh."""

    def __init__(self, nodes: Mapping[NodeID, Any] | None = None) -> None:
        self.nodes = dict(nodes or {})
        self.registered: dict[NodeID, Any] = {}
        self.calls = Calls()
        self._listeners: list[Callable[[], None]] = []

    def __getitem__(self, node_id: NodeID) -> Any:
        return self.nodes[node_id]

    def __iter__(self) -> Iterator[NodeID]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    async def refresh(self) -> None:
        self.calls.note("refresh")
        if self.registered:
            self.nodes, self.registered = self.nodes | self.registered, {}
            self._notify()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def join(self, node_id: NodeID, node: Any) -> None:
        self.nodes[node_id] = node
        self._notify()

    def leave(self, node_id: NodeID) -> None:
        del self.nodes[node_id]
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


class FakeData:
    """A data coordinator: allocations that do not expire, and the segments it is given."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.changes = Changes(1)
        self.infos: dict[SegmentID, SegmentInfo] = {}
        self.borrowed: tuple[IndexFile, ...] = ()
        self.imports: dict[TaskID, ImportTask] = {}
        self.recoveries: dict[CollectionID, RecoveryInfo] = {}
        self.expires = Timestamp(2**62)
        self.next_segment = 7000
        self.rows_granted_max = 2**31
        self.dropped: set[CollectionID] = set()
        self.sizes_bytes: dict[CollectionID, int] = {}
        self.sources: dict[CollectionID, HeldSource] = {}
        """The sources of clones."""
        self.before_answer: Callable[[], None] = lambda: None
        self.when_flushed: Callable[[], object] = lambda: None

    async def stored_bytes(self, collection_ids: tuple[CollectionID, ...]) -> int:
        self.calls.note("stored_bytes", collection_ids)
        return sum(self.sizes_bytes.get(one, 0) for one in collection_ids or self.sizes_bytes)

    async def change_schema(self, collection_id: CollectionID, schema: CollectionSchema) -> None:
        self.calls.note("change_schema", (collection_id, schema))

    async def allocate(self, requests: tuple[AllocationRequest, ...]) -> tuple[SegmentAllocation, ...]:
        self.calls.note("allocate", requests)
        allocations = []
        for r in requests:
            if r.collection_id in self.dropped:
                raise CollectionNotFound(f"collection not found[collection={r.collection_id}]")
            self.next_segment += 1
            rows = min(r.rows, self.rows_granted_max)
            segment_id = SegmentID(self.next_segment)
            allocations.append(
                SegmentAllocation(r.collection_id, r.partition_id, r.vchannel, segment_id, rows, self.expires)
            )
        await asyncio.sleep(0)
        self.before_answer()
        return tuple(allocations)

    async def watch_channels(self, collection: Collection) -> None:
        self.calls.note("watch_channels", collection.collection_id)

    async def holds_channels(self, collection_id: CollectionID) -> bool:
        self.calls.note("holds_channels", collection_id)
        return collection_id in self.recoveries

    async def remember_dropped(self, record: DroppedCollection) -> None:
        self.calls.note("remember_dropped", record)

    async def drop_collection(self, collection_id: CollectionID) -> None:
        self.calls.note("drop_collection", collection_id)

    async def borrowed_indexes(self, clone: Collection) -> tuple[IndexFile, ...]:
        self.calls.note("borrowed_indexes", clone.collection_id)
        return self.borrowed

    async def hold_source(self, source: CloneSource) -> HeldSource:
        self.calls.note("hold_source", source)
        if source.collection_id not in self.sources:
            raise CollectionNotFound(f"collection not found[collection={source.collection_id}]")
        return self.sources[source.collection_id]

    async def unpin_snapshot(self, pin_id: int) -> None:
        self.calls.note("unpin_snapshot", pin_id)

    async def drop_partition(self, collection_id: CollectionID, partition_id: PartitionID) -> None:
        self.calls.note("drop_partition", (collection_id, partition_id))

    async def flush(self, collection_id: CollectionID) -> FlushOutcome:
        self.calls.note("flush", collection_id)
        self.when_flushed()
        return FlushOutcome((SegmentID(7),), (SegmentID(5), SegmentID(6)), compose(5000 + collection_id))

    async def flush_finished(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...], flush_ts: Timestamp
    ) -> bool:
        self.calls.note("flush_finished", (collection_id, segment_ids, flush_ts))
        return True

    async def segments_by_id(self, segment_ids: tuple[SegmentID, ...]) -> tuple[SegmentInfo, ...]:
        return tuple(i for i in self.infos.values() if i.segment_id in segment_ids)

    async def segments(self, collection_id: CollectionID) -> tuple[SegmentInfo, ...]:
        self.calls.note("segments", collection_id)
        return tuple(i for i in self.infos.values() if collection_id in (0, i.collection_id))

    async def recovery_info(
        self, collection_id: CollectionID, held: tuple[SegmentID, ...] = ()
    ) -> RecoveryInfo:
        self.calls.note("recovery_info", collection_id)
        if collection_id not in self.recoveries:
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        return self.recoveries[collection_id]

    async def start_import(self, request: ImportRequest) -> TaskID:
        self.calls.note("start_import", request)
        task_id = TaskID(len(self.imports) + 1)
        self.imports[task_id] = ImportTask(
            task_id,
            request.collection_id,
            request.collection,
            request.partition_id,
            request.partition,
            request.files,
            created_ms=1000,
        )
        return task_id

    async def import_task(self, task_id: TaskID) -> ImportTask:
        return self.imports[task_id]

    async def import_tasks(self, collection_id: CollectionID) -> tuple[ImportTask, ...]:
        return tuple(t for t in self.imports.values() if collection_id in (0, t.collection_id))

    async def commit_import(self, task_id: TaskID) -> None:
        self.calls.note("commit_import", task_id)

    async def cancel_import(self, task_id: TaskID) -> None:
        self.calls.note("cancel_import", task_id)

    async def wait_change(self, since: int, timeout_s: float) -> int:
        self.calls.check("wait_change")
        return await self.changes.wait_change(since, timeout_s)

    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        return await self.changes.changed_since(since)

    def set_recovery(self, recovery: RecoveryInfo) -> None:
        self.recoveries[recovery.collection_id] = recovery
        self.changes.happened()


class FakeIndexCoord(FakeAltering):
    def __init__(self) -> None:
        self.calls = Calls()
        self.changes = Changes(1)
        self.defined: list[Index] = []
        self.files: list[IndexFile] = []
        self.references = IndexReferences((), {}, 0)

    async def drop_collection(self, collection_id: CollectionID) -> None:
        self.calls.note("drop_collection", collection_id)

    async def drop_index(self, collection_id: CollectionID, index_id: IndexID) -> None:
        self.calls.note("drop_index", (collection_id, index_id))

    async def drop_other_indexes(self, collection_id: CollectionID, fields: tuple[FieldID, ...]) -> None:
        self.calls.note("drop_other_indexes", (collection_id, fields))

    async def create_index(
        self,
        collection_id: CollectionID,
        field: FieldSchema,
        name: str,
        params: Mapping[str, str],
        built: tuple[IndexFile, ...] = (),
    ) -> None:
        self.calls.note("create_index", (collection_id, field.name, name, dict(params)))
        self.calls.note("built", built)

    async def indexes(self, collection_id: CollectionID) -> tuple[Index, ...]:
        self.calls.note("indexes", collection_id)
        return tuple(i for i in self.defined if i.collection_id == collection_id)

    async def unbuilt(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...]
    ) -> tuple[SegmentID, ...]:
        self.calls.note("unbuilt", segment_ids)
        built = {file.segment_id for file in self.files}
        return tuple(s for s in segment_ids if s not in built) if self.defined else ()

    async def index_files(self, collection_id: CollectionID) -> tuple[IndexFile, ...]:
        self.calls.note("index_files", collection_id)
        return tuple(self.files)

    async def index_references(self) -> IndexReferences:
        self.calls.note("index_references")
        return self.references

    async def wait_change(self, since: int, timeout_s: float) -> int:
        self.calls.check("wait_change")
        return await self.changes.wait_change(since, timeout_s)

    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        return await self.changes.changed_since(since)


# values


def schema(
    name: str = "c",
    key: DataType = DataType.INT64,
    *,
    auto_id: bool = False,
    vectors: int = 1,
    numbered: bool = True,
    dynamic: bool = False,
) -> CollectionSchema:
    """``pk``, ``price`` and float vectors of 2 dimensions ``v0`` …"""
    fields = [
        FieldSchema(FieldID(0), "pk", key, is_primary=True, auto_id=auto_id, max_length=64),
        FieldSchema(FieldID(0), "price", DataType.DOUBLE),
        *(FieldSchema(FieldID(0), f"v{n}", DataType.FLOAT_VECTOR, dim=2) for n in range(vectors)),
    ]
    if dynamic:
        fields.append(FieldSchema(FieldID(0), "$meta", DataType.JSON, is_dynamic=True))
    if numbered:
        fields = [replace(f, field_id=FieldID(100 + n)) for n, f in enumerate(fields)]
    return CollectionSchema(name, tuple(fields), enable_dynamic=dynamic)


def collection(
    of: CollectionSchema | None = None,
    collection_id: CollectionID = CID,
    *,
    shards: int = 1,
    partitions: tuple[PartitionID, ...] = (DEFAULT,),
    pchannels: int = 16,
    level: ConsistencyLevel = ConsistencyLevel.BOUNDED,
    aliases: tuple[str, ...] = (),
) -> Collection:
    of = of or schema()
    names = ["_default", *(f"p{n}" for n in range(1, 99))]
    vchannels = tuple(vchannel_name(pchannel_name(n % pchannels), collection_id, n) for n in range(shards))
    return Collection(
        collection_id=collection_id,
        database_id=DatabaseID(1),
        name=of.name,
        schema=of,
        vchannels=vchannels,
        starts=dict.fromkeys(vchannels, checkpoint(1)),
        partitions=tuple(Partition(p, names[n], compose(1)) for n, p in enumerate(partitions)),
        consistency_level=level,
        created=compose(1),
        aliases=aliases,
    )


def pchannels_of(of: Collection) -> tuple[str, ...]:
    return tuple(v.rsplit("_", 1)[0] for v in of.vchannels)


def checkpoint(ms: int, position: int = 0) -> Checkpoint:
    return Checkpoint(compose(ms), position or ms, compose(ms), 1)


def binlog(path: str, rows: int = 10, ms: int = 5) -> BinlogFile:
    return BinlogFile(path, rows, rows * 100, compose(ms), compose(ms))


def manifest(
    segment_id: int, rows: int = 10, partition_id: PartitionID = DEFAULT, of: Collection | None = None
) -> SegmentManifest:
    of = of or collection()
    return SegmentManifest(
        SegmentID(segment_id),
        of.collection_id,
        partition_id,
        of.vchannels[0],
        insert_logs=(binlog(f"insert_log/{segment_id}", rows),),
        stats_logs=(f"stats_log/{segment_id}",),
        deletes_from=NO_TIMESTAMP,
    )


def recovery(
    of: Collection, *flushed: SegmentManifest, growing: tuple[SegmentManifest, ...] = (), ms: int = 10
) -> RecoveryInfo:
    vchannels = [
        VchannelRecovery(v, checkpoint(ms), (), tuple(g for g in growing if g.vchannel == v), excluded=())
        for v in of.vchannels
    ]
    return RecoveryInfo(of.collection_id, tuple(vchannels), flushed)


def index(index_id: int = 90, field_id: int = 102, name: str = "v0", **params: str) -> Index:
    sent = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "64"} | params
    return Index(IndexID(index_id), CID, FieldID(field_id), name, sent, compose(2))
