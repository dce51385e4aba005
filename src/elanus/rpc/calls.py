"""Running calls to a target that may go down: they end when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from elanus.core.errors import Unavailable
from elanus.rpc import deadlines


class Calls:
    """``name``: of the target of the calls, for the error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, method: str, call: Awaitable[Any]) -> Any:
        """Return the call's result. Raises what the call raises, and `Unavailable` when `end` came first."""
        running = asyncio.ensure_future(call)
        deadlines.hand_on(running)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await running
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                running.cancel()
                raise
            raise Unavailable(f"{self.name} went down during {method}; retry when it is back") from None

    def end(self) -> None:
        """End all calls: their callers get `Unavailable`. Whether a call had its effect is unknown."""
        for call in tuple(self._running):
            call.cancel()
