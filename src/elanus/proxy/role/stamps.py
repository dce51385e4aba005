"""A proxy's source of timestamps: an oracle in its own process, or a root coordinator elsewhere.

A timestamp is never allocated before the request it stamps has arrived: nothing is prefetched. Requests that
arrive while a call to the oracle is under way share the next call. Calls never overlap, so stamps are given
out in the order of the requests, and each is larger than all stamps given out before. A write that waits for
its stamp will therefore be stamped above `Stamps.floor`, and the proxy's tick stays at that floor until then.

A root coordinator that was replaced and does not know it yet still answers, with timestamps below those of
its successor. The successor may have had a report of this proxy, and ticked past them (`Stamps.reported`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from elanus.core.errors import DeadlineExceeded, ElanusError, Internal, Unavailable
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms
from elanus.rpc.serving.waiting import about_to_wait

_GUESS_MAX_S = 1.0
"""The proxy's own tick reports request a stamp several times within this time."""


class Stamps(Protocol):
    """Fresh timestamps. Everything but `now` and `about_now` belongs to the event loop."""

    def floor(self) -> Timestamp:
        """Return a timestamp below every stamp that is still awaited or is requested from now on."""
        ...

    def reported(self, ts: Timestamp) -> None:
        """Note that ticks up to ``ts`` may pass: no call from now on may give a stamp at or below it."""
        ...

    async def fresh(self) -> Timestamp:
        """Return a fresh timestamp. Raises `Unavailable` while no oracle can be reached."""
        ...

    def now(self) -> Timestamp:
        """As `fresh`, for threads other than the event loop's."""
        ...

    def about_now(self) -> Timestamp:
        """Return the current time to within some milliseconds. Safe from any thread.

        It is not an allocated timestamp and must not be used to stamp anything.
        """
        ...


class OwnStamps:
    """Timestamps of an oracle in this process. ``allocate`` returns at once, from any thread."""

    def __init__(self, allocate: Callable[[], Timestamp]) -> None:
        self.now = allocate
        self.about_now = allocate

    def floor(self) -> Timestamp:
        """Return `NO_TIMESTAMP`: `fresh` never waits, so no report is made while a stamp is awaited."""
        return NO_TIMESTAMP

    def reported(self, ts: Timestamp) -> None:
        """Do nothing: there is one oracle in a process."""

    async def fresh(self) -> Timestamp:
        return self.now()


class RemoteStamps:
    """Timestamps of the root coordinator, by remote calls. Must be created on the event loop it works on.

    ``allocate`` takes a count and returns the first timestamp. ``timeout_s``: how long a thread waits.
    """

    def __init__(self, allocate: Callable[[int], Awaitable[Timestamp]], timeout_s: float) -> None:
        self._allocate = allocate
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._floor = NO_TIMESTAMP
        self._reported = NO_TIMESTAMP
        self._last = (NO_TIMESTAMP, float("-inf"))
        self._waiting: list[asyncio.Future[Timestamp]] = []
        self._asking: asyncio.Task[None] | None = None

    def floor(self) -> Timestamp:
        return self._floor

    def reported(self, ts: Timestamp) -> None:
        self._reported = max(self._reported, ts)

    async def fresh(self) -> Timestamp:
        stamp: asyncio.Future[Timestamp] = self._loop.create_future()
        self._waiting.append(stamp)
        if self._asking is None:
            self._asking = self._loop.create_task(self._ask(), name="timestamps")
        return await stamp

    def now(self) -> Timestamp:
        """As `fresh`, for other threads. Also raises `DeadlineExceeded`."""
        about_to_wait()
        stamp = asyncio.run_coroutine_threadsafe(self.fresh(), self._loop)
        try:
            return stamp.result(self._timeout_s)
        except TimeoutError:
            stamp.cancel()
            raise DeadlineExceeded(
                f"the root coordinator gave no timestamp within {self._timeout_s:g} s; retry"
            ) from None

    def about_now(self) -> Timestamp:
        """Return the last stamp plus the time since it arrived, or a fresh one if that is too long ago."""
        stamp, came_s = self._last
        past_s = time.monotonic() - came_s
        if past_s > _GUESS_MAX_S:
            return self.now()
        return minus_ms(stamp, -round(1000 * past_s))

    async def _ask(self) -> None:
        """Call the oracle, one call after the other, as long as requests are waiting."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                reported = self._reported  # a call that began before a report may be answered with less
                try:
                    first = await self._allocate(len(batch))
                    if first <= reported:
                        raise Unavailable(
                            f"a root coordinator that was replaced gave the timestamp {first}, at or below "
                            f"{reported}, which is reported; retry with its successor"
                        )
                    self._give(batch, first)
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
            if not stamp.done():  # otherwise the caller has given up
                stamp.set_result(Timestamp(first + number))
