"""A block: rows that are searched, filtered and deleted from together.

A sealed segment is one block, a growing one several (`elanus.querynode.growing`); reads know blocks only.
Everything in a block is immutable but its deletes, and what was derived from the rows (which of them a
filter matches) is kept with them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType
from elanus.core.timestamps import Timestamp
from elanus.core.visibility import Timestamps
from elanus.expr import BoundFilter, JsonColumn
from elanus.querynode.cache import IdentityCache
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.keys import SortedKeys, match
from elanus.querynode.vectors import VectorColumn
from elanus.querynode.visible import FILTERS_KEPT, Mask, Selection, Visibility

Rows = npt.NDArray[np.int64]
Bounds = Mapping[str, tuple[object, object]]


class Block:
    """``columns``: those held as Arrow arrays, by field name, strings possibly dictionary-encoded.

    ``vectors``: the vector fields that can be searched, or whose values are not among the columns.
    ``bounds``: least and greatest values of fields, where they are known; they spare a filter the block.
    """

    def __init__(
        self,
        schema: CollectionSchema,
        columns: Mapping[str, pa.Array],
        vectors: Mapping[FieldID, VectorColumn],
        row_ts: Timestamps,
        deleted_ts: Timestamps | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.rows = len(row_ts)
        self.vectors = vectors
        self.keys = SortedKeys(columns[schema.primary_field.name])
        self._vectors_by_name = {column.field.name: column for column in vectors.values()}
        self._columns = columns
        self._fixed_bytes = int(sum(column.nbytes for column in columns.values())) + self.keys.memory_bytes
        self._fixed_bytes += sum(v.memory_bytes for v in vectors.values() if v.field.name not in columns)
        self._filtered_columns = {
            f.name: JsonColumn(columns[f.name]) if f.data_type is DataType.JSON else columns[f.name]
            for f in schema.scalar_fields
        }
        self._bounds = bounds or {}
        self._visibility = Visibility(row_ts, deleted_ts)
        self._matching: IdentityCache[BoundFilter, Mask] = IdentityCache(FILTERS_KEPT)

    @property
    def row_ts(self) -> Timestamps:
        return self._visibility.row_ts

    @property
    def deleted_ts(self) -> Timestamps | None:
        """When each row was deleted; None: no row was."""
        return self._visibility.deleted_ts

    @property
    def memory_bytes(self) -> int:
        return self._fixed_bytes + self._visibility.memory_bytes

    def delete(self, deletes: DeleteBatch) -> int:
        """Enter deletes that concern the block's partition; returns how many rows died by them."""
        rows, places = match(self.keys, deletes.keys)
        return self._visibility.enter(rows, deletes.ts[places])

    def select(self, read_ts: Timestamp, chosen: BoundFilter) -> Selection:
        """The rows that are visible at ``read_ts`` and that the filter matches."""
        if chosen.matches_all:
            return self._visibility.at(read_ts)
        known = self._visibility.filtered(read_ts, chosen)
        if known is not None:
            return known
        return self._visibility.filter_by(read_ts, chosen, self._matches(chosen))

    def select_keys(self, read_ts: Timestamp, keys: SortedKeys, chosen: BoundFilter) -> Rows:
        """Of the rows with these primary keys, those that `select` would select; each once, ascending."""
        rows = np.unique(match(self.keys, keys)[0])
        if not len(rows):
            return rows
        rows = rows[self._visibility.sees(rows, read_ts)]
        if chosen.matches_all or not len(rows):
            return rows
        wanted = pa.array(rows)
        columns = {name: self._columns[name].take(wanted) for name in chosen.field_names}
        return rows[chosen.evaluate(columns, len(rows))]

    def take(self, name: str, rows: Rows) -> pa.Array:
        """A field's values of these rows, in the schema's Arrow type."""
        column = self._columns.get(name)
        if column is None:
            return self._vectors_by_name[name].take(rows)
        taken = column.take(pa.array(rows))
        return taken.dictionary_decode() if pa.types.is_dictionary(taken.type) else taken

    def _matches(self, chosen: BoundFilter) -> Mask:
        """Which rows the filter matches, deleted ones included."""
        matching = self._matching.get(chosen)
        if matching is None:
            if chosen.may_match(self._bounds):
                matching = chosen.evaluate(self._filtered_columns, self.rows)
            else:
                matching = np.zeros(self.rows, dtype=np.bool_)
            self._matching.put(chosen, matching)
        return matching
