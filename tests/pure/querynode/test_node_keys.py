"""Keys find their rows, duplicates and colliding codes included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.querynode import keys as keys_module
from elanus.querynode.keys import SortedKeys, key_codes, match

ints = st.lists(st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]), max_size=12)
texts = st.lists(st.text("aü\x00", max_size=20), max_size=12)


def array(values: list[int] | list[str], kind: pa.DataType) -> pa.Array:
    """Sliced out of a larger array, as batches from the log are."""
    padding = pa.array([7] if kind == pa.int64() else ["padding"], kind)
    return pa.concat_arrays([padding, pa.array(values, kind), padding]).slice(1, len(values))


def pairs(left: list[int] | list[str], right: list[int] | list[str]) -> list[tuple[int, int]]:
    return [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]


def matched(left: pa.Array, right: pa.Array) -> list[tuple[int, int]]:
    rows, others = match(SortedKeys(left), SortedKeys(right))
    return sorted(zip(rows.tolist(), others.tolist(), strict=True))


@given(ints, ints)
def test_int64_keys_match_where_they_are_equal(left: list[int], right: list[int]) -> None:
    assert matched(array(left, pa.int64()), array(right, pa.int64())) == pairs(left, right)


@given(texts, texts)
def test_string_keys_match_where_they_are_equal(left: list[str], right: list[str]) -> None:
    assert matched(array(left, pa.string()), array(right, pa.string())) == pairs(left, right)


def test_strings_with_the_same_code_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_string_codes", lambda keys: np.zeros(len(keys), dtype=np.uint64))
    assert matched(pa.array(["a", "b", "a"]), pa.array(["b", "a"])) == [(0, 1), (1, 0), (2, 1)]


@given(st.lists(st.text(max_size=30), unique=True, max_size=50))
def test_codes_of_different_strings_differ(values: list[str]) -> None:
    codes = key_codes(pa.array(values, pa.string()))
    assert len(set(codes.tolist())) == len(values)
    assert key_codes(array(values, pa.string())).tolist() == codes.tolist()


def test_long_strings_with_a_common_start_or_end_differ() -> None:
    values = [f"{'x' * 70}{i}" for i in range(50)] + [f"{i}{'x' * 70}" for i in range(50)]
    assert len(set(key_codes(pa.array(values)).tolist())) == len(values)


def test_ascending_keys_cost_no_memory() -> None:
    assert SortedKeys(pa.array([1, 2, 3])).memory_bytes == 0
    assert SortedKeys(pa.array([3, 1, 2])).memory_bytes == 3 * (8 + 4)


@pytest.mark.parametrize(("values", "unique"), [([3, 1, 2], True), ([3, 1, 3], False), ([], True)])
def test_unique_says_whether_a_key_repeats(values: list[int], unique: bool) -> None:
    assert SortedKeys(pa.array(values, pa.int64())).unique is unique
