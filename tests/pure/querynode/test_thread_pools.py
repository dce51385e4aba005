"""Threads of one purpose never wait for those of another: loads that hang delay no insert and no read."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pyarrow as pa
import pytest
from node_rows import Row
from node_world import COLLECTION, NODE, PCHANNEL, VCHANNEL, World

from elanus.api.querynode import LoadSegment
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.offload import Pools
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.writes import LogWriter
from elanus.querynode.node import QueryNode
from elanus.server.threads import ProcessThreads
from elanus.storage.local import LocalStore

LIMIT_S = 60.0


class HangingStore(LocalStore):
    """A store whose `open` does not return once it ``hangs``, until it goes on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hangs = False
        self.hanging = threading.Semaphore(0)
        self.go_on = threading.Event()

    def open(self, path: str) -> pa.NativeFile:
        if self.hangs:
            self.hanging.release()
            self.go_on.wait(LIMIT_S)
        return super().open(path)


async def loadable(world: World, request: LoadSegment, number: int) -> LoadSegment:
    """Load another collection without segments; return the request for its copy of a segment."""
    collection_id, vchannel = CollectionID(number), f"{PCHANNEL}_{number}v0"
    load = replace(world.load_request(), collection_id=collection_id, vchannels=(vchannel,))
    await world.node.load_collection(load)
    await world.node.watch_vchannel(
        replace(
            world.watch_request(),
            collection_id=collection_id,
            vchannel=vchannel,
            growing=(),
            excluded=(),
            delta_logs=(),
        )
    )
    manifest = replace(request.manifest, collection_id=collection_id, vchannel=vchannel)
    return replace(request, collection_id=collection_id, manifest=manifest)


async def loads_hang(world: World, store: HangingStore, threads: ProcessThreads) -> list[asyncio.Task[None]]:
    """Let more loads hang than there are threads to load."""
    world.store = store
    world.node = QueryNode(NODE, world.log, store, threads.pools, scratch=world.scratch)
    await world.start()
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    world.seal()
    [segment_id] = world.flush()
    await world.hand_off([segment_id])
    request = world.segment_request(segment_id)
    others = [await loadable(world, request, number) for number in range(20, 26)]
    store.hangs = True
    loads = [asyncio.create_task(world.node.load_segment(other)) for other in others]
    for _ in range(4):
        await asyncio.to_thread(store.hanging.acquire)
    return loads


async def written(world: World, pools: Pools) -> Timestamp:
    """A large insert, as the proxy writes it; returns when it would be acknowledged."""
    writer = LogWriter(world.log, Mock(), pools.encoding, Mock(confirm=AsyncMock()))
    ts = Timestamp(world.stamp())
    rows = [Row(world.key(key), key, 1, ts) for key in range(10, 20)]
    message = InsertMessage(ts, VCHANNEL, COLLECTION, PartitionID(1), SegmentID(99), 0, world.batch(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elanus.proxy.role.writes.INLINE_ROWS_MAX", len(rows) - 1)
        await writer.append(Mock(wait=AsyncMock()), [message])
    return ts


def test_hanging_loads_delay_no_insert_and_no_strong_read(tmp_path: Path) -> None:
    async def play() -> None:
        store, threads = HangingStore(tmp_path / "store"), ProcessThreads()
        world = World(tmp_path)
        loads = await loads_hang(world, store, threads)
        try:
            async with asyncio.timeout(LIMIT_S):
                ts = await written(world, threads.pools)
                await world.tick()
                await world.node._collections[COLLECTION].clock.reached(ts, LIMIT_S)
            assert world.count() == 12
            assert not any(load.done() for load in loads)
        finally:
            store.go_on.set()
            await asyncio.gather(*loads, return_exceptions=True)
            await world.node.stop()
            threads.shutdown()

    asyncio.run(play())


def test_one_collection_does_not_take_all_threads_that_load(tmp_path: Path) -> None:
    """While its loads hang, another collection's segment is loaded."""

    async def play() -> None:
        store, threads = HangingStore(tmp_path / "store"), ProcessThreads()
        world = World(tmp_path)
        world.store = store
        world.node = QueryNode(NODE, world.log, store, threads.pools, scratch=world.scratch)
        await world.start()
        segments = []
        for key in range(6):
            await world.insert([(key, key)])
            await world.tick()
            world.seal()
            segments += world.flush()
        other = await loadable(world, world.segment_request(segments[-1]), 20)
        store.hangs = True
        requests = [world.segment_request(segment_id) for segment_id in segments]
        loads = [asyncio.create_task(world.node.load_segment(request)) for request in requests]
        for _ in range(2):
            await asyncio.to_thread(store.hanging.acquire)
        store.hangs = False
        try:
            async with asyncio.timeout(LIMIT_S):
                await world.node.load_segment(other)
            assert not any(load.done() for load in loads)
        finally:
            store.go_on.set()
            await asyncio.gather(*loads, return_exceptions=True)
            await world.node.stop()
            threads.shutdown()

    asyncio.run(play())


@pytest.mark.parametrize("purpose", ["encoding", "loading", "deletes", "arrivals", "files", "delta_logs"])
def test_threads_are_named_after_their_purpose(purpose: str) -> None:
    threads = ProcessThreads()

    def name() -> str:
        return threading.current_thread().name

    assert asyncio.run(getattr(threads.pools, purpose)(name)).startswith(f"elanus-{purpose}")
    threads.shutdown()
