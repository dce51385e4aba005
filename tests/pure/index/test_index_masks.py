"""Row masks: what was put in comes out, in every form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elanus.index import RowMask

BOOLS = st.integers(0, 70).flatmap(lambda n: arrays(np.bool_, n))


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
