"""Back-pressure: writes are slowed, then refused, before memory or disk run out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import DiskFull, MemoryFull
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.verbs.pressure import Pressure, PressureLimits, write_delay_s

LIMITS = PressureLimits(growing_soft_bytes=1000, growing_hard_bytes=2000, disk_reserve_bytes=500)


class Counted(NoMeasures):
    def __init__(self) -> None:
        self.actions: list[str] = []

    def held_back(self, action: str) -> None:
        self.actions.append(action)


class Bench:
    def __init__(self, growing: int = 0, free: int = 10_000) -> None:
        self.growing, self.free = growing, free
        self.slept_s: list[float] = []
        self.counted = Counted()
        self.pressure = Pressure(
            LIMITS, lambda: self.growing, lambda: self.free, self.slept_s.append, self.counted
        )


@pytest.mark.parametrize(
    ("growing", "delay_s"), [(0, 0.0), (1000, 0.0), (1500, 0.5), (2000, 1.0), (9000, 1.0)]
)
def test_the_delay_rises_from_the_soft_limit_to_the_hard_one(growing: int, delay_s: float) -> None:
    assert write_delay_s(growing, LIMITS) == delay_s


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_more_growing_data_never_means_less_delay(a: int, b: int) -> None:
    assert write_delay_s(min(a, b), LIMITS) <= write_delay_s(max(a, b), LIMITS)


def test_limits_that_are_equal_leave_no_room_between_them() -> None:
    limits = PressureLimits(1000, 1000, 0)
    assert (write_delay_s(1000, limits), write_delay_s(1001, limits)) == (0.0, 1.0)


def test_below_the_soft_limit_a_write_goes_on_at_once() -> None:
    bench = Bench(growing=900)
    bench.pressure.before_write(100)
    assert (bench.slept_s, bench.counted.actions) == ([], [])


def test_between_the_limits_it_waits_and_is_counted() -> None:
    bench = Bench(growing=1400)
    bench.pressure.before_write(100)
    assert (bench.slept_s, bench.counted.actions) == ([0.5], ["slowed"])


@pytest.mark.parametrize(("growing", "size", "refused"), [(1999, 1, False), (2000, 1, True), (0, 2001, True)])
def test_a_write_that_would_pass_the_hard_limit_is_refused(growing: int, size: int, refused: bool) -> None:
    bench = Bench(growing)
    if not refused:
        bench.pressure.before_write(size)
        return
    with pytest.raises(MemoryFull, match="growing_hard_mb"):
        bench.pressure.before_write(size)
    assert (bench.slept_s, bench.counted.actions) == ([], ["refused"])


def test_the_disks_reserve_is_not_written_into() -> None:
    bench = Bench(free=600)
    bench.pressure.before_write(100)
    with pytest.raises(DiskFull, match=r"499 bytes would be left.*disk_reserve_mb"):
        bench.pressure.before_write(101)


def test_it_recovers_by_itself_when_the_pipeline_has_caught_up() -> None:
    bench = Bench(growing=5000)
    with pytest.raises(MemoryFull):
        bench.pressure.before_write(1)
    bench.growing = 0
    bench.pressure.before_write(1)
    assert bench.slept_s == []
