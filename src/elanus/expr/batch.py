"""The rows a filter is evaluated on: whole columns at first, then ever smaller selections of them.

When ``a and b`` has found few rows for ``a``, ``b`` need only look at those. A selection takes a column's
rows when, and only when, somebody asks for the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from elanus.core.errors import Internal
from elanus.expr.jsonpath import JsonColumn, json_values
from elanus.expr.jsonvalues import JsonValues, Path

ColumnData: TypeAlias = pa.Array | pa.ChunkedArray | JsonColumn


class Batch:
    """``rows`` rows. Columns and JSON paths are remembered, so each is read at most once."""

    def __init__(self, columns: Mapping[str, ColumnData], rows: int) -> None:
        for name, column in columns.items():
            if len(column) != rows:
                raise Internal(f"column {name} has {len(column)} rows where the filter expects {rows}")
        self.rows = rows
        self._columns = columns
        self._json: dict[tuple[str, Path], JsonValues] = {}

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """The values of a field, in the column's own encoding; of a JSON field, the texts."""
        column = self._data(name)
        return column.texts if isinstance(column, JsonColumn) else column

    def json(self, name: str, path: Path) -> JsonValues:
        """The values at a path of a JSON field."""
        values = self._json.get((name, path))
        if values is None:
            values = self._json[name, path] = self._read_json(name, path)
        return values

    def select(self, indices: pa.Array) -> Batch:
        """The rows of these numbers, in this order."""
        return _Selection(self, indices)

    @cached_property
    def prepared(self) -> frozenset[str]:
        """The fields whose columns are dictionary-encoded, or a `JsonColumn`: reading them is cheap."""
        return frozenset(
            name
            for name, column in self._columns.items()
            if isinstance(column, JsonColumn) or pa.types.is_dictionary(column.type)
        )

    def _data(self, name: str) -> ColumnData:
        try:
            return self._columns[name]
        except KeyError:
            raise Internal(f"the filter needs column {name}, which it was not given") from None

    def _read_json(self, name: str, path: Path) -> JsonValues:
        column = self._data(name)
        return column.values(path) if isinstance(column, JsonColumn) else json_values(column, path)


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

    @property
    def prepared(self) -> frozenset[str]:
        return self._parent.prepared

    def _read_json(self, name: str, path: Path) -> JsonValues:
        if name in self.prepared:  # what is decoded already need only be picked
            return self._parent.json(name, path).take(self._indices)
        return json_values(self.column(name), path)
