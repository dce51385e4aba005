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
