"""The rows a filter is evaluated on: whole columns at first, then ever smaller selections of them.

When few rows satisfy ``a`` in ``a and b``, ``b`` is evaluated only on those. A selection takes its rows of a
column only when the column is requested.

A column may have an index (`IndexedColumn`), which is tried first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import Internal
from elanus.core.lookup import Lookup
from elanus.core.schema import FieldSchema
from elanus.expr import arrayvalues
from elanus.expr.jsonpath import JsonColumn, json_values
from elanus.expr.jsonvalues import JsonValues, Path
from elanus.expr.text_conditions import text_matches


class RowIndex(Protocol):
    """The part of an index that a filter needs (`elanus.index.ScalarIndex`)."""

    def rows_where(self, lookup: Lookup) -> npt.NDArray[np.bool_] | None:
        """The matching rows, bool (rows,), False for rows without a value; None: the index cannot answer."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexedColumn:
    """A column with an index over its rows."""

    values: pa.Array | pa.ChunkedArray
    index: RowIndex

    def __len__(self) -> int:
        return len(self.values)


ColumnData: TypeAlias = pa.Array | pa.ChunkedArray | JsonColumn | IndexedColumn


class Batch:
    """``rows`` rows. Columns and JSON paths are cached, so each is read at most once."""

    def __init__(self, columns: Mapping[str, ColumnData], rows: int) -> None:
        for name, column in columns.items():
            if len(column) != rows:
                raise Internal(f"column {name} has {len(column)} rows where the filter expects {rows}")
        self.rows = rows
        self._columns = columns
        self._json: dict[tuple[str, Path], JsonValues] = {}
        self._elements: dict[tuple[str, int], pa.Array] = {}

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """The values of a field, in the column's own encoding; for a JSON field, the texts."""
        column = self._data(name)
        if isinstance(column, IndexedColumn):
            return column.values
        return column.texts if isinstance(column, JsonColumn) else column

    def element(self, name: str, index: int) -> pa.Array:
        """The element at an index of each row of an array field, null where the array is shorter."""
        values = self._elements.get((name, index))
        if values is None:
            values = self._elements[name, index] = arrayvalues.element(self.column(name), index)
        return values

    def has_index(self, name: str) -> bool:
        return isinstance(self._columns.get(name), IndexedColumn)

    def looked_up(self, name: str, lookup: Lookup) -> pa.Array | None:
        """Which rows satisfy the lookup, null where there is no value; None if no index answers it."""
        column = self._columns.get(name)
        if not isinstance(column, IndexedColumn):
            return None
        rows = column.index.rows_where(lookup)
        if rows is None:
            return None
        if not column.values.null_count:
            return pa.array(rows)
        return pa.array(rows, mask=column.values.is_null().to_numpy(zero_copy_only=False))

    def json(self, name: str, path: Path) -> JsonValues:
        """The values at a path of a JSON field."""
        values = self._json.get((name, path))
        if values is None:
            values = self._json[name, path] = self._read_json(name, path)
        return values

    def text_match(self, field: FieldSchema, text: str, minimum: int, slop: int | None) -> pa.Array:
        """Which texts contain tokens of a text (`elanus.expr.tree.TextMatch`), null for null."""
        return text_matches(self.column(field.name), field, text, minimum, slop)

    def select(self, indices: pa.Array) -> Batch:
        """The rows with these numbers, in this order."""
        return _Selection(self, indices)

    @cached_property
    def prepared(self) -> frozenset[str]:
        """The fields whose columns are dictionary-encoded, have an index, or are a `JsonColumn`: reading them
        is cheap."""
        return frozenset(
            name
            for name, column in self._columns.items()
            if isinstance(column, JsonColumn | IndexedColumn) or pa.types.is_dictionary(column.type)
        )

    def _data(self, name: str) -> ColumnData:
        try:
            return self._columns[name]
        except KeyError:
            raise Internal(f"the filter needs column {name}, which it was not given") from None

    def _read_json(self, name: str, path: Path) -> JsonValues:
        column = self._data(name)
        return column.values(path) if isinstance(column, JsonColumn) else json_values(self.column(name), path)


class _Selection(Batch):
    def __init__(self, parent: Batch, indices: pa.Array) -> None:
        super().__init__({}, len(indices))
        self._parent = parent
        self._indices = indices
        self._taken: dict[str, pa.Array | pa.ChunkedArray] = {}

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        taken = self._taken.get(name)
        if taken is None:
            taken = self._taken[name] = self._parent.column(name).take(self._indices)
        return taken

    def text_match(self, field: FieldSchema, text: str, minimum: int, slop: int | None) -> pa.Array:
        # Of all rows: a column's tokens are kept, those of a selection are not.
        return self._parent.text_match(field, text, minimum, slop).take(self._indices)

    @property
    def prepared(self) -> frozenset[str]:
        return self._parent.prepared

    def _read_json(self, name: str, path: Path) -> JsonValues:
        if name in self.prepared:  # values that are decoded already only need to be picked
            return self._parent.json(name, path).take(self._indices)
        return json_values(self.column(name), path)
