"""The delay of the event loop is measured, and its longest value is shown for a while."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from elanus.server.loop_lag import LoopLag


class BlockedLoop:
    """The clock of a loop that seems to be blocked at some times."""

    def __init__(self) -> None:
        self.blocked_s = 0.0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() + self.blocked_s


async def test_the_longest_delay_is_shown_for_a_while() -> None:
    loop, seen = BlockedLoop(), list[float]()
    lag = LoopLag(loop.now_s, seen.append)
    measuring = asyncio.create_task(lag.keep())
    await asyncio.sleep(1.02)
    assert (len(seen), max(seen) < 1e-6, lag.longest_s < 1e-6) == (20, True, True)
    loop.blocked_s += 0.3
    await asyncio.sleep(20)
    assert (round(lag.longest_s, 6), round(max(seen), 6)) == (0.3, 0.3)
    assert sum(late_s > 0.1 for late_s in seen) == 1
    await asyncio.sleep(61)
    assert lag.longest_s < 1e-6
    measuring.cancel()


async def test_a_long_delay_is_logged() -> None:
    loop = BlockedLoop()
    measuring = asyncio.create_task(LoopLag(loop.now_s, lambda _: None).keep())
    with capture_logs() as logs:
        await asyncio.sleep(0.01)
        loop.blocked_s += 0.5
        await asyncio.sleep(1)
        loop.blocked_s += 2
        await asyncio.sleep(1)
    assert [(entry["event"], entry["late_ms"]) for entry in logs] == [("event loop late", 2000)]
    measuring.cancel()
