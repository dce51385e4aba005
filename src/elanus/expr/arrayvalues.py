"""Questions about array columns, answered for whole columns.

An Arrow list column is one column of all elements, and per row where its elements begin and end. So every
question becomes a kernel over the elements, or over those at given places. A null row gives null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.expr.floats import with_one_zero
from elanus.expr.jsonvalues import UNKNOWN

ArrayColumn: TypeAlias = pa.ListArray | pa.ChunkedArray
Places = npt.NDArray[np.int64]
_BEYOND = 1 << 31
"""No array has an element at this index. Larger ones do not fit into numpy's integers."""


def element(column: ArrayColumn, index: int) -> pa.Array:
    """The element of each row at an index, from 0; null where the array is shorter. shape (rows,)"""
    place = min(index, _BEYOND)
    return _by_chunk(column, column.type.value_type, lambda chunk: _element(_Arrays.of(chunk), place))


def lengths(column: ArrayColumn) -> pa.Array:
    """The number of elements of each row, int64. shape (rows,)"""
    return _by_chunk(column, pa.int64(), lambda chunk: pc.cast(pc.list_value_length(chunk), pa.int64()))


def contains_any(column: ArrayColumn, members: pa.Array) -> pa.Array:
    """Which rows hold at least one member, of a `lookup_set` of the elements' type. shape (rows,)"""
    return _by_chunk(column, pa.bool_(), lambda chunk: _contains_any(_Arrays.of(chunk), members))


def contains_all(column: ArrayColumn, members: pa.Array) -> pa.Array:
    """Which rows hold every member. shape (rows,)

    ``members``: at least one, a `lookup_set` of the elements' type.
    """
    return _by_chunk(column, pa.bool_(), lambda chunk: _contains_all(_Arrays.of(chunk), members))


def equal(column: ArrayColumn, items: pa.Array) -> pa.Array:
    """Which rows hold exactly these elements, in this order. shape (rows,)"""
    return _by_chunk(column, pa.bool_(), lambda chunk: _equal(_Arrays.of(chunk), items))


@dataclass(frozen=True, slots=True)
class _Arrays:
    """``elements`` of all rows; row i has those from ``starts[i]`` up to ``ends[i]``.

    ``valid``: None without nulls. A null row may have elements that nobody sees.
    """

    elements: pa.Array
    starts: Places
    ends: Places
    valid: npt.NDArray[np.bool_] | None

    @classmethod
    def of(cls, column: pa.ListArray) -> _Arrays:
        offsets = column.offsets.to_numpy().astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        starts, ends = offsets[:-1] - first, offsets[1:] - first
        valid = _flags(column.is_valid()) if column.null_count else None
        return cls(column.values.slice(first, last - first), starts, ends, valid)

    def where_known(self, outcome: npt.NDArray[np.bool_]) -> pa.Array:
        return pa.array(outcome) if self.valid is None else pc.if_else(self.valid, outcome, UNKNOWN)


def _by_chunk(
    column: ArrayColumn, result_type: pa.DataType, answer: Callable[[pa.ListArray], pa.Array]
) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return answer(column)
    return pa.chunked_array([answer(chunk) for chunk in column.chunks], result_type).combine_chunks()


def _element(arrays: _Arrays, index: int) -> pa.Array:
    places = arrays.starts + index
    missing = places >= arrays.ends
    if arrays.valid is not None:
        missing |= ~arrays.valid
    return arrays.elements.take(pa.array(np.where(missing, 0, places), mask=missing))


def _contains_any(arrays: _Arrays, members: pa.Array) -> pa.Array:
    hits = _flags(pc.is_in(arrays.elements, value_set=members))
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(hits)))
    return arrays.where_known(before[arrays.ends] > before[arrays.starts])


def _contains_all(arrays: _Arrays, members: pa.Array) -> pa.Array:
    """Count the distinct members of each row: only the elements that are members are looked at closer."""
    elements, members = with_one_zero(arrays.elements, members)
    found = pc.index_in(elements, value_set=members)
    places = np.flatnonzero(_flags(pc.is_valid(found)))
    numbers = pc.drop_null(found).to_numpy().astype(np.int64)
    rows = np.searchsorted(arrays.ends, places, side="right")
    pairs = np.unique(rows * len(members) + numbers)
    counts = np.bincount(pairs // len(members), minlength=len(arrays.starts))
    return arrays.where_known(counts == len(members))


def _equal(arrays: _Arrays, items: pa.Array) -> pa.Array:
    """Compare element by element, each time the rows that were equal so far."""
    rows = np.flatnonzero(arrays.ends - arrays.starts == len(items))
    for number in range(len(items)):
        if not len(rows):
            break
        at = arrays.elements.take(pa.array(arrays.starts[rows] + number))
        rows = rows[_flags(pc.equal(at, items[number]))]
    outcome = np.zeros(len(arrays.starts), dtype=np.bool_)
    outcome[rows] = True
    return arrays.where_known(outcome)


def _flags(column: pa.Array) -> npt.NDArray[Any]:
    flags: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return flags
