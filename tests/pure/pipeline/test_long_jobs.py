"""Long jobs share all slots but one, by their cores, in their order, also when the slots change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from elanus.pipeline.long_jobs import LongJobs


@dataclass
class Bench:
    slots: int
    memory_bytes: int | None = None
    running: list[str] = field(default_factory=list)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    ends: dict[str, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs = LongJobs(lambda: self.slots, self.memory_bytes)

    async def start(self, name: str, wanted: int, memory_bytes: int = 0) -> None:
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._job(name, wanted, memory_bytes))
        await asyncio.sleep(1)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await asyncio.sleep(1)

    async def _job(self, name: str, wanted: int, memory_bytes: int) -> None:
        async with self.jobs.share(wanted, memory_bytes):
            self.running.append(name)
            await self.ends[name].wait()
            self.running.remove(name)


async def test_a_slot_is_left_and_jobs_have_their_turns_in_order() -> None:
    bench = Bench(slots=9)
    for name, wanted in (("a", 4), ("b", 4), ("c", 4), ("d", 1)):
        await bench.start(name, wanted)
    assert bench.running == ["a", "b"], "d would fit, but c came first"
    await bench.end("a")
    assert bench.running == ["b", "c"]
    await bench.end("b")
    assert bench.running == ["c", "d"]


async def test_workers_that_join_are_used_and_those_that_leave_are_not_waited_for() -> None:
    bench = Bench(slots=2)
    for name in "abc":
        await bench.start(name, 1)
    assert bench.running == ["a"]
    bench.slots = 4
    await bench.start("d", 1)
    assert bench.running == ["a", "b", "c"]
    bench.slots = 2
    for name in "abc":
        await bench.end(name)
    assert bench.running == ["d"]


async def test_a_job_larger_than_the_room_runs_alone() -> None:
    bench = Bench(slots=2)
    for name, wanted in (("a", 1), ("b", 8), ("c", 1)):
        await bench.start(name, wanted)
    assert bench.running == ["a"]
    await bench.end("a")
    assert bench.running == ["b"]
    await bench.end("b")
    assert bench.running == ["c"]


async def test_jobs_that_do_not_fit_into_memory_together_run_one_after_the_other() -> None:
    bench = Bench(slots=9, memory_bytes=100)
    for name, memory_bytes in (("a", 60), ("b", 40), ("c", 1), ("d", 500), ("e", 0)):
        await bench.start(name, 1, memory_bytes)
    assert bench.running == ["a", "b"]
    await bench.end("a")
    assert bench.running == ["b", "c"], "d is larger than all of it, and has it alone"
    await bench.end("b")
    assert bench.running == ["c"]
    await bench.end("c")
    assert bench.running == ["d"]
    await bench.end("d")
    assert bench.running == ["e"]


async def test_a_cancelled_job_gives_its_share_or_its_turn_back() -> None:
    bench = Bench(slots=2)
    for name in "abcd":
        await bench.start(name, 1)
    bench.tasks["b"].cancel()
    await asyncio.sleep(1)
    await bench.end("a")
    assert bench.running == ["c"]
    bench.ends["c"].set()
    await asyncio.sleep(0)  # c has ended, and d has its turn but has not begun
    bench.tasks["d"].cancel()
    await bench.start("e", 1)
    assert bench.running == ["e"]
