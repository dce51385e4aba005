"""Back-pressure: writes are slowed, then refused, before memory or disk run out; and hold up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import DiskFull, MemoryFull, RateLimited
from elanus.core.ids import CollectionID
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.verbs.pressure import (
    GrowingData,
    Pressure,
    PressureLimits,
    admitted_after_s,
    write_delay_s,
)

LIMITS = PressureLimits(1000, 2000, disk_reserve_bytes=500, delayed_writers_max=8)
C, D = CollectionID(1), CollectionID(2)


class Counted(NoMeasures):
    def __init__(self) -> None:
        self.actions: list[str] = []

    def held_back(self, action: str) -> None:
        self.actions.append(action)


class Bench:
    def __init__(self, growing: int = 0, free: int = 10_000) -> None:
        self.growing, self.free = growing, free
        self.collections: Mapping[CollectionID, int] = {}
        self.flushing = 0
        self.slept_s: list[float] = []
        self.sleep = self.slept_s.append
        self.counted = Counted()
        self.pressure = Pressure(
            LIMITS,
            lambda: GrowingData(self.growing, self.collections, self.flushing),
            lambda: self.free,
            lambda delay_s: self.sleep(delay_s),
            self.counted,
        )

    def write(self, size: int, collection_id: CollectionID = C) -> None:
        self.pressure.before_write(collection_id, size)


@pytest.mark.parametrize(
    ("growing", "delay_s"), [(0, 0.0), (1000, 0.0), (1500, 0.5), (2000, 1.0), (9000, 1.0)]
)
def test_the_delay_rises_from_the_soft_limit_to_the_hard_one(growing: int, delay_s: float) -> None:
    assert write_delay_s(growing, LIMITS) == delay_s


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_more_growing_data_never_means_less_delay(a: int, b: int) -> None:
    assert write_delay_s(min(a, b), LIMITS) <= write_delay_s(max(a, b), LIMITS)


def test_limits_that_are_equal_leave_no_room_between_them() -> None:
    limits = PressureLimits(1000, 1000, 0, 1)
    assert (write_delay_s(1000, limits), write_delay_s(1001, limits)) == (0.0, 1.0)


def test_below_the_soft_limit_a_write_goes_on_at_once() -> None:
    bench = Bench(growing=900)
    bench.write(100)
    assert (bench.slept_s, bench.counted.actions) == ([], [])


def test_between_the_limits_it_waits_and_is_counted() -> None:
    bench = Bench(growing=1400)
    bench.write(100)
    assert (bench.slept_s, bench.counted.actions) == ([0.5], ["slowed"])


@pytest.mark.parametrize(("growing", "size", "refused"), [(1874, 1, False), (1875, 1, True), (0, 2001, True)])
def test_one_collection_may_fill_the_limit_up_to_the_reserve_for_others(
    growing: int, size: int, refused: bool
) -> None:
    bench = Bench(growing)
    if not refused:
        bench.write(size)
        return
    with pytest.raises(MemoryFull, match="growing_hard_mb"):
        bench.write(size)
    assert (bench.slept_s, bench.counted.actions) == ([], ["refused"])


def test_the_disks_reserve_is_not_written_into() -> None:
    bench = Bench(free=600)
    bench.write(100)
    with pytest.raises(DiskFull, match=r"has 101 bytes, 600 bytes are free.*disk_reserve_mb keeps 500"):
        bench.write(101)


def test_it_recovers_by_itself_when_the_pipeline_has_caught_up() -> None:
    bench = Bench(growing=5000)
    with pytest.raises(MemoryFull):
        bench.write(1)
    bench.growing = 0
    bench.write(1)
    assert bench.slept_s == []


# what a refusal says


def test_a_refusal_says_how_much_is_being_flushed() -> None:
    bench = Bench(growing=2000)
    bench.flushing = 1500
    with pytest.raises(MemoryFull) as refusal:
        bench.write(1)
    assert refusal.value.message == (
        "memory quota exceeded: 2001 bytes of growing data, backpressure.growing_hard_mb allows 1875 of 2000 "
        "to this collection; 1500 bytes are being flushed: retry when they are. If that lasts, the pipeline "
        "is down or too slow (elanus status): restart it, give it more cores, or raise the setting"
    )


def test_a_refusal_says_that_nothing_is_being_flushed() -> None:
    bench = Bench(growing=2000)
    with pytest.raises(MemoryFull, match=r"none of it is being flushed yet: retry.*status\): start it"):
        bench.write(1)


# shares


def test_near_the_hard_limit_the_large_collection_is_refused_and_the_small_one_admitted() -> None:
    bench = Bench(growing=1880)
    bench.collections = {C: 1870, D: 10}
    with pytest.raises(MemoryFull, match="allows 1875 of 2000 to this collection"):
        bench.write(10, C)
    bench.write(10, D)
    bench.write(10, CollectionID(3))
    assert bench.slept_s == []


def test_a_large_write_to_a_small_collection_is_refused_too() -> None:
    bench = Bench(growing=1200)
    bench.collections = {C: 700, D: 500}
    with pytest.raises(MemoryFull, match=r"1900 bytes of growing data.*allows 1875 of 2000"):
        bench.write(700, CollectionID(3))
    bench.write(600, CollectionID(3))


def test_above_the_hard_limit_everybody_is_refused() -> None:
    bench = Bench(growing=2000)
    bench.collections = {C: 1990, D: 10}
    with pytest.raises(MemoryFull, match="allows 2000 of 2000"):
        bench.write(1, D)


def test_a_collection_within_its_share_of_the_soft_limit_is_not_slowed() -> None:
    bench = Bench(growing=1500)
    bench.collections = {C: 1400, D: 100}
    bench.write(10, D)
    assert bench.slept_s == []
    bench.write(10, C)
    assert bench.slept_s == [0.51]


@given(st.dictionaries(st.sampled_from([C, D, CollectionID(3)]), st.integers(1, 900)), st.integers(1, 50))
def test_whom_the_limits_refuse_is_never_the_smallest_alone(held: dict[CollectionID, int], size: int) -> None:
    """If a collection is refused a write, every collection with more data is refused the same write."""
    growing = GrowingData(sum(held.values()), held)

    def is_refused(collection_id: CollectionID) -> bool:
        try:
            admitted_after_s(growing, collection_id, size, LIMITS)
        except MemoryFull:
            return True
        return False

    refused = [is_refused(c) for c, _ in sorted(held.items(), key=lambda item: item[1])]
    assert refused == sorted(refused)


# threads


def test_delayed_writers_leave_room_for_a_read() -> None:
    """32 workers, 32 slow writers: all but eight are turned away at once, and a read finds a thread."""
    bench = Bench(growing=1800)
    go_on, sleeping = threading.Event(), threading.Semaphore(0)

    def sleep(_: float) -> None:
        sleeping.release()
        assert go_on.wait(60)

    bench.sleep = sleep  # type: ignore[assignment]
    with ThreadPoolExecutor(32) as workers:
        writers = [workers.submit(bench.write, 1) for _ in range(32)]
        assert workers.submit(lambda: "read").result(60) == "read"
        for _ in range(8):
            assert sleeping.acquire(timeout=60)
        go_on.set()
        errors = [writer.exception(60) for writer in writers]
    refused = [error for error in errors if error is not None]
    assert len(refused) <= 24, "more are admitted once the first go on"
    assert all(isinstance(error, RateLimited) for error in refused)


def test_the_write_after_those_that_may_be_delayed_is_turned_away_until_one_of_them_goes_on() -> None:
    bench = Bench(growing=1800)
    delayed = 0

    def sleep(_: float) -> None:
        nonlocal delayed
        delayed += 1
        if delayed < 8:
            bench.write(1)  # another, while this one waits
        else:
            with pytest.raises(RateLimited, match=r"8 writes.*delayed_writers_max.*growing_soft_mb"):
                bench.write(1)
            bench.growing = 0
            bench.write(1)  # needs no delay, so no place
            bench.growing = 1800

    bench.sleep = sleep  # type: ignore[assignment]
    bench.write(1)
    assert bench.counted.actions == ["slowed"] * 8 + ["turned away"]
    bench.sleep = bench.slept_s.append
    bench.write(1)
    assert len(bench.slept_s) == 1
