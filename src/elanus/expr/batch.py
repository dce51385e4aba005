"""The rows a filter is evaluated on: whole columns at first, then ever smaller selections of them.

When few rows satisfy ``a`` in ``a and b``, ``b`` is evaluated only on those. A selection takes its rows of a
column only when the column is requested.

Fields and JSON paths may have indexes, which `elanus.expr.indexed` tries first. A selection has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import Internal
from elanus.core.geometry import Boxes
from elanus.core.lookup import Found, Lookup
from elanus.expr import arrayvalues
from elanus.expr.geometry_column import GeometryColumn
from elanus.expr.jsonpath import JsonColumn, json_values
from elanus.expr.jsonvalues import JsonValues, Path
from elanus.expr.text_conditions import text_matches
from elanus.expr.tree import TextMatch

_FEW_OF_ROWS = 16
"""A selection of fewer than one row in so many decodes JSON and geometries for its own rows, unless all are
decoded."""


class RowIndex(Protocol):
    """The part of an index that a filter needs (`elanus.index.ScalarIndex`, which describes it)."""

    rows_share_max: float
    has_bits: bool

    @property
    def title(self) -> str: ...
    def estimate(self, lookup: Lookup) -> int | None: ...
    def finds_quickly(self, count: int) -> bool: ...
    def find(self, lookup: Lookup) -> Found | None: ...


ColumnData: TypeAlias = pa.Array | pa.ChunkedArray | JsonColumn | GeometryColumn
Indexes: TypeAlias = Mapping[tuple[str, Path], RowIndex]
"""The indexes by field, and by path for those of JSON fields (empty for other fields)."""

NO_INDEXES: Indexes = {}
GoOn: TypeAlias = Callable[[str], None]


def always(progress: str) -> None:
    """Let an evaluation go on to its end."""


class Batch:
    """``rows`` rows. Columns and JSON paths are cached, so each is read at most once.

    ``go_on``: called between two conditions with a clause that says what is not done; raises an error to end
    the evaluation.
    """

    def __init__(
        self,
        columns: Mapping[str, ColumnData],
        rows: int,
        indexes: Indexes = NO_INDEXES,
        go_on: GoOn = always,
    ) -> None:
        for name, column in columns.items():
            if len(column) != rows:
                raise Internal(f"column {name} has {len(column)} rows where the filter expects {rows}")
        self.rows = rows
        self._columns = columns
        self._indexes = indexes
        self.go_on = go_on
        self.answers: dict[int, object] = {}
        """For `elanus.expr.indexed`: the index of each condition, by the identity of the condition."""
        self.scanned: set[int] = set()
        """For `elanus.expr.indexed`: conditions, by identity, of which indexes do not find few rows."""
        self.unanswered: set[int] = set()
        """And those that no index answers at all, as it would find too many rows."""
        self._json: dict[tuple[str, Path], JsonValues] = {}
        self._elements: dict[tuple[str, int], pa.Array] = {}

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """The values of a field, in the column's own encoding; for a JSON field, the texts."""
        column = self._data(name)
        if isinstance(column, GeometryColumn):
            return column.values
        return column.texts if isinstance(column, JsonColumn) else column

    def has_value(self, name: str) -> pa.Array:
        """Which rows of a field are not null. shape (rows,)"""
        present = pc.is_valid(self.column(name))
        return present.combine_chunks() if isinstance(present, pa.ChunkedArray) else present

    def element(self, name: str, index: int) -> pa.Array:
        """The element at an index of each row of an array field, null where the array is shorter."""
        values = self._elements.get((name, index))
        if values is None:
            values = self._elements[name, index] = arrayvalues.element(self.column(name), index)
        return values

    def boxes(self, name: str) -> Boxes | None:
        """The bounds of a field's geometries, (rows, 4); None if they are not kept."""
        column = self._columns.get(name)
        return column.boxes if isinstance(column, GeometryColumn) else None

    def has_boxes(self, name: str) -> bool:
        """Whether the bounds of a field's geometries are known already."""
        column = self._columns.get(name)
        return isinstance(column, GeometryColumn) and column.has_boxes

    @property
    def has_indexes(self) -> bool:
        return bool(self._indexes)

    def index(self, name: str, path: Path) -> RowIndex | None:
        """The index of a field, or of a path of a JSON field."""
        return self._indexes.get((name, path))

    def json(self, name: str, path: Path) -> JsonValues:
        """The values at a path of a JSON field."""
        values = self._json.get((name, path))
        if values is None:
            values = self._json[name, path] = self._read_json(name, path)
        return values

    def text_match(self, node: TextMatch) -> pa.Array:
        """Which texts contain tokens of a text, null for null. It is not inverted for ``negated``."""
        return text_matches(self.column(node.column.field.name), node)

    def select(self, indices: pa.Array) -> Batch:
        """The rows with these numbers, in this order."""
        return _Selection(self, indices)

    @cached_property
    def prepared(self) -> frozenset[str]:
        """The fields whose columns are dictionary-encoded, or are a `JsonColumn`: reading them is cheap."""
        return frozenset(
            name
            for name, column in self._columns.items()
            if isinstance(column, JsonColumn | GeometryColumn) or pa.types.is_dictionary(column.type)
        )

    def is_json_read(self, name: str, path: Path) -> bool:
        """Whether the values at a path of a JSON field are decoded already."""
        if (name, path) in self._json:
            return True
        column = self._columns.get(name)
        return isinstance(column, JsonColumn) and column.has(path)

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
        super().__init__({}, len(indices), go_on=parent.go_on)
        self._parent = parent
        self._indices = indices
        self._taken: dict[str, pa.Array | pa.ChunkedArray] = {}

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        taken = self._taken.get(name)
        if taken is None:
            taken = self._taken[name] = self._parent.column(name).take(self._indices)
        return taken

    def has_value(self, name: str) -> pa.Array:
        return self._parent.has_value(name).take(self._indices)

    def boxes(self, name: str) -> Boxes | None:
        if not self._is_worth_preparing() and not self._parent.has_boxes(name):
            return None  # parsing these few geometries costs less than finding the bounds of all
        boxes = self._parent.boxes(name)
        return None if boxes is None else boxes[self._indices.to_numpy()]

    def has_boxes(self, name: str) -> bool:
        return self._parent.has_boxes(name)

    def _is_worth_preparing(self) -> bool:
        """Whether the selection has so many rows that all rows are prepared for it, and for others."""
        return self.rows * _FEW_OF_ROWS > self._parent.rows

    def text_match(self, node: TextMatch) -> pa.Array:
        # Of all rows: a column's tokens are kept, those of a selection are not.
        return self._parent.text_match(node).take(self._indices)

    @property
    def prepared(self) -> frozenset[str]:
        return self._parent.prepared

    def is_json_read(self, name: str, path: Path) -> bool:
        return (name, path) in self._json or self._parent.is_json_read(name, path)

    def _read_json(self, name: str, path: Path) -> JsonValues:
        is_cached_for_others = name in self.prepared and self._is_worth_preparing()
        if is_cached_for_others or self._parent.is_json_read(name, path):
            return self._parent.json(name, path).take(self._indices)  # decoded values only need to be picked
        return json_values(self.column(name), path)
