"""Queries with an ``element_filter``: which elements of each row it chooses, and windows of elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.expr import BoundFilter
from elanus.proxy.api.query import ElementCursor

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChosenElements:
    """``rows``: the rows of an answer that remain. ``elements``: for each, the places of its elements."""

    rows: Places
    elements: pa.Array


def columns_read(bound: BoundFilter) -> tuple[str, ...]:
    """Return the columns from which the chosen elements are found; empty without an ``element_filter``."""
    chosen = bound.element_filter
    return () if chosen is None else tuple(column.field.name for column in chosen.columns)


def elements_before(after: ElementCursor, keys: pa.Array) -> tuple[int, int] | None:
    """Return the row of the cursor's key, and how many of its elements are behind the cursor; None: no row.

    Raises `InvalidParameter` for a key of another type.
    """
    try:
        key = pa.scalar(after.key).cast(keys.type)
    except pa.ArrowInvalid:
        raise InvalidParameter(f"query_iter_last_pk [{after.key}] is no key of type {keys.type}") from None
    row = pc.index(keys, key).as_py()
    return None if row < 0 else (row, after.element + 1)


def chosen_elements(
    bound: BoundFilter,
    rows: Mapping[str, pa.Array],
    limit: int | None,
    offset: int,
    skipped: tuple[int, int] | None = None,
) -> ChosenElements:
    """Return ``limit`` elements (None: all) after the first ``offset``, of rows that the filter matches.

    ``rows``: has `columns_read`; each row has at least one chosen element. ``skipped``: a row, and how many
    of its first elements do not count.
    """
    arrays = {name: rows[name] for name in columns_read(bound)}
    first = next(iter(arrays.values()))
    lengths = pc.fill_null(pc.list_value_length(first), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    chosen = bound.chosen_elements(arrays, len(first))
    if skipped is not None:
        row, count = skipped
        chosen = chosen.copy()
        start = int(ends[row] - lengths[row])
        chosen[start : start + min(count, int(lengths[row]))] = False
    places = np.flatnonzero(chosen)[offset : None if limit is None else offset + limit]
    row_of = np.searchsorted(ends, places, side="right")
    within = places - (ends - lengths)[row_of]
    kept, counts = np.unique(row_of, return_counts=True)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
    elements = pa.ListArray.from_arrays(pa.array(offsets), pa.array(within.astype(np.int64)))
    return ChosenElements(kept.astype(np.int64), elements)
