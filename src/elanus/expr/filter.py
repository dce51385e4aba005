"""A filter, ready for use: the interface of this package to the others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.lookup import Found, PackedRows
from elanus.core.row_sets import bools_of
from elanus.core.schema import CollectionSchema
from elanus.core.structs import struct_and_name
from elanus.expr import kernels
from elanus.expr.batch import NO_INDEXES, Batch, ColumnData, GoOn, Indexes, always
from elanus.expr.bind import bind
from elanus.expr.elements import chosen_elements
from elanus.expr.evaluate import evaluated
from elanus.expr.explain import Explainer
from elanus.expr.indexed import explain_indexed, indexed_rows, indexed_rows_max
from elanus.expr.key_range import KeyBound, shape, split
from elanus.expr.logic import has_sample
from elanus.expr.membership import has_bloom_filter
from elanus.expr.partition_key import equal_value, values_of
from elanus.expr.prune import Pruner, pruned_by
from elanus.expr.source import Source
from elanus.expr.tree import (
    Always,
    And,
    Column,
    Comparator,
    Compare,
    Constant,
    ElementMatch,
    Member,
    Predicate,
    columns_in,
)

LONG_BYTES = 512 << 10
"""A larger filter is held weakly by what is kept for it (`elanus.expr.kept_by_filter`). The filters of
`elanus.expr.filter_cache` are smaller."""
_BYTES_PER_CHAR = 5
"""For each character of a filter that lists short numbers: the text, and the numbers in Arrow's form."""
_OBJECT_BYTES = 40
"""A number, or a text without its characters, in a list."""


def compile_filter(
    text: str, schema: CollectionSchema, values: Mapping[str, object] | None = None
) -> BoundFilter:
    """Parse a filter and bind it to a collection.

    ``values`` replace the ``{name}`` templates in the text: bools, ints, floats, strings and lists of these,
    and bytes for ``membership_match``. A blank text matches every row. Raises `InvalidFilter`, with the
    position of the error.
    """
    if not text.strip():
        return BoundFilter(text, Always(True))
    from elanus.expr.parse import parse  # with its library: a server that gets no filter does not need them

    source = Source(text)
    predicate, values = bind(source, parse(source), schema, values or {}), values or {}
    size_bytes = _BYTES_PER_CHAR * len(text) + 2 * _size_of_values(values)
    return BoundFilter(text, predicate, values, size_bytes)


def _size_of_values(values: Mapping[str, object]) -> int:
    """Return about how many bytes the values of a filter's templates take."""
    return sum(map(_size_of, values.values()))


def _size_of(value: object) -> int:
    if isinstance(value, str | bytes):
        return _OBJECT_BYTES + len(value)
    if isinstance(value, list | tuple):
        texts = sum(map(len, value)) if value and all(isinstance(v, str | bytes) for v in value) else 0
        return _OBJECT_BYTES * len(value) + texts
    return _OBJECT_BYTES


