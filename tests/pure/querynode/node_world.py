"""The rest of the system around one query node, in a few lines: who writes the log, who flushes it.

`World` appends messages and ticks to a log in memory, turns finished stretches of it into binlogs and
delta logs as the pipeline does, and sends the node a query coordinator's orders. Next to it grows a
`Model` of the rows. The node's answers must be the model's at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from insert_log_files import read_vectors, write_insert_log
from node_rows import VECTOR, Model, Row, schema_of
from range_packs import read_packs
from virtual_time import run_virtually

from elanus.api.querynode import (
    FieldIndexSpec,
    LoadCollection,
    LoadSegment,
    NodeQuery,
    NodeSearch,
    SealedSegmentsChange,
    WatchVchannel,
)
from elanus.core.added_fields import widened
from elanus.core.catalog import Checkpoint
from elanus.core.ids import (
    BuildID,
    CollectionID,
    IndexID,
    NodeID,
    PartitionID,
    SegmentID,
)
from elanus.core.messages import (
    DdlMessage,
    DeleteMessage,
    InsertMessage,
    Message,
    MsgKind,
    TimeTick,
    UpsertMessage,
)
from elanus.core.offload import Pools
from elanus.core.packs import ORIGIN
from elanus.core.schema import DataType
from elanus.core.segments import DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.expr import BoundFilter, compile_filter
from elanus.index import build, resolve_index
from elanus.log.codec import decode, encode
from elanus.log.memory import MemoryLog
from elanus.querynode.node import QueryNode
from elanus.querynode.snapshot import Snapshot
from elanus.storage.binlog import SegmentKey, insert_log_schema, read_columns, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.local import LocalStore
from elanus.text import with_computed_columns

COLLECTION = CollectionID(7)
PCHANNEL = "by-dev-rootcoord-dml_0"
VCHANNEL = f"{PCHANNEL}_7v0"
NODE = NodeID(3)
T = TypeVar("T")


@dataclass
class Segment:
    """A segment as datacoord would know it."""

    manifest: SegmentManifest
    last_ts: int = 0
    flushed: bool = False
    dropped: bool = False
    indexes: tuple[IndexFile, ...] = ()


class World:
    """One collection with one vchannel. ``partitions``: those to load (empty: the whole collection)."""

    def __init__(
        self,
        directory: Path,
        *,
        key_type: DataType = DataType.INT64,
        index: dict[str, str] | None = None,
        partitions: tuple[int, ...] = (),
    ) -> None:
        self.schema = schema_of(key_type)
        self.index_params = index or {"index_type": "FLAT", "metric_type": "L2"}
        self.partitions = partitions
        self.model = Model()
        self.log = MemoryLog()
        self.store = LocalStore(directory / "store")
        self.scratch = directory / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.checkpoint = ORIGIN
        self.delta_logs: tuple[DeltaLog, ...] = ()
        self.moments: dict[Timestamp, Timestamp] = {}
        self.segments: dict[SegmentID, Segment] = {}
        self.leaving: tuple[PartitionID, ...] = ()
        self.open: dict[int, SegmentID] = {}
        self.now = 100
        self.tick_ts = 0
        self.served = 0
        self.version = 0
        self.node = self._new_node()
        self.filters: dict[str, BoundFilter] = {}
        self._numbers = iter(range(1000, 10**9))

    def _new_node(self) -> QueryNode:
        return QueryNode(NODE, self.log, self.store, Pools.one(inline), scratch=self.scratch)

    def key(self, number: int) -> int | str:
        return number if self.schema.primary_field.data_type is DataType.INT64 else f"key-{number:04d}"

    def filter(self, text: str) -> BoundFilter:
        if text not in self.filters:
            self.filters[text] = compile_filter(text, self.schema)
        return self.filters[text]

    # writing

    def stamp(self) -> int:
        self.now += 1
        return self.now

    async def append(self, *messages: Message) -> None:
        await self.log.append(PCHANNEL, [encode(message) for message in messages])

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        vectors = np.array([row.vector for row in rows], dtype=np.float32).reshape(-1)
        field = self.schema.field("vector").arrow_type
        return pa.record_batch(
            [
                pa.array([row.key for row in rows], self.schema.primary_field.arrow_type),
                pa.array([row.value for row in rows], pa.int64()),
                pa.array([row.tag for row in rows], pa.string()),
                pa.FixedSizeListArray.from_arrays(pa.array(vectors), type=field),
                pa.array([f'{{"half":{row.value // 2}}}' for row in rows], pa.string()),
            ],
            schema=self.schema.arrow_schema,
        )

    async def insert(
        self,
        pairs: Sequence[tuple[int, int]],
        partition: int = 1,
        *,
        upsert: bool = False,
        replaced: Sequence[int] = (),
        deletes_in: int = 0,
        ts: int = 0,
    ) -> int:
        """Write (key, value) rows; returns their timestamp. ``ts`` given: no model row (it is to be late).

        ``replaced``: what an upsert deletes; by default the keys of its rows. ``deletes_in``: of which
        partition, 0: of all.
        """
        stamp = ts or self.stamp()
        rows = [Row(self.key(key), value, partition, stamp) for key, value in pairs]
        segment_id = self.open.setdefault(partition, SegmentID(next(self._numbers)))
        if segment_id not in self.segments:
            manifest = SegmentManifest(
                segment_id, COLLECTION, PartitionID(partition), VCHANNEL, (), (), Timestamp(0)
            )
            self.segments[segment_id] = Segment(manifest)
        start = (Timestamp(stamp), VCHANNEL, COLLECTION, PartitionID(partition), segment_id, 0)
        batch = self.batch(rows)
        gone = [self.key(key) for key in replaced] or [row.key for row in rows]
        if upsert:
            other = pa.array(gone, batch.schema.field(0).type) if replaced else None
            await self.append(UpsertMessage(*start, batch, other, PartitionID(deletes_in)))
        else:
            await self.append(InsertMessage(*start, batch))
        if not ts:
            self.segments[segment_id].last_ts = stamp
            if upsert:
                self.model.delete(gone, stamp, deletes_in)
            self.model.insert(rows)
        return stamp

    async def delete(self, keys: Sequence[int], partition: int = 0, *, ts: int = 0) -> int:
        stamp = ts or self.stamp()
        named = [self.key(key) for key in keys]
        primary_keys = pa.array(named, self.schema.primary_field.arrow_type)
        await self.append(
            DeleteMessage(Timestamp(stamp), VCHANNEL, COLLECTION, PartitionID(partition), primary_keys)
        )
        if not ts:
            self.model.delete(named, stamp, partition)
        return stamp

    async def ddl(self, kind: MsgKind, partition: int = 0) -> None:
        stamp = Timestamp(self.stamp())
        await self.append(DdlMessage(kind, stamp, VCHANNEL, COLLECTION, PartitionID(partition)))

    async def tick(self, behind: int = 0) -> int:
        """Write a tick ``behind`` timestamps before now, and let the node take it in."""
        ts = self.now - behind
        if ts > self.tick_ts:
            self.tick_ts = ts
            await self.append(TimeTick(Timestamp(ts), 1))
        await breathe()
        return self.tick_ts

    async def stamp_and_tick(self) -> int:
        self.stamp()
        return await self.tick()

    # what the pipeline and datacoord do

    def seal(self) -> None:
        self.open.clear()

    def flush(self) -> list[SegmentID]:
        """Everything up to the last tick into files; sealed segments are finished. Returns those."""
        packs = list(
            read_packs(self.log.read_range, PCHANNEL, self.checkpoint, self.log.end(PCHANNEL), [VCHANNEL])
        )
        if not packs:
            return []
        messages = [decode(entry) for pack in packs for entry in pack.entries]
        for segment_id in {m.segment_id for m in messages if isinstance(m, InsertMessage | UpsertMessage)}:
            self._write_rows(segment_id, messages)
        self._write_deletes(messages)
        self.checkpoint = packs[-1].seek
        done = [
            s
            for s, info in self.segments.items()
            if s not in self.open.values() and not info.flushed and info.last_ts <= self.checkpoint.ts
        ]
        for segment_id in done:
            self.segments[segment_id].flushed = True
        return done

    def _write_rows(self, segment_id: SegmentID, messages: Sequence[Message]) -> None:
        segment = self.segments[segment_id]
        manifest = segment.manifest
        key = SegmentKey(COLLECTION, manifest.partition_id, segment_id, VCHANNEL)
        file_schema = insert_log_schema(self.schema, key)
        batches = [
            with_system_columns(
                with_computed_columns(self.schema, widened(m.rows, self.schema)),
                m.row_id_start,
                m.ts,
                file_schema,
            )
            for m in messages
            if isinstance(m, InsertMessage | UpsertMessage) and m.segment_id == segment_id
        ]
        path = f"insert_log/{segment_id}/{next(self._numbers)}.parquet"
        file = write_insert_log(self.store, path, self.schema, key, batches, self.scratch)
        segment.manifest = replace(manifest, insert_logs=(*manifest.insert_logs, file))

    def _write_deletes(self, messages: Sequence[Message]) -> None:
        schema = delta_log_schema(self.schema.primary_field, COLLECTION, VCHANNEL)
        batches = []
        for message in messages:
            if isinstance(message, DeleteMessage):
                batches.append(delete_rows(message.primary_keys, message.ts, message.partition_id, schema))
            elif isinstance(message, UpsertMessage):
                gone = message.deleted_keys("id")
                batches.append(delete_rows(gone, message.ts, message.deletes_in, schema))
        if batches:
            path = f"delta_log/{next(self._numbers)}.parquet"
            with delta_log_writer(self.store, path, schema, self.scratch) as writer:
                for batch in batches:
                    writer.write(batch)
                self.delta_logs = (*self.delta_logs, DeltaLog(VCHANNEL, writer.finish()))

    def build_index(self, segment_id: SegmentID) -> None:
        manifest = self.segments[segment_id].manifest
        field = self.schema.field("vector")
        spec = resolve_index(self.index_params, field.data_type, field.dim)
        index = build(spec, read_vectors(self.store, manifest, "vector"), threads=1)
        path, local = f"index_files/{next(self._numbers)}", self.scratch / f"index-{next(self._numbers)}"
        index.save(local)
        size_bytes = local.stat().st_size
        self.store.put_file(path, local)
        file = IndexFile(
            build_id=BuildID(next(self._numbers)),
            index_id=IndexID(5),
            field_id=VECTOR,
            segment_id=segment_id,
            index_type=str(spec.index_type),
            metric_type=str(spec.metric_type),
            params=spec.flattened(),
            path=path,
            rows=manifest.rows,
            size_bytes=size_bytes,
            has_raw_vectors=index.has_raw_vectors,
        )
        self.segments[segment_id].indexes = (file,)

    def compact(self, inputs: Sequence[SegmentID]) -> SegmentID:
        """One segment of the inputs' rows that are not deleted up to the checkpoint."""
        manifest = self.segments[inputs[0]].manifest
        segment_id = SegmentID(next(self._numbers))
        key = SegmentKey(COLLECTION, manifest.partition_id, segment_id, VCHANNEL)
        names = insert_log_schema(self.schema, key)
        table = pa.concat_tables(
            [read_columns(self.store, self.segments[s].manifest, names.names) for s in inputs]
        ).sort_by("Timestamp")
        dead = {(row.key, row.born) for row in self.model.rows if row.died and row.died <= self.checkpoint.ts}
        pairs = zip(table["id"].to_pylist(), table["Timestamp"].to_pylist(), strict=True)
        table = table.filter(pa.array([pair not in dead for pair in pairs], pa.bool_()))
        batches = [b.cast(names) for b in table.combine_chunks().to_batches()]
        path = f"insert_log/{segment_id}/{next(self._numbers)}.parquet"
        files = ()
        if table.num_rows:
            files = (write_insert_log(self.store, path, self.schema, key, batches, self.scratch),)
        self.segments[segment_id] = Segment(
            replace(
                manifest,
                segment_id=segment_id,
                insert_logs=files,
                deletes_from=self.checkpoint.ts,
                parents=tuple(inputs),
            ),
            flushed=True,
        )
        for s in inputs:
            self.segments[s].dropped = True
        return segment_id

    # what the query coordinator does

    def load_request(self, partitions: tuple[int, ...] | None = None) -> LoadCollection:
        chosen = self.partitions if partitions is None else partitions
        return LoadCollection(
            COLLECTION,
            self.schema,
            tuple(map(PartitionID, chosen)),
            (FieldIndexSpec(VECTOR, IndexID(5), self.index_params),),
            (VCHANNEL,),
            whole_collection=not chosen,
        )

    def watch_request(self) -> WatchVchannel:
        live = {s: info for s, info in self.segments.items() if not info.dropped}
        return WatchVchannel(
            COLLECTION,
            VCHANNEL,
            self.checkpoint,
            tuple(i.manifest for i in live.values() if not i.flushed and i.manifest.rows),
            tuple(s for s, i in self.segments.items() if i.flushed),
            self.delta_logs,
            leaving=self.leaving,
            moments=self.moments,
        )

    def segment_request(self, segment_id: SegmentID, checkpoint: Checkpoint | None = None) -> LoadSegment:
        info = self.segments[segment_id]
        return LoadSegment(
            COLLECTION,
            info.manifest,
            info.indexes,
            self.delta_logs,
            checkpoint or self.checkpoint,
            self.moments,
        )

    def finished(self) -> list[SegmentID]:
        """Segments to serve as sealed."""
        return [
            s
            for s, info in self.segments.items()
            if info.flushed
            and not info.dropped
            and (not self.partitions or info.manifest.partition_id in self.partitions)
        ]

    async def start(self) -> None:
        """Load the collection on a node that holds nothing."""
        await self.node.start()
        await self.node.load_collection(self.load_request())
        await self.node.watch_vchannel(self.watch_request())
        for segment_id in self.finished():
            await self.node.load_segment(self.segment_request(segment_id))
        await self.announce(self.finished())
        await self.tick()

    async def announce(
        self, online: Sequence[SegmentID] = (), offline: Sequence[SegmentID] = (), *, visible_from: int = 0
    ) -> None:
        self.version += 1
        moments = dict.fromkeys(online, Timestamp(visible_from)) if visible_from else {}
        change = SealedSegmentsChange(
            COLLECTION, self.version, tuple(online), tuple(offline), visible_from=moments
        )
        await self.node.announce(change)

    async def hand_off(
        self, segment_ids: Sequence[SegmentID], offline: Sequence[SegmentID] = (), *, visible_from: int = 0
    ) -> None:
        for segment_id in segment_ids:
            await self.node.load_segment(self.segment_request(segment_id))
        await self.announce(segment_ids, offline, visible_from=visible_from)

    async def restart(self) -> None:
        """The node dies, and a new one comes up."""
        await self.node.stop()
        self.node, self.version, self.served = self._new_node(), 0, 0
        await self.start()

    # reading

    def node_query(self, text: str = "", ts: int = 0, **changes: Any) -> NodeQuery:
        request = NodeQuery(
            COLLECTION, (), self.filter(text), None, ("value", "vector"), None, Timestamp(ts or self.tick_ts)
        )
        return replace(request, **changes)

    def node_search(self, value: float, k: int, text: str = "", ts: int = 0, **changes: Any) -> NodeSearch:
        queries = np.array([[value, -value]], dtype=np.float32)
        request = NodeSearch(
            COLLECTION,
            (),
            VECTOR,
            queries,
            k,
            "",
            {},
            self.filter(text),
            ("value",),
            Timestamp(ts or self.tick_ts),
        )
        return replace(request, **changes)

    def keys(self, text: str = "", ts: int = 0, **changes: Any) -> list[Any]:
        """The keys that a query finds."""
        found: list[Any] = self.node.query(self.node_query(text, ts, **changes))["id"].to_pylist()
        return found

    def count(self, text: str = "", ts: int = 0, **changes: Any) -> int:
        return self.node.count(self.node_query(text, ts, **changes))

    def nearest(self, value: float, k: int, text: str = "", ts: int = 0, **changes: Any) -> list[Any]:
        """The keys that a search finds, best first."""
        found: list[Any] = self.node.search(self.node_search(value, k, text, ts, **changes)).ids.tolist()
        return found

    @property
    def snapshot(self) -> Snapshot:
        return self.node._collections[COLLECTION].snapshot


def scenario(**options: Any) -> Callable[[Callable[[World], Any]], Callable[[Path], None]]:
    """Makes a test of a coroutine over a started `World`, in virtual time; its node's invariants are checked
    at the end."""

    def decorate(test: Callable[[World], Any]) -> Callable[[Path], None]:
        async def play(directory: Path) -> None:
            world = World(directory, **options)
            await world.start()
            await test(world)
            world.node.invariants()
            await world.node.stop()

        def run(tmp_path: Path) -> None:
            run_virtually(play(tmp_path))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


async def breathe() -> None:
    """Let everything that can go on do so."""
    for _ in range(30):
        await asyncio.sleep(0)


async def inline(function: Callable[..., T], /, *args: Any) -> T:
    """Offloads nothing, but lets others run in between, as a thread would."""
    await asyncio.sleep(0)
    result = function(*args)
    await asyncio.sleep(0)
    return result
