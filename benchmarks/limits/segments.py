"""Sealed segments of one loaded collection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from benchmarks.limits.figures import Look, Trickle
from benchmarks.limits.growth import FAILURES, Clock, Gave, Growth, text_of
from benchmarks.limits.sealed import add_segments
from benchmarks.limits.server import DIM, LimitServer, count, create, serving

ROWS = 20
"""Rows of each segment."""
_NAME = "rows"
_FLUSH_S = 300.0
_SETTINGS = {"compaction.enabled": False}
"""It would merge segments as small as these."""


class Segments:
    """Written while the server is stopped; ``one_more_ms`` is its time until the first answer, by segment."""

    def __init__(self, server: LimitServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        create(server.client, _NAME, load=True)
        server.client.insert(_NAME, [_row(key) for key in range(ROWS)])
        server.client.flush(_NAME, timeout=_FLUSH_S)
        self._rows = ROWS
        self._restart_s = 0.0

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        self._server.stop()
        more = to - max(1, have)
        add_segments(self._server.data_dir, more, ROWS, self._rows)
        self._rows += more * ROWS
        try:
            self._restart_s = self._server.started(lambda client: count(client, _NAME) == self._rows)
        except FAILURES as error:
            raise Gave(to, text_of(error)) from error
        return Growth(to, 1000 * self._restart_s / to)

    def look(self, have: int) -> Look:
        client = self._server.client
        count_ms = self._timed_ms(lambda: count(client, _NAME))
        page_ms = self._timed_ms(lambda: client.query(_NAME, filter="", limit=10, output_fields=["id"]))
        search_ms = self._timed_ms(lambda: client.search(_NAME, [np.zeros(DIM, np.float32)], limit=10))
        delete_ms = self._timed_ms(lambda: client.delete(_NAME, ids=[-1]))
        found = self._server.look()
        more = {
            "strong count": f"{count_ms:.0f} ms",
            "query, limit 10": f"{page_ms:.0f} ms",
            "search": f"{search_ms:.0f} ms",
            "delete of a key": f"{delete_ms:.0f} ms",
        }
        return msgspec.structs.replace(found, restart_s=round(self._restart_s, 1), more=more)

    def trickle(self, have: int) -> Trickle | None:
        return None

    def _timed_ms(self, call: Callable[[], object]) -> float:
        """The second of two calls: the first one may fill caches."""
        call()
        began_s = self._clock()
        call()
        return 1000 * (self._clock() - began_s)


def _row(key: int) -> dict[str, object]:
    return {"id": key, "v": np.zeros(DIM, np.float32)}


@contextmanager
def segments(idle_s: float, clock: Clock) -> Iterator[Segments]:
    with serving(idle_s, _SETTINGS) as server:
        yield Segments(server, clock)
