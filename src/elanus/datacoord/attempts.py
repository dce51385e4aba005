"""Datacoord's registry of attempts: allocates their numbers, refuses commits of those that have ended."""

from __future__ import annotations

from elanus.api.rootcoord import RootCoordApi
from elanus.core.attempts import OpenAttempts
from elanus.core.clock import Clock

OWN = 0
"""The owner of attempts that datacoord makes itself."""


class Attempts:
    """The open attempts. ``deadline_s``: how long after it was opened an attempt may commit."""

    def __init__(self, rootcoord: RootCoordApi, clock: Clock, deadline_s: float) -> None:
        self._rootcoord = rootcoord
        self._clock = clock
        self._open = OpenAttempts(deadline_s)
        self._highest = 0
        """The highest id that rootcoord is known to have given."""
        self._numbered: list[int] = []
        """The highest id known before, of each call whose numbers are on their way: they exceed it."""

    async def open(self, count: int, owner: int) -> int:
        """Open ``count`` attempts with consecutive numbers and return the first number. ``owner``: the epoch
        of the data node that makes the attempts, or `OWN`."""
        before = self._highest
        self._numbered.append(before)
        try:
            first = await self._rootcoord.alloc_ids(count)
        finally:
            self._numbered.remove(before)
        self._highest = max(self._highest, first + count - 1)
        for number in range(first, first + count):
            self._open.open(number, self._clock.monotonic_s(), owner)
        return first

    def check(self, number: int) -> None:
        """Raise `elanus.core.errors.CommitRefused` unless the attempt may still commit."""
        self._open.check(number, self._clock.monotonic_s())

    def close(self, number: int) -> None:
        self._open.close(number)

    def close_of(self, owner: int) -> None:
        self._open.close_of(owner)

    def closed_below(self, fresh: int) -> int:
        """Return the number below which all attempts have ended: files with a lower number are never
        committed. ``fresh``: an id allocated just now, which no attempt has.

        An attempt may have a number below it that is still on its way here.
        """
        oldest = self._open.oldest(self._clock.monotonic_s())
        closed = min([fresh, *(before + 1 for before in self._numbered)])
        self._highest = max(self._highest, fresh)
        return closed if oldest is None else min(oldest, closed)
