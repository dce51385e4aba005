"""A query coordinator, and a query node that keeps to its interface's rules, for this package's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fakes import CID, DEFAULT, Calls, FakeData, FakeIndexCoord, FakeProxy, FakeRoot, collection

from elanus.api.querynode import (
    DamagedFile,
    LoadCollection,
    LoadSegment,
    QueryNodePulse,
    QueryNodeStatus,
    SealedSegmentsChange,
    SegmentServing,
    UnrecoveredSegment,
    WatchVchannel,
)
from elanus.api.recovery import LogHold, RecoveryInfo
from elanus.api.serving import EVERY_COLLECTION, MirrorNode
from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotLoaded, NotReady, SegmentNotFound, SegmentUnreadable, Unavailable
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.segments import IndexFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.meta.memory import MemoryMeta
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import OneNode
from elanus.querycoord.loader import QueryDependencies
from elanus.querycoord.state import LoadState

NODE = NodeID(2)


@dataclass
class Held:
    """A node's part of one collection."""

    request: LoadCollection
    vchannels: dict[str, WatchVchannel] = field(default_factory=dict)
    ready: dict[SegmentID, LoadSegment] = field(default_factory=dict)
    served: dict[SegmentID, LoadSegment] = field(default_factory=dict)
    version: int = 0
    partitions: tuple[PartitionID, ...] = ()