def load_parser() -> None:
    """Make the parser, unless it has been made: it takes 60 ms, which the first filter would have to wait."""
    from elanus.expr.parse import parser

    parser()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BoundFilter:
    """A filter bound to a schema. Immutable, and compared by identity, so it can be used as a key.

    ``text`` and ``values`` are what it was compiled from, so that another process can compile it again.
    ``size_bytes``: about how much memory it takes.
    """

    text: str
    predicate: Predicate
    values: Mapping[str, object] = field(default_factory=dict)
    size_bytes: int = 0

    @property
    def is_long(self) -> bool:
        return self.size_bytes > LONG_BYTES

    @property
    def matches_all(self) -> bool:
        return isinstance(self.predicate, Always) and self.predicate.value

    @property
    def is_random(self) -> bool:
        """Whether the filter takes a sample, so that the same text compiled again matches other rows."""
        return has_sample(self.predicate)

    @property
    def is_approximate(self) -> bool:
        """Whether the filter asks a Bloom filter, so that it may match rows too many."""
        return has_bloom_filter(self.predicate)

    @property
    def field_names(self) -> frozenset[str]:
        """The stored columns that `evaluate` needs; dynamic keys are read from ``$meta``."""
        return frozenset(column.field.name for column in columns_in(self.predicate))

    def evaluate(
        self,
        columns: Mapping[str, ColumnData],
        rows: int,
        indexes: Indexes = NO_INDEXES,
        go_on: GoOn = always,
    ) -> npt.NDArray[np.bool_]:
        """Which rows match. shape (rows,)

        ``columns`` hold at least `field_names`, each of ``rows`` rows, in the schema's Arrow types or
        dictionary-encoded. A JSON field may be passed as a `JsonColumn`, which caches the values read from
        it. ``indexes``: over the same rows; they are used where that is quicker. ``go_on``: called between
        two conditions with a clause that says what is not done; it may raise an error.
        A row for which the filter is unknown, because of a null, does not match. Raises `Internal` if a
        column is missing, or if a JSON column holds something else.
        """
        return bools_of(self.find(columns, rows, indexes, go_on), rows)

    def find(
        self,
        columns: Mapping[str, ColumnData],
        rows: int,
        indexes: Indexes = NO_INDEXES,
        go_on: GoOn = always,
    ) -> Found:
        """As `evaluate`, but return the rows as they are found: bits, or numbers where there are few."""
        batch = Batch(columns, rows, indexes, go_on)
        go_on("the filter was not evaluated in all segments")
        found = indexed_rows(self.predicate, batch, evaluated) if indexes else None
        return PackedRows(kernels.as_bits(evaluated(self.predicate, batch))) if found is None else found

    @property
    def element_filter(self) -> ElementMatch | None:
        """The ``element_filter`` that is one of the conditions, if there is one."""
        node = self.predicate
        conditions = node.children if isinstance(node, And) else (node,)
        return next((c for c in conditions if isinstance(c, ElementMatch) and c.chooses), None)

    def restricts_elements(self, field: str) -> bool:
        """Whether a search of single elements by a field of a struct array considers chosen elements only."""
        chosen = self.element_filter
        return (
            chosen is not None and struct_and_name(field) is not None and field.startswith(f"{chosen.array}[")
        )

    def chosen_elements(self, columns: Mapping[str, ColumnData], rows: int) -> npt.NDArray[np.bool_]:
        """Which elements of the struct array the ``element_filter`` chooses, in all rows. (elements,)

        ``columns``: as of `evaluate`. The other conditions of the filter are not looked at.
        """
        node = self.element_filter
        assert node is not None, "the filter has no element_filter"
        return chosen_elements(node, Batch(columns, rows), evaluated)

    def indexed_rows_max(self, columns: Mapping[str, ColumnData], rows: int, indexes: Indexes) -> int | None:
        """How many rows match at most, if indexes find them quickly; None if columns would be read."""
        return indexed_rows_max(self.predicate, Batch(columns, rows, indexes)) if indexes else None

    def may_match(self, stats: Mapping[str, tuple[object, object]]) -> bool:
        """False if no row within these bounds can match.

        ``stats``: the minimum and maximum of fields, both inclusive, nulls ignored. Fields may be left out,
        and bounds may be None where unknown.
        """
        return Pruner(stats).visit(self.predicate)

    def pruned_by(self, stats: Mapping[str, tuple[object, object]]) -> str:
        """Say which condition no row within these bounds can match, and the bounds; "" if rows may match."""
        return pruned_by(self.predicate, stats)

    def primary_keys(self) -> pa.Array | None:
        """The keys, if the filter is ``key == x`` or ``key in [..]`` and nothing else.

        They have the key's Arrow type, without duplicates, in the order of the filter.
        """
        node = self.predicate
        if isinstance(node, Member) and node.column.field.is_primary and not node.negated:
            return node.values
        if not isinstance(node, Compare) or node.comparator is not Comparator.EQ:
            return None
        if not isinstance(node.left, Column) or not node.left.field.is_primary:
            return None
        if not isinstance(node.right, Constant):
            return None
        return equal_value(node.right.value, node.left.field)

    def values_of(self, field: str) -> pa.Array | None:
        """Return values of a field that every matching row has one of; None: it may have others.

        The values have the field's Arrow type. The filter may allow fewer of them.
        """
        return values_of(self.predicate, field)

    def split_by_key(self) -> tuple[tuple[KeyBound, ...], BoundFilter]:
        """Return bounds of the primary key, and a filter for the rest: a row matches if it satisfies both.

        The rests of two filters are the same object if they are equal, so that what is kept for one serves
        the other, as long as anybody holds it. Without bounds the rest is this filter.
        """
        bounds, rest = split(self.predicate)
        if not bounds:
            return (), self
        key = shape(rest)
        known = _rests.get(key)
        if known is None:  # two threads may both make one: each of them is right
            known = _rests[key] = BoundFilter(Explainer().visit(rest), rest, size_bytes=self.size_bytes)
        return bounds, known

    def explain(self) -> str:
        """The bound tree on one line, in the order of evaluation."""
        return Explainer().visit(self.predicate)

    def explain_indexes(self, columns: Mapping[str, ColumnData], rows: int, indexes: Indexes) -> str:
        """Which indexes `evaluate` uses for these rows, or why it uses none."""
        return explain_indexed(self.predicate, Batch(columns, rows, indexes))


_rests: WeakValueDictionary[Hashable, BoundFilter] = WeakValueDictionary()
"""The rests in use, by their content."""
