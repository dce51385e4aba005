"""The data directory of a stopped server, opened with the server's own functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from elanus.core.catalog import Checkpoint
from elanus.core.ids import CollectionID
from elanus.core.offload import Offload
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.state import DataState
from elanus.datacoord.vchannel_table import Vchannel
from elanus.log.port import Position
from elanus.meta.sqlite import SqliteMeta
from elanus.pipeline.ranges import FlushPlan
from elanus.rootcoord.ids import IdAllocator
from elanus.server.data_dir import DataDir
from elanus.storage.local import LocalStore


@dataclass(frozen=True, slots=True)
class Stopped:
    """``template``: a flushed segment; ``vchannel``: its vchannel. ``scratch``: a local directory."""

    state: DataState
    ids: IdAllocator
    manifests: Manifests
    store: LocalStore
    scratch: Path
    template: SegmentInfo
    vchannel: Vchannel

    def plan(self, name: str) -> FlushPlan:
        """A plan that writes files called ``name``, as of the vchannel's checkpoint."""
        checkpoint: Checkpoint = self.vchannel.checkpoint
        collection_id: CollectionID = self.template.collection_id
        schema: CollectionSchema = self.vchannel.schema
        return FlushPlan(
            attempt=name,
            collection_id=collection_id,
            schema=schema,
            vchannel=self.vchannel.vchannel,
            pchannel="",
            start=checkpoint,
            until=checkpoint.ts,
            stop=Position(checkpoint.position),
            log_url="",
            store_url="",
            scratch_dir=str(self.scratch),
        )


@asynccontextmanager
async def opened(data_dir: Path) -> AsyncIterator[Stopped]:
    """Open a directory with exactly one collection, which has a flushed segment.

    Raises `CannotStart` when a server uses the directory.
    """
    directory = DataDir(data_dir)
    try:
        meta = SqliteMeta(directory.paths.meta)
        with ThreadPoolExecutor(1) as thread:
            try:
                store = LocalStore(directory.root / "files")
                manifests = Manifests(store, _offload(thread))
                state, ids = DataState(meta, manifests), IdAllocator(meta)
                await state.start()
                await ids.start()
                template = next(info for info in state.segments() if info.state is SegmentState.FLUSHED)
                vchannel = state.vchannel(template.vchannel)
                if vchannel is None:
                    raise RuntimeError(f"the segment {template.segment_id} has no vchannel")
                scratch = directory.root / "scratch"
                yield Stopped(state, ids, manifests, store, scratch, template, vchannel)
            finally:
                await meta.close()
    finally:
        directory.close()


def _offload(thread: ThreadPoolExecutor) -> Offload:
    async def offload(function, /, *args):  # type: ignore[no-untyped-def]
        return await asyncio.get_running_loop().run_in_executor(thread, function, *args)

    return offload
