"""Fields added to a collection that has rows, and dropped from it: how older rows become rows of its schema.

A row that was written before a field was added, in the log or in a file, lacks the column. Readers see the
field's default there, or null. Nothing is rewritten: compaction writes the column when it writes the rows.
A row that was written before a field was dropped has one column more. Readers leave it out.

A field is added in an order that no reader can miss. Datacoord gets the schema first and gives the vchannels
a new epoch, so no flush with the former schema is committed. Then query nodes load the collection again. Only
then does the catalog show the field, and rows that have it are written. A field is dropped in the same order:
rows that proxies write meanwhile still have it.

A name may be used again. A column then belongs to the field whose id it carries; one without an id belongs
to the field that was dropped.
"""

from __future__ import annotations

import pyarrow as pa

from elanus.core.rows import absent_column
from elanus.core.schema import FIELD_ID_KEY, CollectionSchema


def current_columns(columns: pa.Schema, schema: CollectionSchema) -> list[str]:
    """Return the names of the columns that are not those of dropped fields, in their order."""
    if not schema.dropped:
        return list(columns.names)
    return [column.name for column in columns if not _is_dropped(column, schema)]


def _is_dropped(column: pa.Field, schema: CollectionSchema) -> bool:
    if column.name not in schema.dropped_names:
        return False
    field = schema.by_name.get(column.name)
    return field is None or (column.metadata or {}).get(FIELD_ID_KEY) != str(field.field_id).encode()


def lacks_only_added(names: list[str], schema: CollectionSchema) -> bool:
    """Whether columns are those of the schema, in its order, except for fields that were added."""
    known = frozenset(names)
    return names == [f.name for f in schema.fields if f.name in known or not f.is_added]


def is_current(columns: pa.Schema, schema: CollectionSchema) -> bool:
    """Whether rows with these columns are rows of the schema as they are."""
    # Dropped fields are looked for only where there are any: this is asked for each message.
    return bool(columns.equals(schema.arrow_schema, check_metadata=bool(schema.dropped)))


def widened(rows: pa.RecordBatch, schema: CollectionSchema) -> pa.RecordBatch:
    """Return rows with exactly the columns of the schema: those that they lack hold defaults or nulls."""
    if is_current(rows.schema, schema):
        return rows
    present = frozenset(current_columns(rows.schema, schema))
    columns = [
        rows.column(f.name) if f.name in present else absent_column(f, rows.num_rows) for f in schema.fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
