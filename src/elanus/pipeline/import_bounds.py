"""How many rows a file of texts can have: cutting it into tasks must not mean reading it.

Each task needs a range of ids of its own, as large as its number of rows or larger. A row has a smallest
length, because the fields that it cannot do without are in it: by name in JSON, by a value in CSV. Files are
rarely more than ten times as large as that, and ids are not scarce.
"""

from __future__ import annotations

from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.types import Family


def json_rows_max(schema: CollectionSchema, size_bytes: int) -> int:
    """Return a bound for the rows in so many bytes of JSON; the row that begins last may end beyond them."""
    names = sum(len(f.name.encode()) + len('"":') + _value_bytes(f, 1) for f in _required(schema))
    return size_bytes // (len("{}") + 1 + names) + 1


def csv_rows_max(schema: CollectionSchema, size_bytes: int) -> int:
    """Return a bound for the rows of a CSV file: lines of values, each with a comma or the line's end."""
    least = sum(_value_bytes(f, 0) + len(",") for f in _required(schema))
    return size_bytes // max(1, least) + 1


def _required(schema: CollectionSchema) -> list[FieldSchema]:
    """Return the fields that each row has to have. Without automatic keys there is at least one."""
    return [
        field
        for field in schema.fields
        if not (
            field.nullable
            or field.default_value is not None
            or field.auto_id
            or field.is_dynamic
            or field.is_added
            or field.is_function_output
            or "[" in field.name  # of a struct array
        )
    ]


def _value_bytes(field: FieldSchema, text_bytes: int) -> int:
    if field.kind.vector is not None and field.dim:
        return len("[]") + (1 if field.data_type is DataType.BINARY_VECTOR else 2 * field.dim - 1)
    return text_bytes if field.kind.family is Family.TEXT else 1
