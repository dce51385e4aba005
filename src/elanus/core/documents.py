"""Entries: one text for each value in a JSON document, with its place, for an index over whole documents.

``{"a": {"b": [7, "x"]}}`` has the entries ``a·b·0 = 7``, ``a·b·1 = "x"``, and for the array itself that it
holds 7 and that it holds "x". Two values have the same entry if they are equal and in the same place; numbers
are equal by value, rounded to float64. Nulls, NaN and empty objects and arrays have none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from elanus.core.json_keys import place_of
from elanus.core.schema import Scalar

Path: TypeAlias = tuple[str | int, ...]

_VALUE, _ELEMENT = "=", "∋"


def entries_of(document: Any) -> list[str]:
    """Return the entries of a decoded document, each once."""
    return list(dict.fromkeys(_entries((), document)))


def entry_of(path: Path, value: Scalar, *, of_array: bool = False) -> str | None:
    """Return the entry of a value at a path; with ``of_array``, of an array at the path that holds the value.

    None for NaN, and for a path whose keys may be read as an array's index in more than one way.
    """
    for step in path:
        place = place_of(step)
        if isinstance(step, str) and place is not None and step != str(place):
            return None
    typed = _typed(value)
    return None if typed is None else _entry(path, _ELEMENT if of_array else _VALUE, typed)


def _entries(path: Path, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _entries((*path, key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _entries((*path, number), inner)
            typed = _typed(inner)
            if typed is not None:
                yield _entry(path, _ELEMENT, typed)
    else:
        typed = _typed(value)
        if typed is not None:
            yield _entry(path, _VALUE, typed)


def _entry(path: Path, relation: str, typed: str) -> str:
    return json.dumps([str(step) for step in path], ensure_ascii=False) + relation + typed


def _typed(value: Any) -> str | None:
    if isinstance(value, bool):
        return f"b{value}"
    if isinstance(value, str):
        return f"s{value}"
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else f"n{number!r}"
