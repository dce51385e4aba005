"""The values at a JSON path as one column of a chosen type, for an index over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.documents import entries_of
from elanus.core.errors import Internal
from elanus.expr.jsonpath import decoded_values, json_values
from elanus.expr.jsonvalues import JsonValues, Path


def typed_column(texts: pa.Array, path: Path, cast_type: str) -> pa.Array:
    """Return the rows' values at a path, null where the value has another type. shape (rows,)

    ``cast_type``: BOOL, DOUBLE, VARCHAR, or ARRAY_ and one of these, for the elements of that type in arrays;
    JSON for the entries of everything below the path (`elanus.core.documents`).
    Numbers become float64, rounded. Raises `Internal` if a row is not JSON.
    """
    if cast_type == "JSON":
        return pa.array([entries_of(value) for value in decoded_values(texts, path)], pa.list_(pa.string()))
    values = json_values(texts, path)
    if cast_type.startswith("ARRAY_"):
        return _elements(values, _COLUMNS[cast_type.removeprefix("ARRAY_")])
    return _COLUMNS[cast_type](values)


def _numbers(values: JsonValues) -> pa.Array:
    whole, floats = values.integers, values.floats
    if whole is not None:
        whole = pc.cast(whole, pa.float64(), safe=False)
    if whole is None or floats is None:
        one = floats if whole is None else whole
        return pa.nulls(values.rows, pa.float64()) if one is None else one
    return pc.coalesce(whole, floats)


def _strings(values: JsonValues) -> pa.Array:
    return pa.nulls(values.rows, pa.string()) if values.strings is None else values.strings


def _booleans(values: JsonValues) -> pa.Array:
    return pa.nulls(values.rows, pa.bool_()) if values.booleans is None else values.booleans


def _elements(values: JsonValues, of_type: Callable[[JsonValues], pa.Array]) -> pa.Array:
    """One list per row: the elements of the type; empty where the value is no array."""
    elements, rows = values.elements
    column = of_type(elements)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    counts = np.bincount(rows[known], minlength=values.rows)
    offsets: Any = np.concatenate(([0], np.cumsum(counts)))
    if offsets[-1] > np.iinfo(np.int32).max:
        raise Internal(
            f"arrays at a JSON path have {offsets[-1]:,} elements in one segment: too many to index"
        )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), column.drop_null())


_COLUMNS: Mapping[str, Callable[[JsonValues], pa.Array]] = {
    "DOUBLE": _numbers,
    "VARCHAR": _strings,
    "BOOL": _booleans,
}
