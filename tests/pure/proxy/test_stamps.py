"""Timestamps from a root coordinator elsewhere: in order, coalesced; no tick passes a write that waits."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from fakes import settle

from elanus.core.errors import Internal, Unavailable
from elanus.core.ticks import tick_report
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.queues import DmQueue, Turn
from elanus.proxy.role.stamps import RemoteStamps


class Oracle:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.last = 100
        self.asked: list[tuple[int, asyncio.Future[Timestamp]]] = []

    async def allocate(self, count: int) -> Timestamp:
        answer: asyncio.Future[Timestamp] = asyncio.get_running_loop().create_future()
        self.asked.append((count, answer))
        return await answer

    async def answer(self) -> None:
        await settle()
        count, answer = self.asked.pop(0)
        answer.set_result(Timestamp(self.last + 1))
        self.last += count
        await settle()


async def test_requests_that_come_during_a_call_share_the_next() -> None:
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    first = asyncio.ensure_future(stamps.fresh())
    await settle()
    others = [asyncio.ensure_future(stamps.fresh()) for _ in range(3)]
    await settle()
    assert [count for count, _ in oracle.asked] == [1], "calls do not overlap"
    await oracle.answer()
    assert [count for count, _ in oracle.asked] == [3]
    await oracle.answer()
    assert [await f for f in (first, *others)] == [101, 102, 103, 104]
    assert stamps.floor() == 104


async def test_a_failed_call_fails_those_it_was_for_and_no_other() -> None:
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    first = asyncio.ensure_future(stamps.fresh())
    await settle()
    second = asyncio.ensure_future(stamps.fresh())
    oracle.asked.pop()[1].set_exception(Unavailable("takeover"))
    await settle()
    with pytest.raises(Unavailable, match="takeover"):
        await first
    await oracle.answer()
    assert await second == 101


async def test_who_gave_up_takes_no_stamp_from_the_others() -> None:
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    gone, stays = asyncio.ensure_future(stamps.fresh()), asyncio.ensure_future(stamps.fresh())
    await settle()
    gone.cancel()
    await oracle.answer()
    assert await stays == 102


async def test_an_oracle_that_goes_back_is_not_believed() -> None:
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    first = asyncio.ensure_future(stamps.fresh())
    await oracle.answer()
    assert await first == 101
    oracle.last = 50
    second = asyncio.ensure_future(stamps.fresh())
    await oracle.answer()
    with pytest.raises(Internal, match="must never go back"):
        await second


async def test_what_a_replaced_oracle_gives_below_a_report_is_refused() -> None:
    """Its successor asked for the report, and may have ticked past the stamp: the write would be lost."""
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    on_its_way = asyncio.ensure_future(stamps.fresh())
    await settle()
    stamps.reported(Timestamp(200))
    await oracle.answer()
    assert await on_its_way == 101, "the report does not pass writes that wait for their stamps"
    late = asyncio.ensure_future(stamps.fresh())
    await oracle.answer()
    with pytest.raises(Unavailable, match="was replaced"):
        await late
    oracle.last = 200
    fresh = asyncio.ensure_future(stamps.fresh())
    await oracle.answer()
    assert await fresh == 201


def test_a_thread_gets_one() -> None:
    async def asked() -> Timestamp:
        async def allocate(_count: int) -> Timestamp:
            return Timestamp(101)

        return await asyncio.to_thread(RemoteStamps(allocate, 5.0).now)

    assert asyncio.run(asked()) == 101


class Write:
    name = "write"
    pchannels = ("dml_0",)

    def __init__(self) -> None:
        self.ts = Timestamp(0)
        self.go_on = asyncio.Event()

    async def run(self, queue: DmQueue) -> Timestamp:
        return await queue.run(self.name, self.pchannels, self.write)

    async def write(self, turn: Turn) -> None:
        self.ts = turn.ts
        await self.go_on.wait()


async def test_no_report_passes_a_write_whose_stamp_is_on_its_way() -> None:
    """The oracle has given the write 102 and a report 103; the answer to the write has not arrived."""
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    before = asyncio.ensure_future(stamps.fresh())
    await oracle.answer()
    assert await before == 101
    queue, write = DmQueue(stamps, 10), Write()
    running = asyncio.ensure_future(write.run(queue))
    await settle()
    assert write.ts == 0, "it waits for its stamp"
    _, channels = tick_report(Timestamp(103), queue.oldest())
    assert channels == {"dml_0": 101}
    await oracle.answer()
    assert write.ts == 102
    assert queue.oldest() == {"dml_0": 102}
    write.go_on.set()
    await running
    assert queue.oldest() == {}


async def test_two_writes_wait_under_one_floor_and_leave_one_by_one() -> None:
    oracle = Oracle()
    stamps = RemoteStamps(oracle.allocate, 5.0)
    queue, first, second = DmQueue(stamps, 10), Write(), Write()
    running = [asyncio.ensure_future(w.run(queue)) for w in (first, second)]
    await settle()
    running[0].cancel()
    await settle()
    assert queue.oldest() == {"dml_0": 1}, "the other one still waits"
    second.go_on.set()
    await oracle.answer()
    await running[1]
    assert queue.oldest() == {}


async def test_what_the_time_is_about_needs_no_call_for_a_second() -> None:
    oracle = Oracle()
    oracle.last = 5000 << 18
    stamps = RemoteStamps(oracle.allocate, 5.0)
    first = asyncio.ensure_future(stamps.fresh())
    await oracle.answer()
    with patch("elanus.proxy.role.stamps.time.monotonic", return_value=stamps._last[1] + 0.5):
        assert stamps.about_now() == await first + (500 << 18)
    assert oracle.asked == []
