"""Partial updates: whole rows from the columns that a client sends and the rows that are there.

A column that is not sent keeps its values. Of dynamic rows only the keys that are sent change. An array can
also be extended, or lose elements. A row that is not there yet is made like a row of an insert: columns that
are not sent get their default or null, and there is an error if they have neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.json_column import check_lengths as check_document_lengths
from elanus.core.rows import absent_column
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import check_lengths
from elanus.core.types import type_name

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


REPLACE = "REPLACE"


class ArrayChange(IntEnum):
    """How an update changes an array; the wire's numbers."""

    APPEND = 1
    REMOVE = 2

    @property
    def named(self) -> str:
        """As clients write it."""
        return f"ARRAY_{self.name}"


_NAMED = {change.named: change for change in ArrayChange}


def array_changes(operations: Iterable[tuple[str, str]]) -> dict[str, ArrayChange]:
    """Return how arrays change that are not replaced. ``operations``: fields and names of operations.

    Raises `InvalidParameter`, in the reference's words.
    """
    operations = tuple(operations)
    for _, operation in operations:
        if operation != REPLACE and operation not in _NAMED:
            raise InvalidParameter(
                f"unsupported partial update op: {operation}: use REPLACE, ARRAY_APPEND or ARRAY_REMOVE"
            )
    seen: set[str] = set()
    for name, _ in operations:
        if not name:
            raise InvalidParameter("FieldPartialUpdateOp.field_name is required")
        if name in seen:
            raise InvalidParameter(f'duplicate partial-update op for field "{name}"')
        seen.add(name)
    return {name: _NAMED[operation] for name, operation in operations if operation != REPLACE}


def check_update(
    schema: CollectionSchema, update: pa.RecordBatch, changes: Mapping[str, ArrayChange]
) -> None:
    """Check an update by itself. ``update``: the columns that were sent. Raises `InvalidParameter`."""
    key = schema.primary_field.name
    for name, change in changes.items():
        _check_change(schema, update, name, change)
    if key not in update.schema.names:
        raise InvalidParameter(f"must assign pk when upsert, primary field: {key}")
    if len(update.column(key).unique()) < update.num_rows:
        raise InvalidParameter(
            f"duplicate primary keys are not allowed in the same batch: the field {key} of a partial update"
        )


def _check_change(schema: CollectionSchema, update: pa.RecordBatch, name: str, change: ArrayChange) -> None:
    if name == schema.primary_field.name:
        raise InvalidParameter(f'field "{name}" is the primary key and cannot carry a partial-update op')
    field = schema.by_name.get(name)
    if field is None:
        raise InvalidParameter(f'field "{name}" not found in collection schema')
    if field.data_type is not DataType.ARRAY:
        raise InvalidParameter(
            f'op {change.named} requires Array field, but field "{name}" is {type_name(field.data_type)}'
        )
    if name not in update.schema.names:
        raise InvalidParameter(f'partial-update op targets field "{name}" not present in fields_data')
    if change is not ArrayChange.APPEND:
        return
    lengths = pc.list_value_length(update.column(name))
    longest = pc.max(lengths).as_py() or 0
    if longest > field.max_capacity:
        row = pc.index(pc.greater(lengths, field.max_capacity), True).as_py()
        raise InvalidParameter(
            f'ARRAY_APPEND payload for field "{name}" row {row} has length {lengths[row]} exceeding '
            f"max_capacity {field.max_capacity}"
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
        old = found[field.name].take(places)
        if old.type != field.arrow_type:  # Arrow cannot cast null vectors, even to their type
            old = old.cast(field.arrow_type)
        if sent is None:
            columns.append(_kept(field, old, places))
        elif field.is_dynamic:
            columns.append(_merged(field, old, sent))
        else:
            columns.append(_changed(field, changes[field.name], old, sent))
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    check_lengths(schema.structs, rows)  # an update may have sent only some arrays of a struct array
    return rows


def _kept(field: FieldSchema, old: pa.Array, places: pa.Array) -> pa.Array:
    if not places.null_count:
        return old
    fresh = places.is_null()
    if places.null_count == len(places):
        return absent_column(field, len(places))
    absent = absent_column(field, len(places))
    chosen = pc.if_else(fresh, pa.array(range(len(old), 2 * len(old))), pa.array(range(len(old))))
    return pa.concat_arrays([old, absent]).take(chosen)


def _merged(field: FieldSchema, old: pa.Array, sent: pa.Array) -> pa.Array:
    """Return dynamic rows with the keys of both; those that were sent win. Raises `InvalidParameter`."""
    rows = []
    for row, (before, after) in enumerate(zip(old.to_pylist(), sent.to_pylist(), strict=True)):
        try:
            both = (_object.decode(before) if before else {}) | _object.decode(after or "{}")
        except RecursionError:  # when it was written, the stack was lower
            raise InvalidParameter(
                f"the dynamic keys of row {row} cannot be merged with those that are there, which are nested "
                "too deeply: upsert the whole row, or delete it first"
            ) from None
        rows.append(msgspec.json.encode(both))
    check_document_lengths(field.name, rows)  # each of the two fits, but both together need not
    return pa.array(rows, pa.binary()).cast(sent.type)


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
                gone = frozenset(after)
                rows.append([element for element in before if element not in gone])
        length = len(rows[-1] or ())
        if length > field.max_capacity:
            raise InvalidParameter(
                f"the length ({length}) of {row}th array exceeds max capacity ({field.max_capacity}) after "
                f"{change.named}: array length {length} exceeds max_capacity {field.max_capacity}"
                f"[expected=valid length array][actual=array length exceeds max capacity], field {field.name}"
            )
    return pa.array(rows, field.arrow_type)
