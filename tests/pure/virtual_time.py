"""How the roles' tests run: each on a virtual loop of its own (`elanus.sim.loop`), as simulated runs do.

So a test of a role that sleeps for seconds takes none, and takes the same course every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from elanus.sim.loop import START_WALL_MS, NothingWillHappen, VirtualClock, VirtualLoop

__all__ = ["START_WALL_MS", "NothingWillHappen", "VirtualClock", "VirtualLoop", "run_virtually"]

TEST_TIMEOUT_S = 3600.0
"""In virtual time: a test that is not done by then goes round in circles."""


def run_virtually(test: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a fresh virtual loop. An error that a background task died of fails it too."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        runner.run(asyncio.wait_for(test, TEST_TIMEOUT_S))
    if unseen:
        raise AssertionError(f"in the background: {unseen}")
