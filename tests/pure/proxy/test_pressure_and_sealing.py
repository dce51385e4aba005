"""Loads on a model of memory with the default limits: each second rows arrive, and segments leave.

The model uses the decisions of proxies and of datacoord. A sealed segment leaves memory some seconds later,
and the pipeline writes so many bytes a second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from elanus.core.errors import MemoryFull
from elanus.core.growing_memory import GrowingMemory, in_flight_bytes, segments_to_seal
from elanus.core.ids import CollectionID, SegmentID
from elanus.proxy.verbs.pressure import GrowingData, PressureLimits, admitted_after_s
from elanus.server.settings import Settings

MB = 1 << 20
SETTINGS = Settings()
SOFT, HARD = SETTINGS.backpressure.growing_soft_mb * MB, SETTINGS.backpressure.growing_hard_mb * MB
FULL = int(SETTINGS.datacoord.segment_size_max_mb * SETTINGS.datacoord.seal_proportion) * MB
LIMITS = PressureLimits(SOFT, HARD, 0, 8)
FLUSH_S = 8
"""From the seal to the handoff: allocations expire, a tick passes, a job runs, a version changes."""


@dataclass
class Memory:
    """``pipeline_mb_per_s``: what the pipeline writes; 0: it is down."""

    pipeline_mb_per_s: int = 100
    sizes: dict[SegmentID, int] = field(default_factory=dict)
    growing: dict[CollectionID, SegmentID] = field(default_factory=dict)
    owners: dict[SegmentID, CollectionID] = field(default_factory=dict)
    flushes: deque[tuple[int, SegmentID]] = field(default_factory=deque)
    now_s: int = 0
    total: int = 0
    sealed: int = 0
    written: int = 0
    refusals: list[CollectionID] = field(default_factory=list)
    seen: GrowingData = field(default_factory=lambda: GrowingData(0))

    def write(self, collection_id: CollectionID, size: int) -> bool:
        growing = GrowingData(self.total, self.seen.collections, self.seen.flushing_bytes)
        try:
            admitted_after_s(growing, collection_id, size, LIMITS)
        except MemoryFull:
            self.refusals.append(collection_id)
            return False
        segment_id = self.growing.get(collection_id)
        if segment_id is None:
            segment_id = self.growing[collection_id] = SegmentID(len(self.owners) + 1)
            self.owners[segment_id] = collection_id
        self.sizes[segment_id] = self.sizes.get(segment_id, 0) + size
        self.total += size
        self.written += size
        if self.sizes[segment_id] >= FULL:
            self._seal(segment_id)
        return True

    def second(self) -> None:
        """Datacoord looks, the pipeline writes, and proxies learn the figures."""
        self.now_s += 1
        room = self.pipeline_mb_per_s * MB
        while self.flushes and self.flushes[0][0] <= self.now_s and room > 0 and self.pipeline_mb_per_s:
            size = self.sizes.pop(self.flushes.popleft()[1])
            self.total -= size
            room -= size
        if self.total <= SOFT // 2:
            self.seen = GrowingData(self.total)
            return
        memory = GrowingMemory(self.total, self.sizes)
        for segment_id in segments_to_seal(memory, set(self.growing.values()), SOFT):
            self._seal(segment_id)
        collections: dict[CollectionID, int] = {}
        for segment_id, size in self.sizes.items():
            owner = self.owners[segment_id]
            collections[owner] = collections.get(owner, 0) + size
        flushing = in_flight_bytes(memory, set(self.growing.values()))
        self.seen = GrowingData(self.total, collections, flushing)

    def _seal(self, segment_id: SegmentID) -> None:
        del self.growing[self.owners[segment_id]]
        self.flushes.append((self.now_s + FLUSH_S, segment_id))
        self.sealed += 1

    def trickle(self, collections: int, mb_per_s: int, seconds: int) -> None:
        """Each of the collections gets its part of the rows each second."""
        for _ in range(seconds):
            for number in range(collections):
                self.write(CollectionID(number), mb_per_s * MB // collections)
            self.second()


@pytest.mark.parametrize("collections", [1, 2, 6, 8, 16, 100])
def test_even_loads_are_never_refused_while_the_pipeline_keeps_up(collections: int) -> None:
    memory = Memory()
    memory.trickle(collections, mb_per_s=50, seconds=300)
    assert memory.refusals == []
    assert memory.written > 7 * HARD
    assert memory.written / memory.sealed >= min(FULL, 0.9 * SOFT / collections / 2)


def test_a_thousand_collections_with_a_trickle_run_steadily() -> None:
    memory = Memory()
    memory.trickle(1000, mb_per_s=20, seconds=300)
    assert memory.refusals == []
    assert memory.sealed > 1000
    assert memory.written / memory.sealed > 0.9 * SOFT / 1000, "sealed at the size of a collection's share"


def test_with_the_pipeline_down_writes_are_refused_and_little_is_sealed() -> None:
    memory = Memory(pipeline_mb_per_s=0)
    memory.trickle(100, mb_per_s=50, seconds=100)
    assert memory.refusals
    assert HARD - LIMITS.reserved_bytes - 2 * MB < memory.total <= HARD
    assert memory.sealed < 400
    memory.pipeline_mb_per_s = 100
    for _ in range(10):
        memory.second()
    memory.refusals.clear()
    memory.trickle(100, mb_per_s=50, seconds=100)
    assert memory.refusals == [], "it recovers by itself"


def test_the_load_of_one_tenant_refuses_no_small_write_of_another() -> None:
    large, small = CollectionID(1), CollectionID(2)
    memory = Memory(pipeline_mb_per_s=20)
    small_writes = 0
    for _ in range(600):
        for _ in range(50):
            memory.write(large, 4 * MB)
        small_writes += memory.write(small, MB // 100)
        memory.second()
    assert small_writes == 600
    assert set(memory.refusals) == {large}
