"""Partial updates: whole rows from the columns that a client sends and the rows that are there.

A column that is not sent keeps its values. Of dynamic rows only the keys that are sent change. An array can
also be extended, or lose elements. A row that is not there yet is made like a row of an insert: columns that
are not sent get their default or null, and there is an error if they have neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.rows import absent_column
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.types import Family

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ArrayChange(IntEnum):
    """How an update changes an array; the wire's numbers."""

    APPEND = 1
    REMOVE = 2


def check_update(
    schema: CollectionSchema, update: pa.RecordBatch, changes: Mapping[str, ArrayChange]
) -> None:
    """Check an update by itself. ``update``: the columns that were sent. Raises `InvalidParameter`."""
    key = schema.primary_field.name
    if key not in update.schema.names:
        raise InvalidParameter(f"must assign pk when upsert, primary field: {key}")
    if len(update.column(key).unique()) < update.num_rows:
        raise InvalidParameter(
            f"duplicate primary keys are not allowed in the same batch: the field {key} of a partial update"
        )
    for name, change in changes.items():
        field = schema.by_name.get(name)
        if field is None:
            raise InvalidParameter(f"field_ops: field {name} does not exist in collection {schema.name}")
        if field.kind.family is not Family.LIST:
            raise InvalidParameter(
                f"field_ops: {_name(change)} requires an Array field, but {name} is {field.data_type.name}"
            )
        if name not in update.schema.names:
            raise InvalidParameter(
                f"field_ops: field {name} has {_name(change)}, but no data was sent for it"
            )


def kept_fields(
    schema: CollectionSchema, update: pa.RecordBatch, changes: Mapping[str, ArrayChange]
) -> tuple[str, ...]:
    """Return the columns of the present rows that an update needs, the primary key aside."""
    sent = frozenset(update.schema.names)
    return tuple(
        field.name
        for field in schema.fields
        if (field.name not in sent or field.is_dynamic or field.name in changes)
        and not field.is_function_output
    )


def updated(
    schema: CollectionSchema,
    update: pa.RecordBatch,
    changes: Mapping[str, ArrayChange],
    found: Mapping[str, pa.Array],
) -> pa.RecordBatch:
    """Return whole rows, in the order of ``update`` and with the columns of the schema.

    ``found``: the present rows with these keys, in any order: the key and the columns of `kept_fields`.
    Raises `InvalidParameter`.
    """
    key = schema.primary_field.name
    places = pc.index_in(update.column(key), found[key])
    columns = []
    for field in schema.fields:
        sent = update.column(field.name) if field.name in update.schema.names else None
        if field.name not in found or field.is_primary:
            columns.append(absent_column(field, update.num_rows) if sent is None else sent)
            continue
        old = found[field.name].take(places).cast(field.arrow_type)
        if sent is None:
            columns.append(_kept(field, old, places))
        elif field.is_dynamic:
            columns.append(_merged(old, sent))
        else:
            columns.append(_changed(field, changes[field.name], old, sent))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def _kept(field: FieldSchema, old: pa.Array, places: pa.Array) -> pa.Array:
    if not places.null_count:
        return old
    fresh = places.is_null()
    if places.null_count == len(places):
        return absent_column(field, len(places))
    absent = absent_column(field, len(places))
    chosen = pc.if_else(fresh, pa.array(range(len(old), 2 * len(old))), pa.array(range(len(old))))
    return pa.concat_arrays([old, absent]).take(chosen)


def _merged(old: pa.Array, sent: pa.Array) -> pa.Array:
    """Return dynamic rows with the keys of both; those that were sent win."""
    rows = []
    for before, after in zip(old.to_pylist(), sent.to_pylist(), strict=True):
        both = (_object.decode(before) if before else {}) | _object.decode(after or "{}")
        rows.append(msgspec.json.encode(both).decode())
    return pa.array(rows, sent.type)


def _changed(field: FieldSchema, change: ArrayChange, old: pa.Array, sent: pa.Array) -> pa.Array:
    rows: list[list[object] | None] = []
    for row, (before, after) in enumerate(zip(old.to_pylist(), sent.to_pylist(), strict=True)):
        match change:
            case _ if after is None:
                rows.append(before)
            case ArrayChange.APPEND:
                rows.append([*(before or ()), *after])
            case ArrayChange.REMOVE if before is None:
                rows.append(None if field.nullable else [])
            case ArrayChange.REMOVE:
                rows.append([element for element in before if element not in after])
        length = len(rows[-1] or ())
        if length > field.max_capacity:
            raise InvalidParameter(
                f"the length ({length}) of {row}th array exceeds max capacity ({field.max_capacity}) after "
                f"{_name(change)}[expected=valid length array][actual=array length exceeds max capacity], "
                f"field {field.name}"
            )
    return pa.array(rows, field.arrow_type)


def _name(change: ArrayChange) -> str:
    return f"ARRAY_{change.name}"
