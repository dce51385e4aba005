"""An index coordinator over memory, with index nodes that build when the test says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fakes import (
    CID,
    Calls,
    FakeData,
    FakeLease,
    FakeProxy,
    FakeRoot,
    collection,
    manifest,
    recovery,
    settle,
)
from virtual_time import VirtualClock

from elanus.api.indexnode import BuildIndex
from elanus.core.catalog import Collection
from elanus.core.ids import CollectionID, IndexID, NodeID, PartitionID, SegmentID
from elanus.core.schema import FieldSchema
from elanus.core.segments import IndexFile, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import compose
from elanus.indexcoord.builds import IndexPolicy
from elanus.indexcoord.coord import IndexCoord
from elanus.indexcoord.state import Build, IndexState
from elanus.meta.memory import MemoryMeta
from elanus.storage.objects import open_store

ROWS_MIN = 100
HNSW = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "64"}


class FakeNode:
    """Builds at once, or when the test says so, or fails. Its files are put on the object store."""

    def __init__(self, bench: Bench, address: str) -> None:
        self.bench = bench
        self.address = address
        self.calls = Calls()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.at_once = 0
        self.at_once_max = 0

    async def build_index(self, request: BuildIndex) -> IndexFile:
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            self.calls.note("build_index", (request.manifest.segment_id, request.version))
            await self.go_on.wait()
            self.calls.check("build_index")
        finally:
            self.at_once -= 1
        path = f"index_files/{request.build_id}/{request.version}"
        self.bench.store.put(path, b"index")
        return IndexFile(
            build_id=request.build_id,
            index_id=request.index_id,
            field_id=request.field.field_id,
            segment_id=request.manifest.segment_id,
            index_type="HNSW",
            metric_type="L2",
            params=dict(request.params),
            path=path,
            rows=request.manifest.rows,
            size_bytes=5,
            has_raw_vectors=True,
        )


class Bench:
    """``meta``, the object store and the peers outlive the role; `start` makes a new instance of it."""

    def __init__(self, directory: Path, *collections: Collection, builds_max: int = 1) -> None:
        self.collections = collections or (collection(),)
        self.meta = MemoryMeta()
        self.store = open_store(directory.as_uri())
        self.root = FakeRoot(*self.collections)
        self.data = FakeData()
        self.proxy = FakeProxy()
        self.lease = FakeLease()
        self.nodes: dict[str, FakeNode] = {}
        self.builds_max = builds_max
        for known in self.collections:
            self.data.set_recovery(recovery(known))

    async def start(self) -> IndexCoord:
        self.state = IndexState(self.meta)
        self.coord = IndexCoord(
            self.lease,
            self.state,
            VirtualClock(),
            self.root,  # type: ignore[arg-type]
            self.data,  # type: ignore[arg-type]
            {NodeID(1): self.proxy},
            lambda address: self.nodes[address],
            IndexPolicy(ROWS_MIN),
        )
        await self.coord.start()
        return self.coord

    async def restart(self) -> IndexCoord:
        await self.coord.stop()
        return await self.start()

    async def node(self, number: int = 1, address: str = "") -> FakeNode:
        """An index node says that it is there."""
        address = address or f"unix:/node-{number}"
        if address not in self.nodes:
            self.nodes[address] = FakeNode(self, address)
        await self.coord.register_indexnode(NodeID(number), address, self.builds_max)
        await settle()
        return self.nodes[address]

    @property
    def field(self) -> FieldSchema:
        return self.collections[0].schema.vector_fields[0]

    async def create(self, name: str = "v0", field: FieldSchema | None = None, **params: str) -> IndexID:
        field = field or self.field
        await self.coord.create_index(CID, field, name, HNSW | params)
        await settle()
        return next(i.index_id for i in await self.coord.indexes(CID) if i.field_id == field.field_id)

    async def flushed(self, *manifests: SegmentManifest) -> None:
        """These are the collection's flushed segments now."""
        self.data.infos = {m.segment_id: info(m) for m in manifests}
        self.data.set_recovery(recovery(self.collections[0], *manifests))
        await settle()

    def builds(self) -> dict[SegmentID, Build]:
        return {b.segment_id: b for b in self.state.builds()}

    async def files(self) -> set[str]:
        """Paths that are handed out to be loaded."""
        return {f.path for f in await self.coord.index_files(CID)}

    def stored(self) -> set[str]:
        return {o.path for o in self.store.list("")}


def segment(number: int, rows: int = ROWS_MIN) -> SegmentManifest:
    return manifest(number, rows)


def info(of: SegmentManifest, state: SegmentState = SegmentState.FLUSHED) -> SegmentInfo:
    at = compose(1)
    return SegmentInfo(
        of.segment_id,
        CollectionID(of.collection_id),
        PartitionID(of.partition_id),
        of.vchannel,
        state,
        10_000,
        at,
        at,
        rows=of.rows,
    )
