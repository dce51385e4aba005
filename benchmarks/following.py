"""The cost of following a read: for the client that asks for an explanation, and for the slow log.

    .venv/bin/python -m benchmarks.following

One process has the server, without a network, and one thread asks it: the same search, plain, followed for
the slow log, and explained. They take turns, so that other work on the machine affects them alike, and
ratios of the thread's processor time are shown. Decoding the request and encoding the response are part of
it. For reads that nobody follows, the look-ups are counted, and timed alone: their difference is too small
to be seen otherwise.
"""

from __future__ import annotations

import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.inside import Headers, Inside, inside, search_bytes
from elanus.core import trail as trails
from elanus.core.trail import Trail, current, step
from elanus.proxy.read_watch import ReadWatch

ROWS, DIM = 2_000, 64
ROUNDS, READS = 60, 40
PLAIN, ARMED = "plain", "followed for the slow log"
ASKED, AS_JSON = "explained, as JSON and as text", "explained, as JSON"


class SwitchedWatch(ReadWatch):
    """Follows reads for the slow log while it is ``armed``, and keeps the last one's trail."""

    armed = False
    last: Trail | None = None

    def begin(self, name: str, explain: Any, now_s: float) -> Trail | None:
        self._follow_until_s = now_s + 1 if self.armed else 0.0
        self.last = super().begin(name, explain, now_s)
        return self.last


class Searches:
    """One search, over and over."""

    def __init__(self, server: Inside, watch: SwitchedWatch, sent: bytes) -> None:
        self._handler = server.handler("Search")
        self._watch = watch
        self._sent = sent

    def one(self, context: Headers) -> None:
        handler = self._handler
        handler.response_serializer(handler.unary_unary(handler.request_deserializer(self._sent), context))

    def cpu_s(self, kind: str) -> float:
        """Return the processor time of one search of a kind, as the mean of some."""
        self._watch.armed = kind == ARMED
        header = {ASKED: "1", AS_JSON: "json"}.get(kind)
        context = Headers() if header is None else Headers(("elanus-explain", header))
        began_s = time.thread_time()
        for _ in range(READS):
            self.one(context)
        return (time.thread_time() - began_s) / READS

    def covered(self) -> float:
        """Return the share of the server's time for one search that is in its steps."""
        self._watch.armed = True
        began_s = time.perf_counter()
        self.one(Headers())
        took_s = time.perf_counter() - began_s
        assert self._watch.last is not None
        return self._watch.last.seconds / took_s

    def look_ups_s(self) -> float:
        """Return the time that one plain search spends on finding out that nobody follows it."""
        self._watch.armed = False
        counts = {"step": 0, "current": 0}

        def count(frame: FrameType, event: str, what: Any) -> None:
            if event == "call" and frame.f_code.co_filename == trails.__file__:
                counts["step"] += 1
            elif event == "c_call" and what == current and frame.f_code.co_filename != trails.__file__:
                counts["current"] += 1

        sys.setprofile(count)
        self.one(Headers())
        sys.setprofile(None)
        print(f"a plain search looks {sum(counts.values())} times whether it is followed")
        return counts["step"] * seconds_of(lambda: step("plan")) + counts["current"] * seconds_of(current)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long the work takes, if nothing disturbs it."""
    number = 10_000
    return min(timeit.repeat(work, number=number)) / number


def main() -> None:
    """Print the costs, and which share of the time the steps cover."""
    vectors = np.random.default_rng(4).standard_normal((ROWS, DIM), dtype=np.float32)
    watch = SwitchedWatch()
    with (
        tempfile.TemporaryDirectory(prefix="elanus-following-") as directory,
        inside(Path(directory), watch) as server,
    ):
        server.fill(vectors, {"index_type": "HNSW", "metric_type": "L2"})
        searches = Searches(server, watch, search_bytes(vectors[0]))
        kinds = [PLAIN, ARMED, AS_JSON, ASKED]
        for kind in kinds:
            searches.cpu_s(kind)
        rounds = []
        for number in range(ROUNDS):
            turn = kinds[number % len(kinds) :] + kinds[: number % len(kinds)]
            rounds.append({kind: searches.cpu_s(kind) for kind in turn})
        plain_s = median(one[PLAIN] for one in rounds)
        print(f"a plain search: {1000 * plain_s:.3f} ms of its thread")
        print(f"of which looking whether it is followed: {searches.look_ups_s() / plain_s:.2%}")
        for kind in kinds[1:]:
            ratios = sorted(one[kind] / one[PLAIN] for one in rounds)
            low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
            more_us = 1e6 * median(one[kind] - one[PLAIN] for one in rounds)
            quartiles = f"quartiles {low - 1:+.1%} to {high - 1:+.1%}"
            print(f"{kind}: {median(ratios) - 1:+.1%} ({quartiles}), {more_us:+.0f} us")
        shares = [searches.covered() for _ in range(200)]
        print(f"steps cover {median(shares):.1%} of the server's time")


if __name__ == "__main__":
    main()
