"""Changes of any size are one change: seen whole or not at all, whatever ends the writing."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from elanus.core.errors import CommitRefused, DiskFull
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord.records import Records
from elanus.datacoord.state import DataState
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import TXN_OPERATIONS_MAX, Compare, Delete, OutcomeUnknown, Put

MANY = 3 * TXN_OPERATIONS_MAX


class DyingMeta(MemoryMeta):
    """Fails after a number of transactions, for as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 2**31

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        self.left -= 1
        if self.left < 0:
            raise DiskFull("no room")
        return await super().txn(operations, compares)


def change(value: str, count: int = MANY) -> dict[str, bytes]:
    return {f"datacoord/segment/{n:04}": value.encode() for n in range(count)}


async def opened(meta: MemoryMeta) -> Records:
    records = Records(meta)
    await records.start()
    await records.load("datacoord/segment/")
    return records


async def held(meta: MemoryMeta) -> set[bytes]:
    return {stored.value for _, stored in await meta.list("datacoord/segment/")}


@pytest.mark.parametrize("count", [1, 100, 101, TXN_OPERATIONS_MAX + 1, MANY])
async def test_a_change_of_any_size_is_written(count: int) -> None:
    meta = DyingMeta()
    records = await opened(meta)
    for value in ("a", "b"):
        await records.put(change(value, count))
        await records.finish()
        assert await held(meta) == {value.encode()}
    assert len(await meta.list("")) == count, "nothing else is left behind"


@pytest.mark.parametrize("transactions", range(7))
async def test_a_crash_at_any_moment_leaves_all_or_nothing(transactions: int) -> None:
    meta = DyingMeta()
    records = await opened(meta)
    await records.put(change("a"))
    await records.finish()
    meta.left = transactions
    decided = False
    try:
        await records.put(change("b"))
        decided = True
        await records.finish()
    except DiskFull:
        pass
    meta.left = 2**31
    again = await opened(meta)  # the process has died and come back
    assert await held(meta) == {b"b" if decided else b"a"}
    assert decided is (transactions > 0)
    await again.put(change("c"))
    await again.finish()
    assert await held(meta) == {b"c"}


async def test_after_an_error_the_next_change_comes_after_the_one_that_was_decided() -> None:
    meta = DyingMeta()
    records = await opened(meta)
    meta.left = 2
    await records.put(change("a"))
    with pytest.raises(DiskFull):
        await records.finish()
    with pytest.raises(DiskFull):
        await records.put(change("b", 1))
    meta.left = 2**31
    await records.put(change("b", 1))
    assert await held(meta) == {b"a", b"b"}
    again = await opened(meta)
    assert await held(meta) == {b"a", b"b"}, "the older change is not repeated over the newer one"
    await again.put(change("c", 1))


@pytest.mark.parametrize("count", [1, MANY])
async def test_a_record_that_somebody_else_changed_is_not_overwritten(count: int) -> None:
    meta = DyingMeta()
    records, other = await opened(meta), await opened(meta)
    await records.put(change("a", count))
    await records.finish()
    with pytest.raises(CommitRefused, match="another coordinator changed datacoord/segment/0000"):
        await other.put(change("b", count))
    assert await held(meta) == {b"a"}


async def test_a_deleted_record_is_gone_and_may_come_again() -> None:
    meta = DyingMeta()
    records = await opened(meta)
    await records.put(change("a", 1))
    await records.delete(["datacoord/segment/0000"])
    assert await held(meta) == set()
    await records.put(change("b", 1))
    assert await held(meta) == {b"b"}


def large(value: str, count: int = 3000) -> dict[str, bytes]:
    """Records of a kilobyte that do not compress to much less: no single value holds them."""
    draw = random.Random(value)
    return {f"datacoord/segment/{n:05}": value.encode() + draw.randbytes(1000) for n in range(count)}


@pytest.mark.parametrize("transactions", [*range(6), 20])
async def test_a_change_larger_than_a_value_is_whole_or_nothing(transactions: int) -> None:
    meta = DyingMeta()
    records = await opened(meta)
    await records.put(large("a"))
    await records.finish()
    assert {value[:1] for value in await held(meta)} == {b"a"}
    meta.left = transactions
    decided = False
    try:
        await records.put(large("b"))
        decided = True
        await records.finish()
    except DiskFull:
        pass
    meta.left = 2**31
    again = await opened(meta)
    assert await held(meta) == set(large("b" if decided else "a").values())
    assert decided is (transactions > 4)
    await again.put(change("c"))
    await again.finish()
    assert len(await meta.list("")) == 3000 + MANY, "no part is left behind"


async def test_the_same_coordinator_goes_on_after_a_large_change_that_failed() -> None:
    meta = DyingMeta()
    records = await opened(meta)
    meta.left = 3
    with pytest.raises(DiskFull):
        await records.put(large("a"))
    meta.left = 2**31
    await records.put({"datacoord/segment/x": b"c"})
    await records.finish()
    assert [key for key, _ in await meta.list("")] == ["datacoord/segment/x"]


@pytest.mark.slow
async def test_a_vchannel_with_fifty_thousand_segments_is_dropped_in_one_change() -> None:
    state = DataState(meta := MemoryMeta())
    await state.start()
    segments = [
        SegmentInfo(
            SegmentID(440_000_000_000_000_000 + 1000 * n),
            CollectionID(7),
            PartitionID(8),
            "by-dev-rootcoord-dml_0_7v0",
            SegmentState.FLUSHED,
            max_rows=1_000_000,
            created=Timestamp(n + 1),
            last_expire=Timestamp(n + 2),
            manifest=f"manifests/7/{n}/a{n}-{uuid.UUID(int=draw)}.json",
        )
        for n, draw in enumerate(map(random.Random(1).getrandbits, [128] * 50_000))
    ]
    await state.put(segments)
    dropped = [replace(s, state=SegmentState.DROPPED) for s in segments]
    await state.put(dropped)
    again = DataState(meta)
    await again.start()
    assert {s.state for s in again.segments()} == {SegmentState.DROPPED}
    assert len(await meta.list("")) == 50_000


async def test_a_large_change_that_was_decided_without_an_answer_is_not_lost() -> None:
    class Silent(MemoryMeta):
        async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
            revision = await super().txn(operations, compares)
            if any(op.key == "datacoord/decided" and isinstance(op, Put) for op in operations):
                raise OutcomeUnknown("the answer is lost")
            return revision

    meta = Silent()
    records = await opened(meta)
    with pytest.raises(OutcomeUnknown):
        await records.put(large("a"))
    with pytest.raises(CommitRefused):
        await records.put({"datacoord/segment/x": b"c"})
    await opened(meta)
    assert await held(meta) == set(large("a").values())


@pytest.mark.parametrize("deaths", range(1, 8))
async def test_few_large_records_are_one_change_whenever_the_store_fails(deaths: int) -> None:
    """Their values fit in one transaction each, and together in none."""
    meta = DyingMeta()
    records = await opened(meta)
    large = {f"datacoord/segment/{n}": random.Random(n).randbytes(500_000) for n in range(4)}
    meta.left = deaths
    try:
        await records.put(large)
        await records.finish()
    except DiskFull:
        meta.left = 2**31
        await opened(meta)
    assert await held(meta) in (set(), set(large.values()))
    await (await opened(meta)).put(large)
