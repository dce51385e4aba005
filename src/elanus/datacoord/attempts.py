"""Datacoord's book of attempts: hands out their numbers, refuses commits of those that have ended."""

from __future__ import annotations

from elanus.core.attempts import OpenAttempts
from elanus.core.world import Clock
from elanus.rpc.rootcoord import RootCoordApi

OWN = 0
"""The owner of attempts that datacoord makes itself."""


class Attempts:
    """``deadline_s``: how long after its opening an attempt may commit."""

    def __init__(self, rootcoord: RootCoordApi, clock: Clock, deadline_s: float) -> None:
        self._rootcoord = rootcoord
        self._clock = clock
        self._open = OpenAttempts(deadline_s)

    async def open(self, count: int, owner: int) -> int:
        """The first of ``count`` consecutive numbers. ``owner``: the epoch of the data node that tries, or
        `OWN`."""
        first = await self._rootcoord.alloc_ids(count)
        for number in range(first, first + count):
            self._open.open(number, self._clock.monotonic_s(), owner)
        return first

    def check(self, number: int) -> None:
        """Raises `elanus.core.errors.CommitRefused`."""
        self._open.check(number, self._clock.monotonic_s())

    def close(self, number: int) -> None:
        self._open.close(number)

    def close_of(self, owner: int) -> None:
        self._open.close_of(owner)

    def closed_below(self, fresh: int) -> int:
        """Of files with a lower number nothing will be committed any more. ``fresh``: an id allocated just
        now, which no attempt has."""
        oldest = self._open.oldest(self._clock.monotonic_s())
        return fresh if oldest is None else min(oldest, fresh)
