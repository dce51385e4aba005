"""The kernels on array columns, in every form a column may take: slices, chunks, nulls over elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.expr import arrayvalues

ROWS = [[1, 2, 2], None, [], [2], [3, 1, 2, 5], None, [1, 2]]
MEMBERS = pa.array([2, 1], pa.int64())


def plain() -> pa.Array:
    return pa.array(ROWS, pa.list_(pa.int64()))


def hidden() -> pa.Array:
    """The null rows have elements that are members, which nobody may see."""
    sizes = [3, 2, 0, 1, 4, 1, 2]
    elements = pa.array([1, 2, 2, 1, 2, 2, 3, 1, 2, 5, 2, 1, 2], pa.int64())
    offsets = pa.array([0, *np.cumsum(sizes)], pa.int32())
    mask = pa.array([row is None for row in ROWS])
    column = pa.ListArray.from_arrays(offsets, elements, mask=mask)
    assert column.to_pylist() == ROWS
    return column


def sliced() -> pa.Array:
    return pa.concat_arrays([pa.array([[9, 9]], pa.list_(pa.int64())), hidden()]).slice(1)


def chunked() -> pa.ChunkedArray:
    return pa.chunked_array([hidden().slice(0, 3), hidden().slice(3)])


FORMS: dict[str, Callable[[], Any]] = {
    "plain": plain,
    "hidden": hidden,
    "sliced": sliced,
    "chunked": chunked,
    "without chunks": lambda: pa.chunked_array([], pa.list_(pa.int64())),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_answers_are_those_of_each_row(form: str) -> None:
    column = FORMS[form]()
    rows = column.to_pylist()

    def per_row(answer: Callable[[list[int]], Any]) -> list[Any]:
        return [None if row is None else answer(row) for row in rows]

    for index in (0, 1, 3, 4096):
        wanted = per_row(lambda row, index=index: row[index] if index < len(row) else None)
        assert arrayvalues.element(column, index).to_pylist() == wanted
    assert arrayvalues.lengths(column).to_pylist() == per_row(len)
    contains_all = arrayvalues.contains_all(column, MEMBERS)
    assert contains_all.to_pylist() == per_row(lambda row: {1, 2} <= set(row))
    five = pa.array([5], pa.int64())
    assert arrayvalues.contains_any(column, five).to_pylist() == per_row(lambda row: 5 in row)
    for items in ([1, 2, 2], [1, 2], [2, 1], [], [2]):
        equal = arrayvalues.equal(column, pa.array(items, pa.int64()))
        assert equal.to_pylist() == per_row(lambda row, items=items: row == items)


def test_nothing_contains_no_members() -> None:
    found = arrayvalues.contains_any(plain(), pa.array([], pa.int64()))
    assert found.to_pylist() == [None if row is None else False for row in ROWS]


@pytest.mark.parametrize("index", [4, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30])
def test_no_row_has_an_element_beyond_its_end(index: int) -> None:
    for column in (plain(), chunked()):
        assert arrayvalues.element(column, index).null_count == len(ROWS)
