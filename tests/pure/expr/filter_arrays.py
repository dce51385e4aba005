"""Random array columns and literals for the filter oracle."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

_halves = st.integers(-4, 4).map(lambda n: n / 2)
_words = st.sampled_from(["", "a", "ab", "é", "z"])
_single = float(np.float32(0.1))

_ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.one_of(st.integers(-2, 2), st.sampled_from([127, -128])),
    "longs": st.one_of(st.integers(-2, 2), st.sampled_from([2**63 - 1, 2**53 + 1])),
    "floats": st.one_of(_halves, st.just(_single)),
    "doubles": st.one_of(_halves, st.just(0.1)),
    "labels": _words,
    "flags": st.booleans(),
}
COLUMNS = {
    name: st.one_of(st.none(), st.lists(elements, max_size=4), st.lists(elements, max_size=4))
    for name, elements in _ELEMENTS.items()
}
"""The values of one row, by field."""

_numbers = st.one_of(st.integers(-2, 2), _halves)
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.one_of(_numbers, st.sampled_from([127, 300])),
    "longs": st.one_of(_numbers, st.just(2**53 + 1)),
    "floats": st.one_of(_numbers, st.just(0.1)),
    "doubles": st.one_of(_numbers, st.just(0.1)),
    "labels": _words,
    "flags": st.booleans(),
}
"""Literals to compare the elements with, by field. Some of them no element can be equal to."""


def stored(name: str, literal: Any) -> Any:
    """The literal as the elements of the field would hold it."""
    return float(np.float32(literal)) if name == "floats" else literal
