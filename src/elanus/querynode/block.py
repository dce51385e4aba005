"""A block: rows that are searched, filtered and deleted from together.

A sealed segment is one block, a growing one several (`elanus.querynode.growing`). Reads work on blocks only.
Everything in a block is immutable except its deletes. Results derived from the rows (which of them a filter
matches) are kept with the block.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.functions import enables_match
from elanus.core.ids import FieldID
from elanus.core.lookup import NO_ROWS
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.spheres import Spheres
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.types import Family
from elanus.core.visibility import Timestamps
from elanus.expr import BoundFilter, ColumnData, GeometryColumn, JsonColumn
from elanus.expr.kept_by_filter import KeptByFilter
from elanus.index import JsonPath, RowMask, ScalarIndex
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.key_filters import Words, filter_of
from elanus.querynode.key_order import KeyOrder
from elanus.querynode.keys import SortedKeys, match
from elanus.querynode.row_expiry import RowExpiry
from elanus.querynode.vectors import VectorColumn
from elanus.querynode.visibility import Mask, Selection, Visibility
from elanus.rpc.serving.waiting import check_client
from elanus.text import kept_bytes

Rows = npt.NDArray[np.int64]
Bounds = Mapping[str, tuple[object, object]]
ScalarIndexes = Mapping[tuple[str, JsonPath], ScalarIndex]


@dataclass(frozen=True, slots=True)
class Clustered:
    """The vectors of a block that a compaction by a vector made.

    ``group``: its shard and partition, which were clustered as a whole.
    """

    field_id: FieldID
    group: Hashable
    spheres: Spheres


class Block:
    """Rows with their columns, vectors, scalar indexes and deletes.

    ``columns``: the columns held as Arrow arrays, by field name, strings possibly dictionary-encoded.
    ``vectors``: the vector fields that can be searched, or whose values are not among the columns.
    ``indexes``: those of scalar fields, by field name and JSON path (empty for other fields). ``bounds``:
    minimum and maximum values of fields, where they are known; they let a filter skip the block.
    ``clustered``: lets a search skip it. ``keys``: those of the primary keys, if they are known.
    """

    def __init__(
        self,
        schema: CollectionSchema,
        columns: Mapping[str, pa.Array],
        vectors: Mapping[FieldID, VectorColumn],
        row_ts: Timestamps,
        deleted_ts: Timestamps | None = None,
        bounds: Bounds | None = None,
        indexes: ScalarIndexes | None = None,
        clustered: Clustered | None = None,
        keys: SortedKeys | None = None,
    ) -> None:
        self.rows = len(row_ts)
        self.vectors = vectors
        self.clustered = clustered
        self.keys = SortedKeys(columns[schema.primary_field.name]) if keys is None else keys
        self._vectors_by_name = {column.field.name: column for column in vectors.values()}
        self._columns = columns
        self._fixed_bytes = int(sum(column.nbytes for column in columns.values())) + self.keys.memory_bytes
        self._fixed_bytes += sum(
            v.memory_bytes for v in vectors.values() if v.is_copy or v.field.name not in columns
        )
        self._fixed_bytes += 0 if clustered is None else clustered.spheres.nbytes
        self._indexes = indexes or {}
        self._fixed_bytes += sum(index.memory_bytes for index in self._indexes.values())
        self._filtered_columns: Mapping[str, ColumnData] = {
            f.name: _filtered(f, columns[f.name]) for f in schema.scalar_fields
        }
        self._tested_for_null = frozenset(f.name for f in schema.vector_fields if f.nullable)
        self._caching_columns = [
            c for c in self._filtered_columns.values() if isinstance(c, JsonColumn | GeometryColumn)
        ]
        matched = [columns[f.name] for f in schema.scalar_fields if enables_match(f)]
        self._texts = [c.dictionary if pa.types.is_dictionary(c.type) else c for c in matched]
        self._bounds = bounds or {}
        self._key_order: KeyOrder | None = None
        self._key_filter: Words | None = None
        self._visibility = Visibility(row_ts, deleted_ts)
        self._expiry = RowExpiry(columns[schema.ttl_field]) if schema.ttl_field else None
        if self._expiry is not None:
            self._fixed_bytes += self._expiry.nbytes
        self._matching: KeptByFilter[RowMask] = KeptByFilter()
        self._chosen_elements: KeptByFilter[Mask] = KeptByFilter()

    @property
    def row_ts(self) -> Timestamps:
        return self._visibility.row_ts

    @property
    def deleted_ts(self) -> Timestamps | None:
        """When each row was deleted; None: no row was."""
        return self._visibility.deleted_ts

    @property
    def memory_bytes(self) -> int:
        order_bytes = 0 if self._key_order is None else self._key_order.memory_bytes
        return self._fixed_bytes + order_bytes + self._visibility.memory_bytes

    @property
    def cached_bytes(self) -> int:
        """Bytes that filters left behind: rows they match, values of JSON paths, bounds of geometries."""
        masks = self._visibility.cached_masks()
        if len(self._matching):
            masks.extend(self._matching.values())
        # Where all rows are visible, those that a filter matches are the same mask.
        cached_bytes = sum(mask.memory_bytes for mask in {id(mask): mask for mask in masks}.values())
        if len(self._chosen_elements):
            cached_bytes += sum(mask.nbytes for mask in self._chosen_elements.values())
        for column in self._caching_columns:
            cached_bytes += column.cached_bytes
        for texts in self._texts:
            cached_bytes += kept_bytes(texts)
        return cached_bytes

    def delete(
        self, deletes: DeleteBatch, first: int = 0, last: int | None = None, after: Timestamp = NO_TIMESTAMP
    ) -> int:
        """Apply deletes that concern the block's partition; return how many rows they deleted.

        ``first`` and ``last``: the places of the keys to apply, in their code order. ``after``: only deletes
        later than this count. Any thread may call it.
        """
        rows, places = match(self.keys, deletes.keys, first, last)
        if not len(rows):
            return 0
        ts = deletes.ts[places]
        if after != NO_TIMESTAMP:
            later = ts > after
            rows, ts = rows[later], ts[later]
        if deletes.is_seen_later:
            older = self.row_ts[rows] < ts
            rows, ts = rows[older], deletes.seen_from(ts[older])
        return self._visibility.apply_deletes(rows, ts)

    def make_key_filter(self) -> None:
        """Make the filter by which small deletes skip this block. For the thread that loads it."""
        self._key_filter = filter_of(self.keys.codes)
        self._fixed_bytes += self._key_filter.nbytes

    def take_key_filter(self) -> Words | None:
        """Return the filter, which the caller keeps from now on; None if there is none here any more."""
        taken, self._key_filter = self._key_filter, None
        return taken

    def has_expired(self, expired_until: Timestamp) -> bool:
        """Whether no row is later than ``expired_until`` (0: nothing expires)."""
        return expired_until != NO_TIMESTAMP and self._visibility.last_ts <= expired_until

    def select(
        self, read_ts: Timestamp, row_filter: BoundFilter, expired_until: Timestamp = NO_TIMESTAMP
    ) -> Selection:
        """Return the rows that are visible at ``read_ts`` and that the filter matches.

        ``expired_until``: rows up to this timestamp have expired, and are left out (0: none).
        """
        selection = self._visibility.unexpired(self._select(read_ts, row_filter), expired_until)
        return selection if self._expiry is None else self._expiry.unexpired(selection, read_ts)

    def _select(self, read_ts: Timestamp, row_filter: BoundFilter) -> Selection:
        if row_filter.matches_all:
            return self._visibility.at(read_ts)
        known = self._visibility.filtered(read_ts, row_filter)
        if known is not None:
            return known
        return self._visibility.filter_by(read_ts, row_filter, self.evaluate(row_filter))

    def select_keys(
        self,
        read_ts: Timestamp,
        keys: SortedKeys,
        row_filter: BoundFilter,
        expired_until: Timestamp = NO_TIMESTAMP,
    ) -> Rows:
        """Return the rows with these primary keys that `select` would select: each once, ascending."""
        rows = np.unique(match(self.keys, keys)[0])
        if not len(rows):
            return rows
        return self.narrow(read_ts, rows, row_filter, expired_until)

    def narrow(
        self, read_ts: Timestamp, rows: Rows, row_filter: BoundFilter, expired_until: Timestamp = NO_TIMESTAMP
    ) -> Rows:
        """Return those of the rows that `select` would select, in their order.

        The filter is evaluated for these rows, unless its result for all rows is known.
        """
        matching = self.matching(row_filter)
        if matching is not None:
            rows = rows[matching.contains(rows)]
        rows = self._visibility.unexpired_rows(rows[self._visibility.sees(rows, read_ts)], expired_until)
        if self._expiry is not None:
            rows = self._expiry.unexpired_rows(rows, read_ts)
        if row_filter.matches_all or matching is not None or not len(rows):
            return rows
        wanted = pa.array(rows)
        columns = {
            name: self._presence(name).take(wanted)
            if name in self._tested_for_null
            else _short(self._columns[name].take(wanted))
            for name in row_filter.field_names
        }
        return rows[row_filter.evaluate(columns, len(rows), go_on=check_client)]

    def _presence(self, name: str) -> pa.Array:
        """Return a column that is null where a nullable vector field has no vector."""
        column = self._columns.get(name)
        return self._vectors_by_name[name].presence(self.rows) if column is None else column

    def may_match(self, row_filter: BoundFilter) -> bool:
        """False if the known bounds of the fields show that no row matches."""
        return row_filter.may_match(self._bounds)

    def was_known(self, read_ts: Timestamp, row_filter: BoundFilter) -> bool:
        """Whether the rows that `select` would return are cached."""
        return row_filter.matches_all or self._visibility.filtered(read_ts, row_filter) is not None

    def pruned_by(self, row_filter: BoundFilter) -> str:
        """Say which condition and which bounds show that no row matches; "" if rows may match."""
        return row_filter.pruned_by(self._bounds)

    def explain_filter(self, row_filter: BoundFilter) -> str:
        """Say which scalar indexes answer the filter, or why none does."""
        return row_filter.explain_indexes(self._filtered_columns, self.rows, self._indexes)

    def indexed_rows_max(self, row_filter: BoundFilter) -> int | None:
        """How many rows the filter matches at most, if scalar indexes find them quickly; otherwise None."""
        return row_filter.indexed_rows_max(self._filtered_columns, self.rows, self._indexes)

    @property
    def key_order(self) -> KeyOrder:
        """The rows by ascending primary key. Made when first wanted."""
        if self._key_order is None:
            self._key_order = KeyOrder(self.keys)  # two threads may both make one: they are equal
        return self._key_order

    def take(self, name: str, rows: Rows) -> pa.Array:
        """Return a field's values for these rows, in the schema's Arrow type."""
        column = self._columns.get(name)
        if column is None:
            return self._vectors_by_name[name].take(rows)
        taken = column.take(pa.array(rows))
        return taken.dictionary_decode() if pa.types.is_dictionary(taken.type) else taken

    def chosen_elements(self, row_filter: BoundFilter, field_id: FieldID) -> Mask | None:
        """Return which elements of a field's lists the filter's ``element_filter`` chooses; None: all.

        The elements are those of all rows, one after the other.
        """
        if not row_filter.restricts_elements(self.vectors[field_id].field.name):
            return None
        flags = self._chosen_elements.get(row_filter)
        if flags is None:
            flags = row_filter.chosen_elements(self._filtered_columns, self.rows)
            self._chosen_elements.put(row_filter, flags)
        return flags

    def matching(self, row_filter: BoundFilter) -> RowMask | None:
        """Return which rows the filter matches, deleted ones included, if it has been evaluated."""
        return self._matching.get(row_filter)

    def evaluate(self, row_filter: BoundFilter) -> RowMask:
        """As `matching`, and evaluate the filter for all rows if that has not been done."""
        matching = self._matching.get(row_filter)
        if matching is None:
            if self.may_match(row_filter):
                tested = {
                    name: self._presence(name) for name in self._tested_for_null & row_filter.field_names
                }
                columns = {**self._filtered_columns, **tested}
                matching = RowMask(
                    row_filter.find(columns, self.rows, self._indexes, check_client), self.rows
                )
            else:
                matching = RowMask(NO_ROWS, self.rows)
            self._matching.put(row_filter, matching)
        return matching


def _short(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary if that has more entries: filters look at each entry."""
    is_long = isinstance(column, pa.DictionaryArray) and len(column.dictionary) > len(column)
    return column.dictionary_decode() if is_long else column


def _filtered(field: FieldSchema, column: pa.Array) -> ColumnData:
    """Return a column in the form that filters read."""
    if field.kind.family is Family.JSON:
        return JsonColumn(column)
    if field.kind.family is Family.GEOMETRY:
        return GeometryColumn(column)
    return column
