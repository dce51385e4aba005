"""The three queues: definitions one by one, writes side by side yet in order in the log, reads counted."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest
from fakes import settle

from elanus.core.errors import InvalidParameter, NotReady, TaskQueueFull
from elanus.core.ids import TaskID
from elanus.core.timestamps import Timestamp
from elanus.proxy.ddl import DdTask
from elanus.proxy.queues import DdQueue, DmQueue, DqQueue
from elanus.proxy.stamps import OwnStamps

A, B, C = "dml_0", "dml_1", "dml_2"


def stamps() -> OwnStamps:
    numbers = itertools.count(101)
    return OwnStamps(lambda: Timestamp(next(numbers)))


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Write:
    """Prepares for a while (or until told), waits for its turn, hands over; notes the order in ``log``."""

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
        self.task_id = TaskID(0)
        self.ts = Timestamp(0)

    def begin(self, task_id: TaskID, ts: Timestamp) -> None:
        self.task_id, self.ts = task_id, ts

    async def pre_execute(self) -> None:
        if self.prepares is not None:
            await self.prepares()

    async def execute(self) -> None:
        await self.queue.turn(self.task_id)
        self.log.append(self.ts)
        self.queue.handed_over(self.task_id)
        if self.appends is not None:
            await self.appends()

    async def post_execute(self) -> None: ...


async def refuse() -> None:
    raise InvalidParameter("no")


def begun(*work: Awaitable[None]) -> list[asyncio.Future[None]]:
    return [asyncio.ensure_future(w) for w in work]


# definitions


async def test_definitions_run_one_at_a_time_in_the_order_they_came() -> None:
    queue, seen = DdQueue(stamps(), 10), []

    async def work(name: str, seconds: float) -> None:
        seen.append(f"{name} begins")
        await asyncio.sleep(seconds)
        seen.append(f"{name} ends")

    tasks = [DdTask(n, lambda n=n, s=s: work(n, s)) for n, s in (("slow", 9), ("quick", 1), ("last", 0))]
    await asyncio.gather(*(queue.run(task) for task in tasks))
    assert seen == [f"{n} {what}" for n in ("slow", "quick", "last") for what in ("begins", "ends")]
    assert [task.ts for task in tasks] == [101, 102, 103]
    assert [task.task_id for task in tasks] == [1, 2, 3]


async def test_a_definition_that_fails_is_its_callers_error_and_nobody_elses() -> None:
    queue = DdQueue(stamps(), 10)
    failing, following = DdTask("failing", refuse), DdTask("following", lambda: asyncio.sleep(0, "done"))
    results = await asyncio.gather(queue.run(failing), queue.run(following), return_exceptions=True)
    assert isinstance(results[0], InvalidParameter)
    assert following.result == "done"
    assert len(queue) == 0


async def test_a_caller_that_gives_up_frees_the_way() -> None:
    queue = DdQueue(stamps(), 10)
    stuck, following = begun(
        queue.run(DdTask("stuck", asyncio.Event().wait)),
        queue.run(DdTask("following", lambda: asyncio.sleep(0))),
    )
    await settle()
    stuck.cancel()
    await following
    assert len(queue) == 0


class Plain:
    """Does one thing; neither prepares nor tidies up."""

    name = "plain"
    pchannels = (A,)

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        self.execute = work
        self.ts = Timestamp(0)

    def begin(self, task_id: TaskID, ts: Timestamp) -> None:
        self.ts = ts

    async def pre_execute(self) -> None: ...
    async def post_execute(self) -> None: ...


@pytest.mark.parametrize("kind", [DdQueue, DmQueue])
async def test_a_full_queue_refuses_at_once_and_takes_again_when_one_has_ended(
    kind: type[DdQueue] | type[DmQueue],
) -> None:
    queue, go_on = kind(stamps(), 2), asyncio.Event()
    running = begun(queue.run(Plain(go_on.wait)), queue.run(Plain(go_on.wait)))
    await settle()
    refused = Plain(go_on.wait)
    with pytest.raises(TaskQueueFull, match="2 plain tasks are unfinished"):
        await queue.run(refused)
    assert refused.ts == 0, "what is refused is not stamped"
    go_on.set()
    await asyncio.gather(*running)
    await queue.run(refused)
    assert (refused.ts, len(queue)) == (103, 0)


@pytest.mark.parametrize("failing", ["pre_execute", "execute", "post_execute", None])
async def test_an_error_skips_the_phases_behind_it(failing: str | None) -> None:
    queue, seen = DdQueue(stamps(), 2), []

    def phase(name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            seen.append(name)
            if name == failing:
                await refuse()

        return run

    task = Plain(phase("execute"))
    task.pre_execute, task.post_execute = phase("pre_execute"), phase("post_execute")  # type: ignore[method-assign]
    await asyncio.gather(queue.run(task), return_exceptions=True)
    phases = ["pre_execute", "execute", "post_execute"]
    assert seen == phases[: phases.index(failing) + 1 if failing else 3]


# writes


async def test_writes_run_side_by_side() -> None:
    queue, log = DmQueue(stamps(), 10), []
    await asyncio.gather(
        *(queue.run(Write(queue, log, prepares=lambda: asyncio.sleep(5))) for _ in range(10))
    )
    assert now_s() == 5


async def test_a_slow_write_is_overtaken_by_none_on_its_pchannel() -> None:
    queue, log = DmQueue(stamps(), 10), []
    slow = Write(queue, log, prepares=lambda: asyncio.sleep(5))
    quick = Write(queue, log)
    await asyncio.gather(queue.run(slow), queue.run(quick))
    assert log == [101, 102]


async def test_a_write_waits_for_no_other_pchannel() -> None:
    queue, log = DmQueue(stamps(), 10), []
    await asyncio.gather(
        queue.run(Write(queue, log, (A,), prepares=lambda: asyncio.sleep(5))),
        queue.run(Write(queue, log, (B,))),
    )
    assert log == [102, 101]


async def test_the_next_may_follow_while_an_append_is_on_its_way_to_the_disk() -> None:
    queue, log = DmQueue(stamps(), 10), []
    running = begun(queue.run(Write(queue, log, appends=lambda: asyncio.sleep(5))))
    running += begun(queue.run(Write(queue, log)))
    await settle()
    assert log == [101, 102]
    assert queue.oldest() == {A: 101}, "the first is not durable yet"
    await asyncio.gather(*running)


async def test_a_write_that_fails_lets_nobody_pass_those_before_it() -> None:
    queue, log = DmQueue(stamps(), 10), []
    first = Write(queue, log, prepares=lambda: asyncio.sleep(5))
    failing = Write(queue, log, prepares=refuse)
    third = Write(queue, log)
    await asyncio.gather(*map(queue.run, (first, failing, third)), return_exceptions=True)
    assert log == [101, 103]


async def test_a_write_that_is_cancelled_in_line_lets_nobody_pass_those_before_it() -> None:
    queue, log = DmQueue(stamps(), 10), []
    writes = [Write(queue, log, prepares=lambda: asyncio.sleep(5)), Write(queue, log), Write(queue, log)]
    first, second, third = begun(*map(queue.run, writes))
    await settle()
    second.cancel()
    await asyncio.gather(first, third)
    assert log == [101, 103]
    assert queue.oldest() == {}


async def test_a_collection_may_have_two_shards_on_one_pchannel() -> None:
    queue, log = DmQueue(stamps(), 10), []
    await asyncio.gather(*(queue.run(Write(queue, log, (A, A))) for _ in range(2)))
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
            async def execute(self) -> None:
                await self.queue.turn(self.task_id)
                for pchannel in pchannels:
                    logs[pchannel].append(self.ts)
                self.queue.handed_over(self.task_id)

        await queue.run(Noted(queue, log, pchannels, prepares=prepare))

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
    running = begun(*map(queue.run, writes))
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
    running = asyncio.ensure_future(queue.run(Write(queue, log, prepares=lambda: asyncio.sleep(3))))
    await settle()
    closing = asyncio.ensure_future(queue.close(patience_s=10))
    await settle()
    with pytest.raises(NotReady):
        await queue.run(Write(queue, log))
    await closing
    assert (now_s(), log, running.done()) == (3, [101], True)


async def test_a_task_that_does_not_end_is_cancelled_when_the_queue_closes() -> None:
    queue = DmQueue(stamps(), 10)
    stuck = asyncio.ensure_future(queue.run(Write(queue, [], prepares=asyncio.Event().wait)))
    await settle()
    await queue.close(patience_s=10)
    assert now_s() == 10
    assert stuck.cancelled()
    assert queue.oldest() == {}


async def test_an_empty_queue_closes_at_once() -> None:
    await DdQueue(stamps(), 10).close(patience_s=10)
    assert now_s() == 0


# reads


def test_reads_are_limited() -> None:
    queue = DqQueue(2)
    with queue.slot(), queue.slot(), pytest.raises(TaskQueueFull, match="2 reads"):
        queue.slot().__enter__()
    with queue.slot(), queue.slot():
        """Both are free again."""


def test_a_read_that_fails_frees_its_slot() -> None:
    queue = DqQueue(1)
    with pytest.raises(InvalidParameter), queue.slot():
        raise InvalidParameter("no")
    with queue.slot():
        """It is free again."""
