"""Where a proxy gets its timestamps: from an oracle in its own process, or from a root coordinator elsewhere.

A timestamp is never allocated before the request it stamps has arrived: nothing is prefetched. Requests that
come while one call to the oracle is under way share the next one. Calls follow each other, never overlap, so
stamps are given in the order in which they were asked for, and each is above all that were given before: a
write that waits for its stamp is known to come above `Stamps.floor`, and its proxy's tick stays at that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from elanus.core.errors import DeadlineExceeded, ElanusError, Internal
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms

_GUESS_MAX_S = 1.0
"""The proxy's own reports ask for a stamp several times in this long."""


class Stamps(Protocol):
    """Fresh timestamps. Everything but `now` belongs to the event loop."""

    def floor(self) -> Timestamp:
        """Whatever is asked for from here on, or is still waited for, will be larger."""
        ...

    async def fresh(self) -> Timestamp:
        """Raises `Unavailable` while there is no oracle to be reached."""
        ...

    def now(self) -> Timestamp:
        """As `fresh`, for other threads than the event loop's."""
        ...

    def about_now(self) -> Timestamp:
        """Not allocated, and not to stamp anything with: what the time is, within some milliseconds, for who
        only wants to know that. For any thread."""
        ...


class OwnStamps:
    """Those of an oracle in this process. ``allocate`` returns at once, from any thread."""

    def __init__(self, allocate: Callable[[], Timestamp]) -> None:
        self.now = allocate
        self.about_now = allocate

    def floor(self) -> Timestamp:
        """Nobody waits for a stamp, so nobody can ask while one is waited for."""
        return NO_TIMESTAMP

    async def fresh(self) -> Timestamp:
        return self.now()


class RemoteStamps:
    """Those of the root coordinator, by calls. Made on the event loop that it is to work on.

    ``allocate`` takes how many, and returns the first of them. ``timeout_s``: how long a thread waits.
    """

    def __init__(self, allocate: Callable[[int], Awaitable[Timestamp]], timeout_s: float) -> None:
        self._allocate = allocate
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._floor = NO_TIMESTAMP
        self._last = (NO_TIMESTAMP, float("-inf"))
        self._waiting: list[asyncio.Future[Timestamp]] = []
        self._asking: asyncio.Task[None] | None = None

    def floor(self) -> Timestamp:
        return self._floor

    async def fresh(self) -> Timestamp:
        stamp: asyncio.Future[Timestamp] = self._loop.create_future()
        self._waiting.append(stamp)
        if self._asking is None:
            self._asking = self._loop.create_task(self._ask(), name="timestamps")
        return await stamp

    def now(self) -> Timestamp:
        """Raises `DeadlineExceeded` too."""
        stamp = asyncio.run_coroutine_threadsafe(self.fresh(), self._loop)
        try:
            return stamp.result(self._timeout_s)
        except TimeoutError:
            stamp.cancel()
            raise DeadlineExceeded(
                f"the root coordinator gave no timestamp within {self._timeout_s:g} s; retry"
            ) from None

    def about_now(self) -> Timestamp:
        """From the last stamp, and how long ago it came."""
        stamp, came_s = self._last
        past_s = time.monotonic() - came_s
        if past_s > _GUESS_MAX_S:
            return self.now()
        return minus_ms(stamp, -round(1000 * past_s))

    async def _ask(self) -> None:
        """One call after the other, as long as anybody waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    self._give(batch, await self._allocate(len(batch)))
                except ElanusError as error:
                    for stamp in batch:
                        if not stamp.done():
                            stamp.set_exception(type(error)(error.message))
        finally:
            self._asking = None

    def _give(self, batch: list[asyncio.Future[Timestamp]], first: Timestamp) -> None:
        if first <= self._floor:
            raise Internal(f"the oracle gave {first} after {self._floor}: a timestamp must never go back")
        self._floor = Timestamp(first + len(batch) - 1)
        self._last = (self._floor, time.monotonic())
        for number, stamp in enumerate(batch):
            if not stamp.done():  # else who asked has given up
                stamp.set_result(Timestamp(first + number))
