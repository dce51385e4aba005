"""A hybrid timestamp: 46 bits of milliseconds, 18 of counter; order is what it is for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.timestamps import (
    LOGICAL_MASK,
    MAX_TIMESTAMP,
    before,
    compose,
    lag_ms,
    logical,
    minus_ms,
    physical_ms,
)

parts = st.tuples(st.integers(0, 2**44), st.integers(0, LOGICAL_MASK))


@given(parts)
def test_the_parts_come_back(part: tuple[int, int]) -> None:
    ts = compose(*part)
    assert (physical_ms(ts), logical(ts)) == part


@given(parts, parts)
def test_order_is_that_of_the_parts(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (compose(*a) < compose(*b)) == (a < b)


@pytest.mark.parametrize("outside", [-1, LOGICAL_MASK + 1])
def test_a_counter_that_does_not_fit_is_refused(outside: int) -> None:
    with pytest.raises(ValueError, match=str(outside)):
        compose(1, outside)


def test_nothing_lies_between_a_timestamp_and_the_one_before() -> None:
    assert before(compose(7)) == compose(6, LOGICAL_MASK)


def test_moving_back_keeps_the_counter_and_stops_at_zero() -> None:
    assert minus_ms(compose(1000, 5), 300) == compose(700, 5)
    assert minus_ms(compose(100, 5), 300) == 0


def test_lag_is_what_a_tick_is_behind_the_wall_clock() -> None:
    assert lag_ms(1500, compose(1200, 9)) == 300
    assert lag_ms(1000, compose(1200)) == -200


def test_the_largest_fits_a_signed_column_and_is_far_off() -> None:
    assert int(MAX_TIMESTAMP) == 2**63 - 1
    assert physical_ms(MAX_TIMESTAMP) > 4_102_444_800_000  # the year 2100
