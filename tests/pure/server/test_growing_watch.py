"""Back-pressure fetches one number a second, and the shares of collections when they may matter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fakes import Calls

from elanus.api.querynode import GrowingRows, QueryNodePulse
from elanus.core.errors import Unavailable
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID, NodeID, SegmentID
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


def pulse(number: int, total: int, *growing: GrowingRows) -> QueryNodePulse:
    return QueryNodePulse(NodeID(number), "", total, growing, {}, {}, {}, {})


def rows(number: int, collection_id: CollectionID, size: int) -> GrowingRows:
    return GrowingRows(SegmentID(number), collection_id, size)


def test_growing_data_is_taken_from_the_pulses_of_the_nodes() -> None:
    one = pulse(1, 100, rows(1, C, 60), rows(2, C, 10))
    two = pulse(2, 90, rows(1, C, 60), rows(4, D, 30))
    idle = pulse(3, 0)
    assert growing_memory([one, two, idle]) == (
        GrowingMemory(100, {SegmentID(1): 60, SegmentID(2): 10}),
        GrowingMemory(90, {SegmentID(1): 60, SegmentID(4): 30}),
    )
    assert growing_collections([two, one, idle]) == {C: 70}
    assert growing_collections([]) == {}
