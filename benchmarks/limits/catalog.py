"""Collections, loaded collections, and vchannels (the shards of loaded collections)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pymilvus.exceptions import MilvusException

from benchmarks.limits.figures import Look, Trickle
from benchmarks.limits.growth import Clock, Growth, one_by_one
from benchmarks.limits.server import CALL_S, DIM, LimitServer, count, create, serving
from benchmarks.metrics import percentile
from elanus.core.limits import SHARDS_MAX


class Collections:
    """Empty collections. ``load``: loaded ones. ``shards``: units are vchannels then, so many of each."""

    def __init__(
        self, server: LimitServer, clock: Clock, *, load: bool, shards: int = 1, trickle_s: float = 0.0
    ) -> None:
        self._server = server
        self._clock = clock
        self._load = load
        self._shards = shards
        self._trickle_s = trickle_s

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        return one_by_one(self._add, have, to, until_s, self._clock, self._shards)

    def look(self, have: int) -> Look:
        last = _name(have - self._shards)

        def answers(client: object) -> bool:
            if self._load:
                return count(self._server.client, last) == 0
            return bool(self._server.client.describe_collection(last, timeout=CALL_S))

        return self._server.look(answers)

    def trickle(self, have: int) -> Trickle | None:
        if not self._trickle_s:
            return None
        names = [_name(number) for number in range(0, have, self._shards)]
        return trickle(self._server, names, self._trickle_s)

    def _add(self, number: int) -> None:
        create(self._server.client, _name(number), self._shards, load=self._load)


@contextmanager
def collections(idle_s: float, clock: Clock) -> Iterator[Collections]:
    with serving(idle_s) as server:
        yield Collections(server, clock, load=False)


@contextmanager
def loaded(idle_s: float, clock: Clock, trickle_s: float) -> Iterator[Collections]:
    with serving(idle_s) as server:
        yield Collections(server, clock, load=True, trickle_s=trickle_s)


@contextmanager
def vchannels(idle_s: float, clock: Clock) -> Iterator[Collections]:
    with serving(idle_s) as server:
        yield Collections(server, clock, load=True, shards=SHARDS_MAX)


def trickle(server: LimitServer, names: list[str], seconds: float) -> Trickle:
    """Write single rows into the collections in turn for so long, each after the one before."""
    vector = np.zeros(DIM, np.float32)
    took_ms: list[float] = []
    refused, said = 0, ""
    before_s, began_s = server.running.usage().total_cpu_s, time.monotonic()
    until_s = began_s + seconds
    while time.monotonic() < until_s:
        row = {"id": len(took_ms), "v": vector}
        sent_s = time.monotonic()
        try:
            server.client.insert(names[len(took_ms) % len(names)], [row], timeout=CALL_S)
        except MilvusException as error:
            refused += 1
            said = said or str(error)
        took_ms.append(1000 * (time.monotonic() - sent_s))
    used_s, seconds = server.running.usage().total_cpu_s - before_s, time.monotonic() - began_s
    return Trickle(
        collections=len(names),
        seconds=round(seconds, 1),
        rows=len(took_ms),
        refused=refused,
        median_ms=round(statistics.median(took_ms), 1),
        p99_ms=round(percentile(took_ms, 99), 1),
        longest_ms=round(max(took_ms), 1),
        cpu_percent=round(100 * used_s / seconds, 1),
        growing_mb=round(server.growing_bytes() / 1e6, 1),
        said=said,
    )


def _name(number: int) -> str:
    return f"c{number}"
