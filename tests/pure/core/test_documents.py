"""The entries of JSON documents: equal values in equal places have equal entries, and nothing else has."""

from __future__ import annotations

import math
from typing import Any

import pytest

from elanus.core.documents import entries_of, entry_of


def test_every_value_has_an_entry() -> None:
    document = {"a": {"b": [7, "x", None, {"c": True}]}, "e": {}, "f": [], "g": math.nan}
    places: list[tuple[tuple[str | int, ...], Any, bool]] = [
        (("a", "b", 0), 7, False),
        (("a", "b"), 7, True),
        (("a", "b", 1), "x", False),
        (("a", "b"), "x", True),
        (("a", "b", 3, "c"), True, False),
    ]
    assert sorted(entries_of(document)) == sorted(
        str(entry_of(path, value, of_array=of_array)) for path, value, of_array in places
    )
    assert entries_of("x") == [entry_of((), "x")]
    assert entries_of([1, 1]) == [
        entry_of((0,), 1),
        entry_of((), 1, of_array=True),
        entry_of((1,), 1),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (0.0, -0.0), (2**53, 2**53 + 1), (10**400, math.inf), (-(10**400), -math.inf)],
)
def test_numbers_are_equal_by_value_as_float64(one: float, other: float) -> None:
    assert entry_of(("a",), one) == entry_of(("a",), other)


def test_values_and_places_that_differ() -> None:
    entries = [
        entry_of(("a",), 1),
        entry_of(("a",), True),
        entry_of(("a",), "1"),
        entry_of(("a",), 1, of_array=True),
        entry_of(("a", "b"), 1),
        entry_of(("a.b",), 1),
        entry_of((), 1),
    ]
    assert len(set(entries)) == len(entries)
    assert entry_of(("a", "1"), 1) == entry_of(("a", 1), 1), "a key or an index: the document decides"


def test_places_and_values_without_an_entry() -> None:
    assert entry_of(("a", "01"), 1) is None
    assert entry_of(("a", "\u0663"), 1) is None
    assert entry_of((), math.nan) is None
