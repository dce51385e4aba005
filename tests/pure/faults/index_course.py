"""An index build from its order to its record, with a fault on the way; and what must be true at its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from fakes import CID, FakeData, FakeLease, FakeProxy, FakeRoot, collection, recovery, settle
from injected import Fault, FaultyStore, HeldStore, as_spark_does, from_afar
from rows import ROWS, insert_log
from virtual_time import VirtualClock

from elanus.api.indexcoord import BuildState
from elanus.api.indexnode import BuildIndex
from elanus.core.errors import Internal
from elanus.core.ids import NodeID
from elanus.core.segments import IndexFile, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import compose
from elanus.index.build import load
from elanus.index.resolve import resolve_index
from elanus.indexcoord.builds import IndexPolicy
from elanus.indexcoord.coord import IndexCoord
from elanus.indexcoord.state import IndexState
from elanus.meta.memory import MemoryMeta
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.pipeline.port import JobFailed
from elanus.storage.local import LocalStore
from elanus.storage.paths import INDEX_FILES
from elanus.storage.port import CorruptObject


@dataclass(frozen=True)
class Ending:
    """``rows``: of the index that is handed out. ``orphans``: index files that no build names."""

    state: BuildState
    fail_reason: str
    rows: int
    orphans: tuple[str, ...]
    nameless: tuple[str, ...]
    """Orphans that lie elsewhere than under a build and a version."""


class Node:
    """An index node whose connection breaks when it dies or stands still."""

    def __init__(self, root: Path, fault: Fault) -> None:
        self._root = root
        self._fault = fault
        self._scratch = root.parent / "scratch"
        self._scratch.mkdir(exist_ok=True)
        self.going_on: list[asyncio.Task[IndexFile]] = []

    async def build_index(self, request: BuildIndex) -> IndexFile:
        build = asyncio.create_task(self._build(request))
        self.going_on.append(build)
        return await from_afar(build, self._fault)

    async def _build(self, request: BuildIndex) -> IndexFile:
        try:
            return await as_spark_does(lambda number: self._task(request, f"{request.version}-{number}"))
        except (JobFailed, CorruptObject) as error:
            raise Internal(f"the build failed: {error}") from error

    async def _task(self, request: BuildIndex, name: str) -> IndexFile:
        await self._fault.at("before read")
        held = HeldStore(self._root)
        scratch = self._scratch / f"{request.version}-{name}"
        scratch.mkdir(exist_ok=True)
        plan = IndexBuildPlan(
            attempt=name,
            build_id=request.build_id,
            version=request.version,
            index_id=request.index_id,
            field=request.field,
            params=request.params,
            manifest=request.manifest,
            threads=1,
            store_url=self._root.as_uri(),
            scratch_dir=str(scratch),
        )
        file = build_index_file(plan, held, scratch, name)
        await self._fault.at("before write")
        held.let_go(FaultyStore(self._root, self._fault))
        await self._fault.at("after write")
        await self._fault.at("before commit")
        return file


class Course:
    """``damaged``: of the two segments, the second one's file is no Parquet any more."""

    def __init__(self, directory: Path, fault: Fault, *, damaged: bool = False) -> None:
        self._fault = fault
        self._root_dir = directory / "files"
        self._root_dir.mkdir()
        self._store = LocalStore(self._root_dir)
        self._collection = collection()
        self._data = FakeData()
        self._manifests = [self._segment(1, directory)]
        if damaged:
            broken = self._segment(2, directory)
            (self._root_dir / broken.insert_logs[0].path).write_bytes(b"no Parquet" * 100)
            self._manifests.append(broken)
        self._data.infos = {m.segment_id: _info(m) for m in self._manifests}
        self._data.set_recovery(recovery(self._collection, *self._manifests))
        self._nodes: dict[str, Node] = {}
        self._meta = MemoryMeta()
        self._state = IndexState(self._meta)
        self._coord = IndexCoord(
            FakeLease(),
            self._state,
            VirtualClock(),
            FakeRoot(self._collection),  # type: ignore[arg-type]
            self._data,  # type: ignore[arg-type]
            {NodeID(1): FakeProxy()},
            lambda address: self._nodes[address],
            IndexPolicy(rows_min=1),
        )

    def _segment(self, number: int, directory: Path) -> SegmentManifest:
        return insert_log(self._store, self._collection, number, directory)

    async def run(self) -> Ending:
        await self._coord.start()
        await self._register(1)
        (field,) = self._collection.schema.vector_fields
        await self._coord.create_index(CID, field, "v0", {"index_type": "FLAT", "metric_type": "L2"})
        for _ in range(600):
            if self._fault.struck.is_set():
                await self._register(2)
            (status,) = await self._coord.describe(CID)
            if status.state in (BuildState.FINISHED, BuildState.FAILED):
                break
            await asyncio.sleep(0.5)
        self._fault.go_on.set()
        await settle()
        ending = await self._ending()
        await self._coord.stop()
        for node in self._nodes.values():
            for task in node.going_on:
                task.cancel()
            await asyncio.gather(*node.going_on, return_exceptions=True)
        return ending

    async def _register(self, number: int) -> None:
        address = f"unix:/node-{number}"
        if address not in self._nodes:
            self._nodes[address] = Node(self._root_dir, self._fault)
        await self._coord.register_indexnode(NodeID(number), address)

    async def _ending(self) -> Ending:
        (status,) = await self._coord.describe(CID)
        files = await self._coord.index_files(CID)
        rows = 0
        for file in files:
            spec = resolve_index(file.params, self._collection.schema.vector_fields[0].data_type, 2)
            rows += load(self._store.local_path(file.path, self._root_dir), spec).rows
        stored = {o.path for o in self._store.list(INDEX_FILES)}
        orphans = tuple(sorted(stored - {f.path for f in files}))
        known = {b.build_id: b.version for b in self._state.builds()}
        nameless = [o for o in orphans if not 0 < int(o.split("/")[2]) <= known[int(o.split("/")[1])]]  # type: ignore[index]
        return Ending(status.state, status.fail_reason, rows, orphans, tuple(nameless))


def _info(of: SegmentManifest) -> SegmentInfo:
    at = compose(1)
    return SegmentInfo(
        of.segment_id,
        of.collection_id,
        of.partition_id,
        of.vchannel,
        SegmentState.FLUSHED,
        ROWS,
        at,
        at,
        rows=of.rows,
    )
