"""Sparse vectors in a user's Parquet file: the columns that may hold them, and their conversion.

Accepted: ``struct<indices: list<integer>, values: list<float>>``, ``map<integer, float>``, texts with such an
object in JSON, and the bytes that Elanus stores (`elanus.core.sparse`). Pairs may have any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.given_types import INDICES, VALUES
from elanus.core.sparse import NO_INDEX, SparseRows, paired, starts_of
from elanus.pipeline.import_texts import pairs_of

_BYTES = (pa.types.is_binary, pa.types.is_large_binary)
_TEXTS = (pa.types.is_string, pa.types.is_large_string)

Refuse = Callable[[int, str], NoReturn]
"""Raises the error about a row and what is wrong with it."""


def to_pairs(column: pa.Array, refuse: Refuse) -> pa.Array:
    """Return a column without nulls of an accepted type as ``binary``; `elanus.core.sparse` checks it."""
    if any(is_kind(column.type) for is_kind in _BYTES):
        return column.cast(pa.binary())
    if any(is_kind(column.type) for is_kind in _TEXTS):
        column = pairs_of(column.cast(pa.binary()).to_pylist(), refuse)
        if column.null_count:
            refuse(_first(column.is_null()), "is the JSON null: leave the value out")
    if pa.types.is_map(column.type):
        starts = column.offsets.to_numpy().astype(np.int64)
        entries = slice(int(starts[0]), int(starts[-1]))
        indices, values = column.keys[entries], column.items[entries]
        lengths = np.diff(starts)
    else:
        lists, value_lists = pc.struct_field(column, INDICES), pc.struct_field(column, VALUES)
        lengths = _lengths(lists, refuse)
        differ = lengths != _lengths(value_lists, refuse)
        if differ.any():
            refuse(int(np.argmax(differ)), f"has {INDICES} and {VALUES} of different lengths")
        indices, values = lists.flatten(), value_lists.flatten()
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    for part in (indices, values):
        if part.null_count:
            refuse(int(row_of[_first(part.is_null())]), "holds a null among its numbers")
    wrong = pc.or_(pc.less(indices, 0), pc.greater_equal(indices, NO_INDEX))
    if pc.any(wrong).as_py():
        at = _first(wrong)
        refuse(int(row_of[at]), f"holds the index {indices[at]}: indices are in [0, {NO_INDEX})")
    return _by_index(lengths, indices.to_numpy(), values.to_numpy(), row_of).to_column()


def _by_index(
    lengths: npt.NDArray[np.int64],
    indices: npt.NDArray[Any],
    values: npt.NDArray[Any],
    row_of: npt.NDArray[np.int64],
) -> SparseRows:
    order = np.lexsort((indices, row_of))
    with np.errstate(over="ignore"):  # an infinity is found when the vectors are checked
        pairs = paired(indices[order].astype(np.uint32), values[order].astype(np.float32))
    return SparseRows(starts_of(lengths), pairs)


def _lengths(lists: pa.Array, refuse: Refuse) -> npt.NDArray[np.int64]:
    if lists.null_count:
        refuse(_first(lists.is_null()), "holds a null instead of a list")
    lengths: npt.NDArray[np.int64] = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


def _first(wrong: pa.Array) -> int:
    return int(pc.index(wrong, True).as_py())
