"""A coroutine that is begun at once behaves as one that is awaited."""

from __future__ import annotations

import asyncio

import pytest

from elanus.core.begun import Begun


async def test_it_runs_up_to_its_first_wait_and_returns_its_result() -> None:
    steps: list[str] = []
    gate = asyncio.Event()

    async def work() -> str:
        steps.append("begun")
        await gate.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        steps.append("ended")
        return "done"

    begun = Begun(work())
    assert steps == ["begun"]
    asyncio.get_running_loop().call_soon(gate.set)
    assert await begun == "done"
    assert steps == ["begun", "ended"]


async def test_work_that_never_waits_has_its_result() -> None:
    async def work() -> int:
        return 7

    assert await Begun(work()) == 7


async def test_its_errors_are_raised_where_it_is_awaited() -> None:
    async def failing(future: asyncio.Future[None]) -> None:
        await future

    future = asyncio.get_running_loop().create_future()
    begun = Begun(failing(future))
    future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await begun

    async def at_once() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        Begun(at_once())


async def test_a_cancelled_task_cancels_it() -> None:
    outcomes: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            await asyncio.sleep(0)
            outcomes.append("cleaned up")
            raise

    async def waits() -> None:
        await Begun(work())

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcomes == ["cancelled", "cleaned up"]
