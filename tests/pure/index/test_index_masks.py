"""Row masks: what was put in comes out, in every form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elanus.core.lookup import RowNumbers
from elanus.index import RowMask

BOOLS = st.integers(0, 70).flatmap(lambda n: arrays(np.bool_, n))
ROWS = 1001
FEW = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=40)
"""As an index finds rows: each once, in any order. Up to 15 of them are kept as numbers."""


@given(visible=BOOLS)
def test_all_forms_say_the_same(visible: np.ndarray) -> None:
    mask = RowMask.from_bool(visible)
    assert (mask.rows, mask.count) == (len(visible), int(visible.sum()))
    np.testing.assert_array_equal(mask.to_bool(), visible)
    np.testing.assert_array_equal(mask.row_ids, np.flatnonzero(visible))
    if len(visible):
        np.testing.assert_array_equal(mask.contains(np.arange(len(visible))), visible)
        assert mask.selectivity == visible.mean()
        assert [mask.selector.is_member(i) for i in range(len(visible))] == visible.tolist()


@given(visible=BOOLS, start=st.integers(0, 8).map(lambda n: n * 8), length=st.integers(0, 70))
def test_between(visible: np.ndarray, start: int, length: int) -> None:
    start = min(start, len(visible) // 8 * 8)
    stop = min(start + length, len(visible))
    between = RowMask.from_bool(visible).between(start, stop)
    np.testing.assert_array_equal(between, np.flatnonzero(visible[start:stop]) + start)


def test_no_hit_is_not_visible() -> None:
    mask = RowMask.from_bool(np.ones(9, dtype=bool))
    np.testing.assert_array_equal(mask.contains(np.array([[0, -1], [8, -1]])), [[True, False], [True, False]])


def test_a_mask_does_not_change_with_the_array_it_came_from() -> None:
    visible = np.ones(20, dtype=bool)
    mask = RowMask.from_bool(visible)
    visible[:] = False
    assert mask.to_bool().all()
    with pytest.raises(ValueError, match="read-only"):
        mask.row_ids[0] = 3


@pytest.mark.parametrize("wrong", [np.ones(3, dtype=np.uint8), np.ones((2, 2), dtype=bool)])
def test_only_a_bool_per_row_is_a_mask(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a row mask is a bool array"):
        RowMask.from_bool(wrong)


def flags(rows: list[int]) -> np.ndarray:
    visible = np.zeros(ROWS, np.bool_)
    visible[rows] = True
    return visible


@given(rows=FEW)
def test_row_numbers_say_the_same_as_bits(rows: list[int]) -> None:
    visible = flags(rows)
    mask = RowMask(RowNumbers(np.array(rows, np.uint32)), ROWS)
    assert mask.count == len(rows)
    np.testing.assert_array_equal(np.sort(mask.numbers), np.flatnonzero(visible))
    np.testing.assert_array_equal(mask.row_ids, np.flatnonzero(visible))
    np.testing.assert_array_equal(mask.to_bool(), visible)
    np.testing.assert_array_equal(mask.contains(np.arange(ROWS)), visible)
    np.testing.assert_array_equal(mask.bits, np.packbits(visible, bitorder="little"))


@given(rows=FEW, others=FEW, share=st.sampled_from((0.0, 0.3, 1.0)))
def test_the_rows_of_both(rows: list[int], others: list[int], share: float) -> None:
    many = np.random.default_rng(1).random(ROWS) < share
    few, also = (RowMask(RowNumbers(np.array(r, np.uint32)), ROWS) for r in (rows, others))
    for one, other, expected in (
        (few, also, flags(rows) & flags(others)),
        (few, RowMask.from_bool(many), flags(rows) & many),
        (RowMask.from_bool(many), few, flags(rows) & many),
        (RowMask.from_bool(many), RowMask.from_bool(flags(others)), flags(others) & many),
    ):
        both = one.both(other)
        assert (both.count, both.rows) == (int(expected.sum()), ROWS)
        np.testing.assert_array_equal(both.row_ids, np.flatnonzero(expected))


def test_few_rows_take_no_memory_for_the_others() -> None:
    rows = 1_000_000
    mask = RowMask(RowNumbers(np.arange(0, rows, rows // 100, dtype=np.uint32)), rows)
    assert mask.memory_bytes == 800
    assert RowMask(RowNumbers(np.arange(rows, dtype=np.uint32)), rows).memory_bytes == rows // 8


def test_a_mask_of_numbers_is_not_changed_by_its_user() -> None:
    mask = RowMask(RowNumbers(np.array([3, 1])), ROWS)
    with pytest.raises(ValueError, match="read-only"):
        mask.numbers[0] = 5
