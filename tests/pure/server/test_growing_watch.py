"""Back-pressure fetches one number a second, and the shares of collections when they may matter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fakes import Calls

from elanus.api.querynode import QueryNodeStatus, SegmentServing
from elanus.core.errors import Unavailable
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID, IndexID, NodeID, PartitionID, SegmentID
from elanus.proxy.verbs.pressure import GrowingData
from elanus.querycoord.growing import growing_collections, growing_memory
from elanus.server.growing_watch import GrowingWatch

C, D = CollectionID(1), CollectionID(2)


class Coordinators:
    def __init__(self) -> None:
        self.calls = Calls()
        self.total = 0

    async def growing_bytes(self) -> int:
        self.calls.note("growing_bytes")
        return self.total

    async def growing_collections(self) -> Mapping[CollectionID, int]:
        self.calls.note("growing_collections")
        return {C: self.total}

    async def flushing_bytes(self) -> int:
        self.calls.note("flushing_bytes")
        return 70


async def test_shares_are_asked_for_from_half_of_the_soft_limit_on() -> None:
    peers = Coordinators()
    watch = GrowingWatch(peers, peers, soft_bytes=1000)  # type: ignore[arg-type]
    running = asyncio.create_task(watch.run())
    peers.total = 500
    await asyncio.sleep(1.5)
    assert watch.latest == GrowingData(500)
    assert peers.calls.of("growing_collections") == peers.calls.of("flushing_bytes") == []
    peers.total = 501
    await asyncio.sleep(1)
    assert watch.latest == GrowingData(501, {C: 501}, 70)
    peers.calls.failing["growing_collections"] = Unavailable("restarting")
    peers.total = 900
    await asyncio.sleep(3)
    assert watch.latest == GrowingData(501, {C: 501}, 70), "the last figures count"
    peers.calls.failing.clear()
    await asyncio.sleep(1)
    assert watch.latest == GrowingData(900, {C: 900}, 70)
    running.cancel()


def segment(number: int, collection_id: CollectionID, size: int, *, sealed: bool = False) -> SegmentServing:
    return SegmentServing(SegmentID(number), collection_id, PartitionID(1), "v", 10, sealed, size, IndexID(0))


def status(number: int, total: int, *segments: SegmentServing) -> QueryNodeStatus:
    return QueryNodeStatus(NodeID(number), {}, segments, total, {})


def test_growing_data_is_taken_from_the_statuses_of_the_nodes() -> None:
    one = status(1, 100, segment(1, C, 60), segment(2, C, 10), segment(3, D, 5000, sealed=True))
    two = status(2, 90, segment(1, C, 60), segment(4, D, 30))
    idle = status(3, 0, segment(5, D, 7000, sealed=True))
    assert growing_memory([one, two, idle]) == (
        GrowingMemory(100, {SegmentID(1): 60, SegmentID(2): 10}),
        GrowingMemory(90, {SegmentID(1): 60, SegmentID(4): 30}),
    )
    assert growing_collections([two, one, idle]) == {C: 70}
    assert growing_collections([]) == {}
