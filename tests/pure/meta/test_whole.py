"""A change that was begun is completed, even when its caller stops waiting for it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from elanus.meta.cancellation import uncancellable


async def test_a_cancelled_caller_leaves_no_half_of_a_change() -> None:
    steps: list[str] = []

    @uncancellable
    async def change() -> None:
        steps.append("persisted")
        await asyncio.sleep(1)
        steps.append("shown")

    caller = asyncio.ensure_future(change())
    await asyncio.sleep(0.5)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert steps == ["persisted", "shown"], "the caller ends after the change, not within it"


async def test_it_answers_and_raises_as_the_change_does() -> None:
    @uncancellable
    async def change(value: int) -> int:
        return 100 // value

    assert await change(5) == 20
    with pytest.raises(ZeroDivisionError):
        await change(0)


async def test_an_error_after_a_second_cancellation_is_nobodys() -> None:
    """The caller is gone by then, and the event loop must not report the error as one that nobody handled."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    go_on = asyncio.Event()

    @uncancellable
    async def change() -> None:
        await go_on.wait()
        raise ZeroDivisionError

    caller = asyncio.create_task(change())
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    await asyncio.sleep(0.01)
    gc.collect()
    assert reported == []
