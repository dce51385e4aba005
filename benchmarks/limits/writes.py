"""Partitions, with a flush of all of them; and deletes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import msgspec
import numpy as np
from pymilvus import MilvusClient

from benchmarks.limits.deleted import add_deletes
from benchmarks.limits.figures import Look, Trickle
from benchmarks.limits.growth import Clock, Growth, one_by_one
from benchmarks.limits.server import CALL_S, DIM, LimitServer, count, create, serving

_NAME = "rows"
_FLUSH_S = 600.0
_POLL_S = 0.05
_ZERO = np.zeros(DIM, np.float32)
_NO_COMPACTION = {"compaction.enabled": False}


class Partitions:
    """Partitions of one loaded collection. At each look every partition gets a row, and all are flushed."""

    def __init__(self, server: LimitServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._rows = 0
        create(server.client, _NAME, load=True)

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        return one_by_one(self._add, have, to, until_s, self._clock)

    def look(self, have: int) -> Look:
        client = self._server.client
        began_s = time.monotonic()
        for number in range(have):
            row = {"id": self._rows, "v": _ZERO}
            client.insert(_NAME, [row], partition_name=_partition(number), timeout=CALL_S)
            self._rows += 1
        insert_ms = 1000 * (time.monotonic() - began_s) / have
        flush_s, peak_mb = self._flush(client)
        found = self._server.look(lambda client: count(client, _NAME) == self._rows)
        more = {
            "insert of a row": f"{insert_ms:.1f} ms",
            "flush of a row in each": f"{flush_s:.1f} s",
            "largest worker of Spark": f"{peak_mb:,.0f} MB",
        }
        return msgspec.structs.replace(found, more=more)

    def trickle(self, have: int) -> Trickle | None:
        return None

    def _add(self, number: int) -> None:
        self._server.client.create_partition(_NAME, _partition(number), timeout=CALL_S)

    def _flush(self, client: MilvusClient) -> tuple[float, float]:
        """Flush; return the seconds, and what Spark's Python workers had in memory at most."""
        began_s, peak_mb = time.monotonic(), 0.0
        with ThreadPoolExecutor(1) as thread:
            flushed = thread.submit(client.flush, _NAME, timeout=_FLUSH_S)
            while not flushed.done():
                peak_mb = max(peak_mb, self._server.running.usage().rss_mb.get("workers", 0.0))
                wait([flushed], _POLL_S)
            flushed.result()
        return time.monotonic() - began_s, peak_mb


class Deletes:
    """Deletes of keys, most of which no row has; a few segments are sealed and loaded before."""

    KEYS = 10_000
    """How many keys one call deletes, and how many rows there are."""
    CALLED_MAX = 10_000_000
    """Rows beyond this number are written while the server is stopped: sending them would take too long."""

    def __init__(self, server: LimitServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        client = server.client
        create(client, _NAME, load=True)
        vectors = np.random.default_rng(1).random((self.KEYS, DIM), dtype=np.float32)
        client.insert(_NAME, [{"id": -1 - key, "v": vector} for key, vector in enumerate(vectors)])
        client.flush(_NAME, timeout=_FLUSH_S)

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        if to <= self.CALLED_MAX:
            return one_by_one(self._delete, have, to, until_s, self._clock, self.KEYS)
        self._server.stop()
        began_s = self._clock()
        add_deletes(self._server.data_dir, to - have, have)
        one_more_ms = 1000 * (self._clock() - began_s) / (to - have)
        self._server.started(lambda client: count(client, _NAME) == self.KEYS)
        return Growth(to, one_more_ms)

    def look(self, have: int) -> Look:
        self._server.client.flush(_NAME, timeout=_FLUSH_S)
        return self._server.look(lambda client: count(client, _NAME) == self.KEYS)

    def trickle(self, have: int) -> Trickle | None:
        return None

    def _delete(self, number: int) -> None:
        self._server.client.delete(_NAME, ids=list(range(number, number + self.KEYS)), timeout=CALL_S)


@contextmanager
def partitions(idle_s: float, clock: Clock, open_files_max: int) -> Iterator[Partitions]:
    with serving(idle_s, _NO_COMPACTION, open_files_max) as server:
        yield Partitions(server, clock)


@contextmanager
def deletes(idle_s: float, clock: Clock) -> Iterator[Deletes]:
    with serving(idle_s) as server:
        yield Deletes(server, clock)


def _partition(number: int) -> str:
    return f"p{number}"
