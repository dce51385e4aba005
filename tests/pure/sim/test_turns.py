"""Threads that take turns with a virtual loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from elanus.sim.coop_threads import Turns
from elanus.sim.loop import VirtualLoop

pytestmark = pytest.mark.sim

T = TypeVar("T")


def run(work: Callable[[Turns], Awaitable[T]]) -> T:
    async def whole() -> T:
        turns = Turns()
        try:
            return await work(turns)
        finally:
            turns.close()

    before, began_s = set(threading.enumerate()), time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(whole())
    # Threads of earlier tests may end at any time: a count would change with them.
    assert set(threading.enumerate()) <= before
    assert time.monotonic() - began_s < 100.0, "the waits are virtual"
    return result


def test_code_that_blocks_waits_for_the_loop_and_in_virtual_time() -> None:
    async def half(number: int) -> float:
        await asyncio.sleep(100.0)
        return number / 2

    async def work(turns: Turns) -> tuple[float, float]:
        def blocking() -> tuple[float, float]:
            turns.sleep(1000.0)
            return turns.run(half(3), 200.0), turns.now_s()

        return await turns.run_thread(blocking)

    assert run(work) == (1.5, 1100.0)


def test_threads_wait_for_a_lock_whose_holder_waits_for_time_to_pass() -> None:
    async def work(turns: Turns) -> list[tuple[str, float]]:
        lock, inside = turns.lock(), list[tuple[str, float]]()

        def blocking(name: str) -> None:
            with lock:
                inside.append((name, turns.now_s()))
                turns.sleep(10.0)

        async def cancelled() -> None:
            async with asyncio.timeout(15.0):
                await turns.run_thread(lambda: blocking("b"))

        ends = await asyncio.gather(
            turns.run_thread(lambda: blocking("a")),
            cancelled(),
            turns.run_thread(lambda: blocking("c")),
            return_exceptions=True,
        )
        assert [type(end) for end in ends] == [type(None), TimeoutError, type(None)]
        return inside

    assert run(work) == [("a", 0.0), ("b", 10.0), ("c", 15.0)]


def test_one_runs_at_a_time_and_in_the_order_of_the_waits() -> None:
    async def work(turns: Turns) -> list[str]:
        events: list[str] = []

        def blocking(name: str, pause_s: float) -> None:
            for turn in range(2):
                events.append(f"{name}{turn}")
                turns.sleep(pause_s)

        names = [("a", 3.0), ("b", 2.0)]
        await asyncio.gather(*(turns.run_thread(lambda n=n, s=s: blocking(n, s)) for n, s in names))
        return events

    assert run(work) == ["a0", "b0", "b1", "a1"]


def test_what_is_waited_for_raises_in_the_thread_and_what_that_raises_comes_out() -> None:
    async def never() -> None:
        await asyncio.sleep(1e6)

    async def work(turns: Turns) -> str:
        def blocking() -> str:
            with pytest.raises(TimeoutError):
                turns.run(never(), 5.0)
            raise KeyError("expected")

        with pytest.raises(KeyError, match="expected"):
            await turns.run_thread(blocking)
        return "done"

    assert run(work) == "done"


def test_a_signal_is_seen_when_it_is_set_and_not_before() -> None:
    async def work(turns: Turns) -> tuple[bool, bool, float]:
        signal = turns.signal()
        asyncio.get_running_loop().call_later(7.0, signal.set)
        return await turns.run_thread(lambda: (signal.wait(5.0), signal.wait(5.0), turns.now_s()))

    assert run(work) == (False, True, 7.0)


def test_who_is_cancelled_has_the_thread_clean_up() -> None:
    async def work(turns: Turns) -> list[str]:
        events: list[str] = []

        def blocking() -> None:
            try:
                turns.sleep(100.0)
            finally:
                events.append("cleaned up")

        reading = asyncio.ensure_future(turns.run_thread(blocking))
        await asyncio.sleep(1.0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await turns.run_thread(lambda: events.append("used again"))
        return events

    assert run(work) == ["cleaned up", "used again"]


def test_work_in_the_background_goes_on_and_can_be_cancelled() -> None:
    async def work(turns: Turns) -> list[str]:
        events: list[str] = []

        async def note(what: str, after_s: float) -> None:
            await asyncio.sleep(after_s)
            events.append(what)

        def blocking() -> None:
            turns.begin(note("begun", 1.0))
            call_off = turns.begin(note("called off", 2.0))
            turns.sleep(1.5)
            call_off()
            turns.sleep(2.0)

        await turns.run_thread(blocking)
        return events

    assert run(work) == ["begun"]
