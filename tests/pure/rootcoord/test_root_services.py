"""Timestamps and ids: unique and ascending over restarts, crashes and a clock that steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from fakes import FakeProxy
from root_bench import Bench, Root, refused, started
from structlog.testing import capture_logs
from virtual_time import START_WALL_MS, VirtualClock

from elanus.core.errors import DiskFull, LeaseLost, Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.core.timestamps import physical_ms
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Compare, Delete, Put
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.tso import TimestampOracle


class FailingMeta(MemoryMeta):
    """A store whose writes fail while ``error`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.writes = 0

    async def txn(self, operations: list[Put | Delete], compares: list[Compare] = ()) -> int:  # type: ignore[override,assignment]
        self.writes += 1
        if self.error is not None:
            raise self.error
        return await super().txn(operations, compares)


async def oracle(meta: MemoryMeta, clock: VirtualClock) -> TimestampOracle:
    made = TimestampOracle(meta, clock, window_ms=3000, update_ms=50)
    await made.start()
    return made


async def test_timestamps_ascend_and_follow_the_clock() -> None:
    made = await oracle(MemoryMeta(), VirtualClock())
    first = [made.allocate() for _ in range(5)]
    await asyncio.sleep(60)
    later = made.allocate(1000)
    assert first == sorted(set(first))
    assert physical_ms(first[0]) == START_WALL_MS
    assert physical_ms(later) == START_WALL_MS + 60_000
    assert made.allocate() == later + 1000
    await made.stop()


@pytest.mark.parametrize("step_ms", [-86_400_000, -3_600_000, -1, 0, 1, 2999, 86_400_000])
async def test_they_ascend_over_a_crash_and_a_clock_that_stepped(step_ms: int) -> None:
    meta, clock = MemoryMeta(), VirtualClock()
    made = await oracle(meta, clock)
    given_out = [made.allocate()]
    for _ in range(100):
        await asyncio.sleep(0.1)
        given_out.append(made.allocate(50) + 49)
    clock.step_ms(step_ms)
    again = await oracle(meta, clock)  # the first one just stopped answering
    assert again.allocate() > max(given_out)
    await made.stop()
    await again.stop()


async def test_a_clock_that_jumps_ahead_stops_nobody() -> None:
    clock = VirtualClock()
    made = await oracle(MemoryMeta(), clock)
    clock.step_ms(86_400_000)
    before = made.allocate()
    await asyncio.sleep(0.1)
    after = made.allocate()
    assert physical_ms(before) < START_WALL_MS + 3000
    assert physical_ms(after) == START_WALL_MS + 86_400_000 + 100
    await made.stop()


@pytest.mark.parametrize("error", [DiskFull("no room"), OSError("gone"), RuntimeError("whatever")])
async def test_a_store_that_fails_for_a_while_is_tried_again(error: Exception) -> None:
    meta, clock = FailingMeta(), VirtualClock()
    made = await oracle(meta, clock)
    meta.error = error
    await asyncio.sleep(10)
    assert physical_ms(made.allocate()) < START_WALL_MS + 4000, "within what is persisted it goes on"
    for _ in range(4):
        made.allocate(60_000)
    with pytest.raises(Unavailable, match="metadata store"):
        made.allocate(60_000)
    meta.error = None
    await asyncio.sleep(0.1)
    assert physical_ms(made.allocate()) == START_WALL_MS + 10_100
    await made.stop()


async def test_a_refused_timestamp_names_the_reason_of_the_store() -> None:
    meta = FailingMeta()
    made = await oracle(meta, VirtualClock())
    with capture_logs() as logged:
        for error in (Unavailable("etcd does not answer"), DiskFull("etcd takes no more; compact it")):
            meta.error = error
            await asyncio.sleep(10)
    said = [entry["error"] for entry in logged if entry["event"] == "timestamp bound not persisted"]
    assert said == ["Unavailable: etcd does not answer", "DiskFull: etcd takes no more; compact it"]
    for _ in range(4):
        made.allocate(60_000)
    with pytest.raises(
        Unavailable, match=r"metadata store \(DiskFull: etcd takes no more; compact it\); retry"
    ):
        made.allocate(60_000)
    await made.stop()


async def test_any_number_of_requests_costs_two_writes_a_window() -> None:
    """Nothing is persisted for a request of its own."""
    meta = FailingMeta()
    made = await oracle(meta, VirtualClock())
    meta.writes, given_out = 0, []
    for _ in range(30):
        given_out += [made.allocate() for _ in range(500)]
        await asyncio.sleep(0.1)
    assert given_out == sorted(set(given_out))
    assert meta.writes == 2, "3 s have passed; the bound moves when half of its 3 s are left"
    await made.stop()


async def test_an_oracle_that_has_not_started_hands_out_nothing() -> None:
    with pytest.raises(Unavailable):
        TimestampOracle(MemoryMeta(), VirtualClock(), window_ms=3000, update_ms=50).allocate()


async def test_ids_are_consecutive_and_never_used_twice() -> None:
    meta = FailingMeta()
    ids = IdAllocator(meta)
    await ids.start()
    blocks = [(await ids.allocate(count), count) for count in (1, 2, 3_000_000, 1)]
    assert len(str(blocks[0][0])) == 18
    assert all(a + count <= b for (a, count), (b, _) in pairwise(blocks))
    again = IdAllocator(meta)
    await again.start()
    assert await again.allocate(1) > blocks[-1][0]


async def test_ids_are_reserved_in_blocks() -> None:
    meta = FailingMeta()
    ids = IdAllocator(meta)
    await ids.start()
    for _ in range(100):
        await ids.allocate(10)
    assert meta.writes == 1


async def test_ids_that_could_not_be_reserved_are_not_handed_out() -> None:
    meta = FailingMeta()
    ids = IdAllocator(meta)
    await ids.start()
    meta.error = DiskFull("no room")
    with pytest.raises(DiskFull):
        await ids.allocate(1)
    meta.error = None
    assert await ids.allocate(1) == 440_000_000_000_000_000


async def test_concurrent_requests_get_different_ids() -> None:
    ids = IdAllocator(MemoryMeta())
    await ids.start()
    firsts = await asyncio.gather(*(ids.allocate(3) for _ in range(50)))
    assert sorted(firsts) == list(range(min(firsts), min(firsts) + 150, 3))


@pytest.mark.parametrize("count", [0, -1])
async def test_no_ids_are_no_request(count: int) -> None:
    ids = IdAllocator(MemoryMeta())
    await ids.start()
    with pytest.raises(ValueError, match=str(count)):
        await ids.allocate(count)


async def test_the_role_offers_both() -> None:
    bench = Bench()
    root = await bench.start()
    before = (await root.alloc_timestamp(5), await root.alloc_ids(5))
    root = await bench.restart()
    after = (await root.alloc_timestamp(1), await root.alloc_ids(1))
    assert after[0] >= before[0] + 5
    assert after[1] >= before[1] + 5
    await root.stop()


@pytest.mark.parametrize(
    "ask",
    [
        lambda root: root.alloc_ids(1),
        lambda root: root.describe_collection("default", "c"),
        lambda root: root.describe_collection("default", "made by the successor"),
        lambda root: root.collection_by_id(CollectionID(1)),
        lambda root: root.list_collections(""),
        lambda root: root.ticks(),
    ],
    ids=["ids", "described", "not found by name", "not found by id", "listed", "ticks"],
)
async def test_what_others_rely_on_is_not_answered_by_one_that_was_replaced(
    ask: Callable[[Root], Coroutine[Any, Any, object]],
) -> None:
    bench, root = await started("c")
    bench.lease.calls.failing["confirm"] = LeaseLost("another one is active")
    await refused(ask(root), LeaseLost, "another one")
    await root.stop()


async def test_fences_are_put_by_an_active_root_coordinator_that_knows_the_latest_sessions() -> None:
    """A proxy that its successor has admitted is not gone."""
    bench, root = await started()
    known: list[set[NodeID]] = []

    async def fence(_pchannels: tuple[str, ...]) -> None:
        known.append(set(bench.nodes))

    root.role._sync.fence = fence  # type: ignore[assignment]
    joined = set(bench.nodes)
    bench.nodes.registered[NodeID(77)] = FakeProxy()  # its session is newer than the view
    await root.fence_gone(("p",))
    assert known == [{*joined, NodeID(77)}]
    bench.lease.calls.failing["confirm"] = LeaseLost("another one is active")
    with pytest.raises(LeaseLost):
        await root.fence_gone(("p",))
    assert len(known) == 1
    await root.stop()
