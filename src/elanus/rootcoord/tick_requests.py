"""Requests for ticks: who waits for which pchannels to be ticked past which timestamp.

A thousand readers may wait at the same time, for example while as many collections are loaded after a
restart. So a tick looks only at the requests that it fulfils, not at all that are waiting.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


@dataclass(eq=False, slots=True)
class TickRequest:
    """``missing``: how many pchannels have not been ticked far enough yet."""

    done: asyncio.Future[None]
    missing: int


class TickRequests:
    """The open requests. For the loop thread."""

    def __init__(self) -> None:
        self._open: dict[TickRequest, None] = {}  # in the order they came: a failure wakes them in it
        self._waiting: dict[str, list[tuple[Timestamp, int, TickRequest]]] = {}
        self._numbers = count()
        self._latest = NO_TIMESTAMP

    @property
    def latest(self) -> Timestamp:
        """No open request asks for a later tick."""
        return self._latest

    @property
    def is_fulfilled(self) -> bool:
        """Whether nothing is waited for; requests may still be open until their callers run."""
        return not self._waiting

    def pchannels(self) -> set[str]:
        """Return the pchannels that requests wait for."""
        return set(self._waiting)

    def add(self, pchannels: Iterable[str], at_least: Timestamp) -> TickRequest:
        """Add a request, whose future is done when these pchannels have been ticked so far."""
        names = set(pchannels)
        request = TickRequest(asyncio.get_running_loop().create_future(), len(names))
        self._latest = max(self._latest, at_least) if self._open else at_least
        self._open[request] = None
        for name in names:
            heapq.heappush(self._waiting.setdefault(name, []), (at_least, next(self._numbers), request))
        return request

    def remove(self, request: TickRequest) -> None:
        """Forget a request: it is fulfilled, or nobody waits for it any more."""
        self._open.pop(request, None)
        if not self._open:
            self._waiting.clear()

    def ticked(self, ticks: Mapping[str, Timestamp]) -> None:
        """Note that these ticks are in the log."""
        for pchannel, tick in ticks.items():
            waiting = self._waiting.get(pchannel, [])
            while waiting and (waiting[0][0] <= tick or waiting[0][2] not in self._open):
                _, _, request = heapq.heappop(waiting)
                request.missing -= 1
                if not request.missing and not request.done.done():
                    request.done.set_result(None)
            if not waiting:
                self._waiting.pop(pchannel, None)

    def refuse(self, pchannel: str, error: Exception) -> None:
        """Have the open requests that wait for this pchannel raise the error."""
        for _, _, request in self._waiting.pop(pchannel, ()):
            if not request.done.done():
                request.done.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Have all open requests raise the error."""
        for request in self._open:
            if not request.done.done():
                request.done.set_exception(error)
        self._end()

    def cancel(self) -> None:
        """Cancel all open requests."""
        for request in self._open:
            request.done.cancel()
        self._end()

    def _end(self) -> None:
        self._open.clear()
        self._waiting.clear()
