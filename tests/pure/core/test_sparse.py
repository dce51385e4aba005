"""Sparse vectors as rows, columns and queries: nothing is lost, and what is no vector is refused."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidParameter
from elanus.core.sparse import NO_INDEX, SparseRows, first_fault, indices_of, padded, paired, values_of

Pair = tuple[int, float]

floats = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
vectors = st.dictionaries(st.integers(0, NO_INDEX - 1), floats, max_size=6).map(lambda d: sorted(d.items()))
columns = st.lists(vectors, max_size=8)


def packed(pairs: list[Pair]) -> bytes:
    return b"".join(struct.pack("<If", *pair) for pair in pairs)


def column_of(rows: list[list[Pair]]) -> pa.Array:
    return pa.array([packed(row) for row in rows], pa.binary())


def listed(rows: SparseRows) -> list[list[Pair]]:
    ends = rows.starts.tolist()
    pairs = list(zip(rows.indices.tolist(), rows.values.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(ends)]


@given(columns, st.data())
def test_rows_of_a_column_and_back(rows: list[list[Pair]], data: st.DataObject) -> None:
    column = column_of(rows)
    start = data.draw(st.integers(0, len(rows)))
    part = SparseRows.from_column(column.slice(start))
    assert listed(part) == rows[start:]
    assert part.to_column().equals(column.slice(start))
    assert first_fault(column) is None
    assert part.dim == max((i + 1 for row in rows[start:] for i, _ in row), default=0)
    if rows[start:]:
        wanted = np.array(data.draw(st.lists(st.integers(0, len(part) - 1), max_size=9)), np.int64)
        assert listed(part[wanted]) == [rows[start:][n] for n in wanted]
        assert listed(SparseRows.joined([part, part])) == rows[start:] * 2


@given(st.lists(vectors, min_size=1, max_size=8))
def test_queries_are_filled_up_with_what_no_row_has(rows: list[list[Pair]]) -> None:
    matrix = padded([packed(row) for row in rows])
    assert matrix.shape == (len(rows), max(1, *map(len, rows)))
    for row, pairs in zip(rows, matrix, strict=True):
        indices, values = indices_of(pairs), values_of(pairs)
        assert list(zip(indices.tolist(), values.tolist(), strict=True))[: len(row)] == row
        assert set(indices[len(row) :].tolist()) <= {NO_INDEX}
        assert not values[len(row) :].any()


def test_a_matrix_of_queries_survives_as_bytes() -> None:
    matrix = padded([packed([(3, 1.5), (9, 2.0)]), packed([(1, 0.5)])])
    again = np.frombuffer(matrix.tobytes(), matrix.dtype.str).reshape(2, -1)
    assert np.array_equal(again, matrix)
    assert np.array_equal(paired(np.array([3, 9]), np.array([1.5, 2.0])), matrix[0])


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([(2, 0.4), (10, 0.5), (2, 0.6)], "unsorted or same indices in sparse float vector"),
        ([(2, 0.4), (2, 0.6)], "unsorted or same indices in sparse float vector"),
        ([(NO_INDEX, 1.0)], "invalid index in sparse float vector: must be less than 2^32-1"),
        ([(1, float("nan"))], "value 'NaN' is not a number or infinity"),
        ([(1, 1.0), (2, float("inf"))], "value '+Inf' is not a number or infinity"),
        ([(1, float("-inf"))], "value '-Inf' is not a number or infinity"),
        ([(1, 1.0), (7, -0.5)], "negative value in sparse float vector"),
    ],
)
def test_what_is_no_vector(pairs: list[Pair], why: str) -> None:
    fine: list[list[Pair]] = [[(9, 1.0)], [], [(3, 1.0)]]
    fault = first_fault(column_of([*fine, pairs, [], pairs]))
    assert fault is not None
    assert (fault.row, fault.why) == (3, why)
    if "negative" in why:
        assert padded([packed(pairs)]).shape == (1, 2), "a query may ask for the opposite"
        return
    with pytest.raises(InvalidParameter) as refused:
        padded([packed(fine[0]), packed(pairs)])
    assert refused.value.message == f"{why}: query vector 1"


def test_bytes_that_are_no_pairs() -> None:
    fault = first_fault(pa.array([bytes(8), bytes(12)], pa.binary()))
    assert fault is not None
    assert (fault.row, fault.why) == (1, "invalid data length in sparse float vector: 12")


def test_too_many_queries_of_one_length() -> None:
    long = np.zeros(40_000, np.uint64)
    indices_of(long)[:] = np.arange(40_000)
    with pytest.raises(InvalidParameter, match="1001 sparse vectors, the longest with 40000 values"):
        padded([long.tobytes(), *[b""] * 1000])
