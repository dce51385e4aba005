"""The survivors of a long full collection are left out of the next ones until many of them are gone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from elanus.server.collector_pauses import CollectorPauses


class Bench:
    """``look``: a full collection that takes this long, with so many objects left out of it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.left_out = 0
        self.counted = 0
        self.cpu_share = 0.0
        self.done: list[str] = []
        self.pauses = CollectorPauses(
            lambda: self.now_s,
            lambda: self.done.append("freeze"),
            lambda: self.done.append("unfreeze"),
            self._count,
            lambda: self.now_s * self.cpu_share,
        )

    def _count(self) -> int:
        self.counted += 1
        return self.left_out

    def look(self, took_s: float, left_out: int = 0, generation: int = 2) -> list[str]:
        info = {"generation": generation, "collected": 0, "uncollectable": 0}
        self.left_out = left_out
        self.pauses("start", info)
        self.now_s += took_s
        self.pauses("stop", info)
        done, self.done = self.done, []
        return done


def test_short_and_partial_collections_change_nothing() -> None:
    bench = Bench()
    assert bench.look(0.01) == []
    assert bench.look(1.0, generation=1) == []
    assert bench.counted == 0


def test_what_survives_a_long_collection_is_left_out_until_much_of_it_is_gone() -> None:
    bench = Bench()
    assert bench.look(0.1) == ["freeze"]
    bench.now_s += 3600
    assert bench.look(0.1, left_out=1000) == ["freeze"], "what has come since"
    bench.now_s += 3600
    assert bench.look(0.01, left_out=2000) == []
    bench.now_s += 3600
    assert bench.look(0.01, left_out=501) == []
    assert bench.look(0.01, left_out=1) == [], "they are not counted each time"
    bench.now_s += 60
    assert bench.look(0.1, left_out=499) == ["unfreeze"]
    assert bench.look(0.2) == ["freeze"], "all objects"
    bench.now_s += 3600
    assert bench.look(0.01, left_out=1000) == [], "they are compared with what was left out since"


def test_once_a_day_all_objects_are_looked_at() -> None:
    bench = Bench()
    assert bench.look(0.1, left_out=1000) == ["freeze"]
    for _ in range(23):
        bench.now_s += 3600
        assert bench.look(0.1, left_out=1000) == ["freeze"]
    bench.now_s += 3600
    assert bench.look(0.2, left_out=1000) == ["unfreeze"], "a long one too: garbage is not kept for longer"
    assert bench.counted == 24


def test_a_process_that_is_busy_looks_at_all_objects_after_two_days() -> None:
    bench = Bench()
    bench.cpu_share = 0.5
    assert bench.look(0.1, left_out=1000) == ["freeze"]
    for _ in range(47):
        bench.now_s += 3600
        assert bench.look(0.1, left_out=1000) == ["freeze"]
    bench.now_s += 3600
    assert bench.look(0.2, left_out=1000) == ["unfreeze"]


class Node:
    other: Node | None = None


def test_garbage_that_was_left_out_is_collected_afterwards() -> None:
    freed: list[str] = []
    times = iter([0.0, 1.0, 2.0, 2.0, 90_000.0, 90_000.0])
    pauses: Callable[[str, Any], None] = CollectorPauses(lambda: next(times, 91_000.0))

    class Tracked(Node):
        def __del__(self) -> None:
            freed.append("freed")

    one, two = Tracked(), Tracked()
    one.other, two.other = two, one
    gc.callbacks.append(pauses)
    gc.disable()
    try:
        gc.collect()  # took a second: what survives is left out
        del one, two
        gc.collect()
        assert not freed
        gc.collect()  # the time is over
        gc.collect()
        assert freed == ["freed", "freed"]
    finally:
        gc.callbacks.remove(pauses)
        gc.unfreeze()
        gc.enable()
