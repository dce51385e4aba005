"""Counting work instead of time: how many functions of Elanus are called while something is done."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any


async def calls_of(work: Callable[[], Awaitable[object]]) -> int:
    """Return the calls until the work is done. Garbage of other tests is not collected meanwhile."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_globals.get("__name__", "").startswith("elanus.")

    gc.disable()
    sys.setprofile(count)
    try:
        await work()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert calls, "nothing was done"
    return calls


async def steps_of(work: Callable[[], Awaitable[object]]) -> int:
    """Return the bytecode steps that Elanus takes until the work is done: loops count, too.

    Work inside built-in functions, such as copying a dict, is not seen.
    """
    turns = [0]
    await _count_steps(work, turns)
    return sum(turns)


async def turns_of(work: Callable[[], Awaitable[object]]) -> list[int]:
    """As `steps_of`, for each turn of the event loop: between two of them other tasks run.

    For work that waits for no time to pass: on virtual time none does meanwhile.
    """
    turns = [0]

    async def run_meanwhile() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    other = asyncio.create_task(run_meanwhile())
    try:
        await _count_steps(work, turns)
    finally:
        other.cancel()
    return turns


async def _count_steps(work: Callable[[], Awaitable[object]], turns: list[int]) -> None:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("elanus."):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        turns[-1] += event == "opcode"
        return trace

    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(before)
        gc.enable()
    assert any(turns), "nothing was done"
