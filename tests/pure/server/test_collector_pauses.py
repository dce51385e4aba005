"""The survivors of a long full collection are left out of the next ones, but not for good."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from elanus.server.collector_pauses import CollectorPauses


class Bench:
    """``look``: a full collection that takes this long."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.done: list[str] = []
        self.pauses = CollectorPauses(
            lambda: self.now_s, lambda: self.done.append("freeze"), lambda: self.done.append("unfreeze")
        )

    def look(self, took_s: float, generation: int = 2) -> list[str]:
        info = {"generation": generation, "collected": 0, "uncollectable": 0}
        self.pauses("start", info)
        self.now_s += took_s
        self.pauses("stop", info)
        done, self.done = self.done, []
        return done


def test_short_and_partial_collections_change_nothing() -> None:
    bench = Bench()
    assert bench.look(0.01) == []
    assert bench.look(1.0, generation=1) == []


def test_what_survives_a_long_collection_is_left_out_for_some_minutes() -> None:
    bench = Bench()
    assert bench.look(0.1) == ["freeze"]
    bench.now_s += 300
    assert bench.look(0.1) == ["freeze"], "what has come since"
    bench.now_s += 299
    assert bench.look(0.01) == []
    bench.now_s += 10
    assert bench.look(0.01) == ["unfreeze"]
    assert bench.look(0.2) == ["freeze"], "all objects"
    bench.now_s += 599
    assert bench.look(0.01) == []
    bench.now_s += 10
    assert bench.look(0.2) == ["unfreeze"], "a long one too: garbage is not kept for longer"


class Node:
    other: Node | None = None


def test_garbage_that_was_left_out_is_collected_afterwards() -> None:
    freed: list[str] = []
    times = iter([0.0, 1.0, 2.0, 2.0, 1000.0, 1000.0])
    pauses: Callable[[str, Any], None] = CollectorPauses(lambda: next(times, 2000.0))

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
