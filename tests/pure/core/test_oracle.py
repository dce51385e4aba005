"""The oracle never goes back and never past its bound, whatever the clock does and whenever it restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elanus.core.oracle import ALLOCATION_MAX, Oracle, Pace
from elanus.core.timestamps import LOGICAL_MASK, compose, logical, physical_ms

WINDOW_MS = 3000
NOW_MS = 1_700_000_000_000


def started(wall_ms: int = NOW_MS) -> Oracle:
    oracle = Oracle(0)
    oracle.bound_persisted(oracle.bound_wanted_ms(wall_ms, WINDOW_MS) or 0)
    return oracle


class AnyHistory(RuleBasedStateMachine):
    """Allocations, clock steps either way, bounds that are persisted or lost, and restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_ms = NOW_MS
        self.persisted_ms = 0
        self.oracle = Oracle(0)
        self.last = 0

    @rule(count=st.integers(1, ALLOCATION_MAX))
    def allocate(self, count: int) -> None:
        first = self.oracle.allocate(count, self.wall_ms)
        if first is not None:
            assert first > self.last, "went back"
            self.last = first + count - 1

    @rule(step_ms=st.integers(-100_000, 100_000))
    def step_the_clock(self, step_ms: int) -> None:
        self.wall_ms += step_ms

    @rule(window_ms=st.sampled_from([2, 50, WINDOW_MS]))
    def persist_the_bound(self, window_ms: int) -> None:
        wanted = self.oracle.bound_wanted_ms(self.wall_ms, window_ms)
        if wanted is not None:
            self.persisted_ms = wanted
            self.oracle.bound_persisted(wanted)

    @rule()
    def crash_after_persisting(self) -> None:
        """The bound reached the disk, the process did not live to know."""
        self.persisted_ms = self.oracle.bound_wanted_ms(self.wall_ms, WINDOW_MS) or self.persisted_ms
        self.oracle = Oracle(self.persisted_ms)

    @rule()
    def restart(self) -> None:
        self.oracle = Oracle(self.persisted_ms)

    @invariant()
    def stays_below_what_is_persisted(self) -> None:
        assert self.last == 0 or physical_ms(self.last) < self.persisted_ms


TestAnyHistory = AnyHistory.TestCase


@given(st.integers(-10_000, 10_000), st.integers(1, 1000))
def test_after_a_restart_it_begins_above_everything_it_gave_out(step_ms: int, count: int) -> None:
    oracle = started()
    before = oracle.allocate(count, NOW_MS)
    bound_ms = NOW_MS + WINDOW_MS
    again = Oracle(bound_ms)
    assert again.allocate(1, NOW_MS + step_ms) is None, "it has nothing to give before its bound has moved"
    again.bound_persisted(again.bound_wanted_ms(NOW_MS + step_ms, WINDOW_MS) or 0)
    after = again.allocate(1, NOW_MS + step_ms)
    assert before is not None
    assert after is not None
    assert after >= compose(bound_ms) > before + count


def test_it_follows_the_clock_forward_and_stands_still_when_it_steps_back() -> None:
    oracle = started()
    assert oracle.allocate(3, NOW_MS) == compose(NOW_MS, 0)
    assert oracle.allocate(1, NOW_MS) == compose(NOW_MS, 3)
    assert oracle.allocate(1, NOW_MS - 5000) == compose(NOW_MS, 4)
    assert oracle.allocate(1, NOW_MS + 1) == compose(NOW_MS + 1, 0)


def test_a_used_up_counter_moves_on_to_the_next_millisecond() -> None:
    oracle = started()
    given_out = [oracle.allocate(ALLOCATION_MAX, NOW_MS) for _ in range(5)]
    assert [physical_ms(ts or 0) - NOW_MS for ts in given_out] == [0, 0, 0, 1, 1]
    assert all(logical(ts or 0) + ALLOCATION_MAX <= LOGICAL_MASK for ts in given_out)


def test_a_clock_ahead_of_the_bound_is_followed_up_to_it_and_no_farther() -> None:
    oracle = started()
    assert oracle.allocate(1, NOW_MS + 3_600_000) == compose(NOW_MS + WINDOW_MS - 1)
    assert oracle.bound_wanted_ms(NOW_MS + 3_600_000, WINDOW_MS) == NOW_MS + 3_600_000 + WINDOW_MS


def test_nothing_is_given_out_at_the_bound() -> None:
    oracle = started()
    last_ms = NOW_MS + WINDOW_MS - 1
    while (ts := oracle.allocate(ALLOCATION_MAX, last_ms)) is not None:
        assert physical_ms(ts) == last_ms
    assert oracle.allocate(1, last_ms) is not None, "a smaller request still fits"


def test_the_bound_is_moved_when_half_of_the_window_is_left() -> None:
    oracle = started()
    assert oracle.bound_wanted_ms(NOW_MS + WINDOW_MS // 2 - 1, WINDOW_MS) is None
    assert oracle.bound_wanted_ms(NOW_MS + WINDOW_MS // 2, WINDOW_MS) == NOW_MS + WINDOW_MS // 2 + WINDOW_MS


def test_a_bound_that_comes_late_does_not_move_it_back() -> None:
    oracle = started()
    oracle.bound_persisted(NOW_MS + 9000)
    oracle.bound_persisted(NOW_MS + 5000)
    assert oracle.allocate(1, NOW_MS + 8000) == compose(NOW_MS + 8000)


@pytest.mark.parametrize("count", [0, -1, ALLOCATION_MAX + 1])
def test_counts_outside_the_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=str(count)):
        started().allocate(count, NOW_MS)


def test_time_goes_on_at_half_speed_until_a_clock_that_stepped_back_has_caught_up() -> None:
    pace = Pace(0, 0.0)
    assert pace.now_ms(10_000, 1.0) == 10_000
    assert pace.now_ms(4_000, 3.0) == 11_000, "2 s have passed, and the clock stepped back"
    assert pace.now_ms(11_000, 10.0) == 14_500
    assert pace.now_ms(20_000, 19.0) == 20_000, "caught up"
