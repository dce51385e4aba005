"""Queries with an ``element_filter``: which elements of each row it chooses, and windows of elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.expr import BoundFilter

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


def chosen_elements(
    bound: BoundFilter, rows: Mapping[str, pa.Array], limit: int | None, offset: int
) -> ChosenElements:
    """Return ``limit`` elements (None: all) after the first ``offset``, of rows that the filter matches.

    ``rows``: has `columns_read`; each row has at least one chosen element.
    """
    arrays = {name: rows[name] for name in columns_read(bound)}
    first = next(iter(arrays.values()))
    places = np.flatnonzero(bound.chosen_elements(arrays, len(first)))
    places = places[offset : None if limit is None else offset + limit]
    lengths = pc.fill_null(pc.list_value_length(first), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    row_of = np.searchsorted(ends, places, side="right")
    within = places - (ends - lengths)[row_of]
    kept, counts = np.unique(row_of, return_counts=True)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
    elements = pa.ListArray.from_arrays(pa.array(offsets), pa.array(within.astype(np.int64)))
    return ChosenElements(kept.astype(np.int64), elements)
