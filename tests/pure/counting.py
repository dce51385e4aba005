"""Counting work instead of time: how many functions of Elanus are called while something is done."""

from __future__ import annotations

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
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if not frame.f_globals.get("__name__", "").startswith("elanus."):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        steps += event == "opcode"
        return trace

    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(before)
        gc.enable()
    assert steps, "nothing was done"
    return steps
