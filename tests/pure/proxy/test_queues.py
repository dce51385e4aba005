"""The three queues: definitions one by one, writes side by side yet in order in the log, reads counted."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
from fakes import settle

from elanus.core.errors import InvalidParameter, NotReady, TaskQueueFull
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.role.queues import DdQueue, DmQueue, DqQueue, Turn
from elanus.proxy.role.stamps import OwnStamps

T = TypeVar("T")
A, B, C = "dml_0", "dml_1", "dml_2"


def stamps() -> OwnStamps:
    numbers = itertools.count(101)
    return OwnStamps(lambda: Timestamp(next(numbers)))


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Write:
    """Prepares for a while (or until released), waits for its turn, appends; notes the order in ``log``."""

    name = "write"

    def __init__(
        self,
        queue: DmQueue,
        log: list[int],
        pchannels: tuple[str, ...] = (A,),
        *,
        prepares: Callable[[], Awaitable[object]] | None = None,
        appends: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.queue = queue
        self.log = log
        self.pchannels = pchannels
        self.prepares = prepares
        self.appends = appends
        self.ts = Timestamp(0)

    async def run(self) -> Timestamp:
        return await self.queue.run(self.name, self.pchannels, self.write)

    async def write(self, turn: Turn) -> None:
        self.ts = turn.ts
        if self.prepares is not None:
            await self.prepares()
        await turn.wait()
        self.note()
        turn.done()
        if self.appends is not None:
            await self.appends()

    def note(self) -> None:
        self.log.append(self.ts)


async def refuse() -> None:
    raise InvalidParameter("no")


def begun(*work: Awaitable[T]) -> list[asyncio.Future[T]]:
    return [asyncio.ensure_future(w) for w in work]


# definitions


async def test_definitions_run_one_at_a_time_in_the_order_they_came() -> None:
    queue, seen = DdQueue(10), []

    async def work(name: str, seconds: float) -> None:
        seen.append(f"{name} begins")
        await asyncio.sleep(seconds)
        seen.append(f"{name} ends")

    names = ("slow", 9), ("quick", 1), ("last", 0)
    await asyncio.gather(*(queue.run(name, partial(work, name, seconds)) for name, seconds in names))
    assert seen == [f"{n} {what}" for n in ("slow", "quick", "last") for what in ("begins", "ends")]


async def test_a_definition_that_fails_is_its_callers_error_and_nobody_elses() -> None:
    queue = DdQueue(10)
    failing, following = (
        queue.run("failing", refuse),
        queue.run("following", lambda: asyncio.sleep(0, "done")),
    )
    results = await asyncio.gather(failing, following, return_exceptions=True)
    assert isinstance(results[0], InvalidParameter)
    assert results[1] == "done"
    assert len(queue) == 0


async def test_a_caller_that_gives_up_frees_the_way() -> None:
    queue = DdQueue(10)
    stuck, following = begun(
        queue.run("stuck", asyncio.Event().wait),
        queue.run("following", lambda: asyncio.sleep(0)),
    )
    await settle()
    stuck.cancel()
    await following
    assert len(queue) == 0


@pytest.mark.parametrize("kind", ["definitions", "writes"])
async def test_a_full_queue_refuses_at_once_and_takes_again_when_one_has_ended(kind: str) -> None:
    go_on, begun_work = asyncio.Event(), []
    definitions, writes = DdQueue(2), DmQueue(stamps(), 2)

    async def work(_turn: Turn | None = None) -> None:
        begun_work.append(len(begun_work))
        await go_on.wait()

    def run() -> Awaitable[object]:
        return definitions.run("plain", work) if kind == "definitions" else writes.run("plain", (A,), work)

    running = begun(run(), run())
    await settle()
    before = len(begun_work)
    with pytest.raises(TaskQueueFull, match="2 plain tasks are unfinished"):
        await run()
    assert len(begun_work) == before, "refused work never begins"
    go_on.set()
    await asyncio.gather(*running)
    await run()
    assert (len(begun_work), len(definitions), len(writes)) == (3, 0, 0)


# writes


async def test_writes_run_side_by_side() -> None:
    queue, log = DmQueue(stamps(), 10), []
    await asyncio.gather(*(Write(queue, log, prepares=lambda: asyncio.sleep(5)).run() for _ in range(10)))
    assert now_s() == 5


async def test_a_slow_write_is_overtaken_by_none_on_its_pchannel() -> None:
    queue, log = DmQueue(stamps(), 10), []
    slow = Write(queue, log, prepares=lambda: asyncio.sleep(5))
    quick = Write(queue, log)
    await asyncio.gather(slow.run(), quick.run())
    assert log == [101, 102]


async def test_a_write_waits_for_no_other_pchannel() -> None:
    queue, log = DmQueue(stamps(), 10), []
    await asyncio.gather(
        Write(queue, log, (A,), prepares=lambda: asyncio.sleep(5)).run(),
        Write(queue, log, (B,)).run(),
    )
    assert log == [102, 101]


async def test_the_next_may_follow_while_an_append_is_on_its_way_to_the_disk() -> None:
    queue, log = DmQueue(stamps(), 10), []
    running = begun(Write(queue, log, appends=lambda: asyncio.sleep(5)).run())
    running += begun(Write(queue, log).run())
    await settle()
    assert log == [101, 102]
    assert queue.oldest() == {A: 101}, "the first is not durable yet"
    await asyncio.gather(*running)


async def test_a_write_that_fails_lets_nobody_pass_those_before_it() -> None:
    queue, log = DmQueue(stamps(), 10), []
    first = Write(queue, log, prepares=lambda: asyncio.sleep(5))
    failing = Write(queue, log, prepares=refuse)
    third = Write(queue, log)
    await asyncio.gather(*(w.run() for w in (first, failing, third)), return_exceptions=True)
    assert log == [101, 103]


async def test_a_write_that_is_cancelled_in_line_lets_nobody_pass_those_before_it() -> None:
    queue, log = DmQueue(stamps(), 10), []
    writes = [Write(queue, log, prepares=lambda: asyncio.sleep(5)), Write(queue, log), Write(queue, log)]
    first, second, third = begun(*(w.run() for w in writes))
    await settle()
    second.cancel()
    await asyncio.gather(first, third)
    assert log == [101, 103]
    assert queue.oldest() == {}


async def test_a_collection_may_have_two_shards_on_one_pchannel() -> None:
    queue, log = DmQueue(stamps(), 10), []
    await asyncio.gather(*(Write(queue, log, (A, A)).run() for _ in range(2)))
    assert log == [101, 102]
    assert queue.oldest() == {}


@pytest.mark.parametrize("seed", range(20))
async def test_the_log_has_each_pchannels_writes_in_the_order_of_time(seed: int) -> None:
    chance = random.Random(seed)
    queue = DmQueue(stamps(), 100)
    logs: dict[str, list[int]] = {A: [], B: [], C: []}

    async def write() -> None:
        pchannels = tuple(chance.sample([A, B, C], chance.randint(1, 3)))
        log: list[int] = []
        pause_s, fails = chance.random(), chance.random() < 0.2

        async def prepare() -> None:
            await asyncio.sleep(pause_s)
            if fails:
                await refuse()

        class Noted(Write):
            def note(self) -> None:
                for pchannel in pchannels:
                    logs[pchannel].append(self.ts)

        await Noted(queue, log, pchannels, prepares=prepare).run()

    results = await asyncio.gather(*(write() for _ in range(60)), return_exceptions=True)
    assert all(r is None or isinstance(r, InvalidParameter) for r in results)
    assert sum(map(len, logs.values())) > 30
    assert all(log == sorted(log) for log in logs.values())
    assert queue.oldest() == {}


async def test_a_write_is_unfinished_from_its_stamp_to_its_end_whatever_the_end() -> None:
    queue, go_on, log = DmQueue(stamps(), 10), asyncio.Event(), []
    writes = [
        Write(queue, log, (A,), prepares=go_on.wait),
        Write(queue, log, (A, B), prepares=go_on.wait),
        Write(queue, log, (C,), prepares=refuse),
    ]
    running = begun(*(w.run() for w in writes))
    await settle()
    assert queue.oldest() == {A: 101, B: 102}
    running[0].cancel()
    await settle()
    assert queue.oldest() == {A: 102, B: 102}
    go_on.set()
    await asyncio.gather(*running, return_exceptions=True)
    assert queue.oldest() == {}


# the end of a queue


async def test_a_closed_queue_takes_no_task_and_waits_for_those_it_has() -> None:
    queue, log = DmQueue(stamps(), 10), []
    running = asyncio.ensure_future(Write(queue, log, prepares=lambda: asyncio.sleep(3)).run())
    await settle()
    closing = asyncio.ensure_future(queue.close(patience_s=10))
    await settle()
    with pytest.raises(NotReady):
        await Write(queue, log).run()
    await closing
    assert (now_s(), log, running.done()) == (3, [101], True)


async def test_a_task_that_does_not_end_is_cancelled_when_the_queue_closes() -> None:
    queue = DmQueue(stamps(), 10)
    stuck = asyncio.ensure_future(Write(queue, [], prepares=asyncio.Event().wait).run())
    await settle()
    await queue.close(patience_s=10)
    assert now_s() == 10
    assert stuck.cancelled()
    assert queue.oldest() == {}


async def test_an_empty_queue_closes_at_once() -> None:
    await DdQueue(10).close(patience_s=10)
    assert now_s() == 0


# reads


def test_reads_are_limited() -> None:
    queue = DqQueue(2)
    queue.enter()
    queue.enter()
    with pytest.raises(TaskQueueFull, match="2 reads"):
        queue.enter()
    queue.leave()
    queue.enter()


async def test_a_long_write_counts_as_written_lately_when_it_ends() -> None:
    """Its readers wait for the tick after its end, however long ago it began."""
    queue, go_on = DmQueue(stamps(), 10), asyncio.Event()
    writing = asyncio.ensure_future(Write(queue, [], (A,), prepares=go_on.wait).run())
    await settle()
    assert queue.written(compose(1_000)) == (A,)
    assert queue.written(compose(10_000)) == ()
    go_on.set()
    await writing
    assert queue.written(compose(20_000)) == (A,)
    assert queue.written(compose(30_000)) == ()