class FakeNode:
    """Keeps the order of things: what is announced must be ready, what is loaded must be followed."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.held: dict[CollectionID, Held] = {}
        self.tick = Timestamp(2**62)
        self.failures: dict[str, str] = {}
        self.damaged_rows: set[int] = set()
        self.growing: dict[SegmentID, str] = {}
        self.damaged_indexes: set[str] = set()
        self.positions: dict[str, int] = {}
        self.loses_answers = False
        self.unrecovered: dict[str, tuple[UnrecoveredSegment, ...]] = {}
        self.served_before_announce: list[set[SegmentID]] = []

    def _of(self, collection_id: CollectionID) -> Held:
        if collection_id not in self.held:
            raise CollectionNotLoaded(str(collection_id))
        return self.held[collection_id]

    async def load_collection(self, request: LoadCollection) -> None:
        self.calls.note("load_collection", request)
        self.held.setdefault(request.collection_id, Held(request))

    async def watch_vchannel(self, request: WatchVchannel) -> tuple[UnrecoveredSegment, ...]:
        self.calls.note("watch_vchannel", request)
        held = self._of(request.collection_id)
        if request.vchannel not in held.vchannels or request.again:
            held.vchannels[request.vchannel] = request
            damaged = (m for m in request.growing if m.segment_id in self.damaged_rows)
            found = (UnrecoveredSegment(m.segment_id, m.partition_id, "its file is damaged") for m in damaged)
            self.unrecovered[request.vchannel] = (*request.damaged, *found)
        return self.unrecovered[request.vchannel]

    async def give_up_vchannel(self, collection_id: CollectionID, vchannel: str) -> None:
        self.calls.note("give_up_vchannel", vchannel)
        held = self._of(collection_id)
        held.version = 0
        held.vchannels.pop(vchannel, None)
        kept = {**held.served, **held.ready}.items()
        held.ready, held.served = {s: r for s, r in kept if r.manifest.vchannel != vchannel}, {}
        self.failures.pop(vchannel, None)

    async def load_segment(self, request: LoadSegment) -> tuple[DamagedFile, ...]:
        self.calls.note("load_segment", request)
        if request.manifest.segment_id in self.damaged_rows:
            raise SegmentUnreadable(f"segment {request.manifest.segment_id}: its file is damaged")
        damaged = [file for file in request.indexes if file.path in self.damaged_indexes]
        request = replace(request, indexes=tuple(f for f in request.indexes if f not in damaged))
        held = self._of(request.collection_id)
        if request.manifest.vchannel not in held.vchannels:
            raise NotReady("its vchannel is not followed")
        held.ready[request.manifest.segment_id] = request
        return tuple(DamagedFile(file.path, "damaged") for file in damaged)

    async def announce(self, change: SealedSegmentsChange) -> None:
        self.calls.note("announce", change)
        held = self._of(change.collection_id)
        self.served_before_announce.append(set(held.served))
        if missing := [s for s in change.online if s not in held.ready | held.served]:
            raise SegmentNotFound(str(missing))
        if change.version > held.version:
            held.version = change.version
            held.served |= {s: held.ready.pop(s) for s in change.online if s in held.ready}
            for segment_id in change.offline:
                held.served.pop(segment_id, None)
            for segment_id in (*change.online, *change.offline):
                self.growing.pop(segment_id, None)
        if self.loses_answers:
            raise Unavailable("the answer was lost")

    async def forget_deletes(self, collection_id: CollectionID, vchannel: str, before: Timestamp) -> None:
        self.calls.note("forget_deletes", (collection_id, vchannel, before))

    async def set_partitions(self, collection_id: CollectionID, partition_ids: Sequence[PartitionID]) -> None:
        self.calls.note("set_partitions", (collection_id, tuple(partition_ids)))
        self._of(collection_id).partitions = tuple(partition_ids)

    async def release_collection(self, collection_id: CollectionID) -> None:
        self.calls.note("release_collection", collection_id)
        self.failures.clear()
        self.held.pop(collection_id, None)

    async def status(self, collection_id: CollectionID = CollectionID(0)) -> QueryNodeStatus:
        self.calls.note("status", collection_id)
        known = self.held.items()
        asked = {c: held for c, held in known if collection_id in (0, c)}
        growing = self.growing.items() if collection_id in (0, CID) else ()
        vchannels = [v for held in asked.values() for v in held.vchannels]
        return QueryNodeStatus(
            node_id=NODE,
            service_times=dict.fromkeys(vchannels, self.tick),
            segments=tuple(_serving(request) for held in asked.values() for request in held.served.values())
            + tuple(_growing(*found) for found in growing),
            growing_bytes=0,
            versions={c: held.version for c, held in asked.items()},
            failures={v: why for v, why in self.failures.items() if not collection_id or v in vchannels},
            positions={} if collection_id else self.positions,
            loaded={c: tuple(held.ready) for c, held in asked.items()},
        )

    async def pulse(self) -> QueryNodePulse:
        self.calls.note("pulse")
        versions = {c: held.version for c, held in self.held.items()}
        return QueryNodePulse(NODE, "", 0, (), versions, {}, dict(self.failures), self.positions)

    def restart(self) -> None:
        """It comes back empty."""
        self.held.clear()
        self.failures.clear()

    def served(self, collection_id: CollectionID = CID) -> set[int]:
        held = self.held.get(collection_id)
        return set(held.served) if held else set()

    def indexes_of(self, segment_id: int) -> list[IndexID]:
        return [f.index_id for f in self.held[CID].served[SegmentID(segment_id)].indexes]


class Indexes(FakeIndexCoord):
    """Forgets the file of an index that is to be built again."""

    async def rebuild(self, collection_id: CollectionID, path: str, reason: str) -> None:
        self.calls.note("rebuild", (collection_id, path))
        self.files = [file for file in self.files if file.path != path]
        self.changes.happened()


def _growing(segment_id: SegmentID, vchannel: str) -> SegmentServing:
    return SegmentServing(segment_id, CID, DEFAULT, vchannel, 10, False, 0, IndexID(0))


def _serving(request: LoadSegment) -> SegmentServing:
    manifest = request.manifest
    index_ids = tuple(f.index_id for f in request.indexes)
    return SegmentServing(
        segment_id=manifest.segment_id,
        collection_id=manifest.collection_id,
        partition_id=manifest.partition_id,
        vchannel=manifest.vchannel,
        rows=manifest.rows,
        sealed=True,
        memory_bytes=0,
        index_id=index_ids[0] if index_ids else IndexID(0),
        index_ids=index_ids,
    )


class HeldData(FakeData):
    """Notes from where on the log is needed."""

    async def hold_log(self, holds: tuple[LogHold, ...]) -> None:
        self.calls.note("hold_log", holds)


class FakeGrants:
    """Implements `ReadGrants`."""

    def __init__(self) -> None:
        self.granted: set[CollectionID] = set()
        self.calls = Calls()

    async def grant(self, collection_id: CollectionID) -> None:
        self.calls.note("grant", collection_id)
        self.granted.add(collection_id)

    async def withhold(self, collection_id: CollectionID) -> None:
        self.calls.note("withhold", collection_id)
        if collection_id == EVERY_COLLECTION:
            self.granted.clear()
        self.granted.discard(collection_id)


class MirrorNodes(Nodes[MirrorNode]):
    """The serving processes that are alive."""

    def __init__(self) -> None:
        self._nodes: dict[NodeID, MirrorNode] = {}
        self._listeners: list[Callable[[], None]] = []

    def join(self, number: int) -> tuple[FakeNode, FakeGrants]:
        node, grants = FakeNode(), FakeGrants()
        self._nodes[NodeID(number)] = MirrorNode(node, grants)  # type: ignore[arg-type]
        self._changed()
        return node, grants

    def leave(self, number: int) -> None:
        del self._nodes[NodeID(number)]
        self._changed()

    def _changed(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def __getitem__(self, node_id: NodeID) -> MirrorNode:
        return self._nodes[node_id]

    def __iter__(self) -> Iterator[NodeID]:
        return iter(tuple(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    async def refresh(self) -> None:
        """It is always up to date."""

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


class Bench:
    """``meta`` and the peers outlive the role; `start` makes a new instance of it."""

    def __init__(self, *collections: Collection) -> None:
        self.collections = collections or (collection(),)
        self.meta = MemoryMeta()
        self.root = FakeRoot(*self.collections)
        self.data = HeldData()
        self.index = Indexes()
        self.node = FakeNode()
        self.proxy = FakeProxy()
        self.proxies = {self.proxy.node_id: self.proxy}
        self.mirrors = MirrorNodes()

    async def start(self) -> QueryCoord:
        fleet = OneNode(NODE, self.node)  # type: ignore[arg-type]
        peers = QueryDependencies(
            self.root,  # type: ignore[arg-type]
            self.data,
            self.index,  # type: ignore[arg-type]
            fleet,
            self.proxies,  # type: ignore[arg-type]
            self.mirrors,
        )
        self.coord = QueryCoord(LoadState(self.meta), peers)
        await self.coord.start()
        return self.coord

    async def restart(self) -> QueryCoord:
        await self.coord.stop()
        return await self.start()

    def set_data(self, recovery: RecoveryInfo) -> None:
        self.data.set_recovery(recovery)

    def add_file(self, segment: SegmentManifest, index_id: int = 90, field_id: int = 102) -> None:
        """The segment's index has been built."""
        self.index.files.append(
            IndexFile(
                build_id=BuildID(1),
                index_id=IndexID(index_id),
                field_id=FieldID(field_id),
                segment_id=segment.segment_id,
                index_type="HNSW",
                metric_type="L2",
                params={},
                path=f"index/{segment.segment_id}",
                rows=segment.rows,
                size_bytes=1,
                has_raw_vectors=True,
            )
        )
        self.index.changes.happened()

    async def percentages(self, collection_id: CollectionID = CID) -> dict[PartitionID, int]:
        return next((s.percentages for s in await self.coord.loads() if s.collection_id == collection_id), {})
