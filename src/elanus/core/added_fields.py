"""Fields added to a collection that has rows: what older rows have in them.

A row that was written before a field was added, in the log or in a file, lacks the column. Readers see the
field's default there, or null. Nothing is rewritten: compaction writes the column when it writes the rows.

A field is added in an order that no reader can miss. Datacoord gets the schema first and gives the vchannels
a new epoch, so no flush with the former schema is committed. Then query nodes load the collection again. Only
then does the catalog show the field, and rows that have it are written.
"""

from __future__ import annotations

import pyarrow as pa

from elanus.core.rows import absent_column
from elanus.core.schema import CollectionSchema


def lacks_only_added(names: list[str], schema: CollectionSchema) -> bool:
    """Whether columns are those of the schema, in its order, except for fields that were added."""
    known = frozenset(names)
    return names == [f.name for f in schema.fields if f.name in known or not f.is_added]


def widened(rows: pa.RecordBatch, schema: CollectionSchema) -> pa.RecordBatch:
    """Return rows with all columns of the schema: those that they lack hold defaults or nulls."""
    if rows.schema.equals(schema.arrow_schema):
        return rows
    present = frozenset(rows.schema.names)
    columns = [
        rows.column(f.name) if f.name in present else absent_column(f, rows.num_rows) for f in schema.fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
