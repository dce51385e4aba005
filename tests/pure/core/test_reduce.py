"""The reduce keeps the best of each primary key, in one total order, whatever lists the rows came in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.reduce import comparable_keys, merge, primary_keys

scores = st.sampled_from([0.0, 0.5, 1.0, 2.0, float("inf"), -3.0])
candidates = st.tuples(scores, st.integers(0, 6), st.booleans())
matrices = st.integers(0, 8).flatmap(
    lambda width: st.lists(st.lists(candidates, min_size=width, max_size=width), min_size=1, max_size=3)
)


def naive(row: list[tuple[float, int, bool]], k: int, larger_is_better: bool) -> tuple[list[int], bool]:
    sign = -1 if larger_is_better else 1
    ranked = sorted(
        (sign * score, key, position) for position, (score, key, valid) in enumerate(row) if valid
    )
    seen: set[int] = set()
    kept: list[int] = []
    dropped = False
    for _, key, position in ranked:
        if len(kept) == k:
            break
        dropped |= key in seen
        if key not in seen:
            seen.add(key)
            kept.append(position)
    return kept, dropped


@given(matrices, st.integers(1, 5), st.booleans())
def test_merge_is_a_sort_that_skips_known_keys(
    rows: list[list[tuple[float, int, bool]]], k: int, larger_is_better: bool
) -> None:
    shape = (len(rows), len(rows[0]))
    merged = merge(
        np.array([[c[0] for c in row] for row in rows], dtype=np.float32).reshape(shape),
        np.array([[c[1] for c in row] for row in rows], dtype=np.int64).reshape(shape),
        k,
        larger_is_better=larger_is_better,
        valid=np.array([[c[2] for c in row] for row in rows], dtype=np.bool_).reshape(shape),
    )
    expected = [naive(row, k, larger_is_better) for row in rows]
    got = [merged.positions[a:b].tolist() for a, b in zip(merged.offsets, merged.offsets[1:], strict=False)]
    assert got == [positions for positions, _ in expected]
    assert merged.dropped_duplicates == any(dropped for _, dropped in expected)


def test_all_candidates_valid_needs_no_mask() -> None:
    merged = merge(np.float32([[3, 1, 2, 1]]), np.array([[7, 9, 8, 5]]), 3, larger_is_better=False)
    assert merged.positions.tolist() == [3, 1, 2]
    assert not merged.dropped_duplicates


def test_a_score_that_is_no_number_goes_last() -> None:
    merged = merge(np.float32([[np.nan, 1, 2]]), np.array([[1, 2, 3]]), 3, larger_is_better=True)
    assert merged.positions.tolist() == [2, 1, 0]


@pytest.mark.parametrize("ids", [pa.array([5, -1, 5, 2**62]), pa.array(["b", "", "b", "ü"])])
def test_comparable_keys_are_equal_and_ordered_as_the_ids(ids: pa.Array) -> None:
    keys, values = comparable_keys(primary_keys(ids)), ids.to_pylist()
    assert keys.dtype == np.int64
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            assert (a < b, a == b) == (keys[i] < keys[j], keys[i] == keys[j])
