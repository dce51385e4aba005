"""Struct arrays of a user's Parquet file: a list of structs becomes one list for each of their fields.

A file may instead have these lists as columns of their own, ``clips[title]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.schema import CollectionSchema
from elanus.core.structs import member_name


def split_types(schema: CollectionSchema, columns: pa.Schema) -> pa.Schema:
    """Return a file's columns with the struct arrays among them split."""
    fields: list[pa.Field] = []
    for field in columns:
        if _is_struct_array(schema, field):
            fields += [
                pa.field(member_name(field.name, member.name), pa.list_(member.type))
                for member in _members(field.type)
            ]
        else:
            fields.append(field)
    return pa.schema(fields)


def split_rows(schema: CollectionSchema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a file with the struct arrays among their columns split."""
    names: list[str] = []
    columns: list[pa.Array] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not _is_struct_array(schema, field):
            names.append(field.name)
            columns.append(column)
            continue
        for name, member in _lists(column):
            names.append(member_name(field.name, name))
            columns.append(member)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _is_struct_array(schema: CollectionSchema, field: pa.Field) -> bool:
    is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
    named = any(struct.name == field.name for struct in schema.structs)
    return bool(named and is_list and pa.types.is_struct(field.type.value_type))


def _members(found: pa.DataType) -> list[pa.Field]:
    structs = found.value_type
    return [structs.field(n) for n in range(structs.num_fields)]


def _lists(column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    structs, missing = column.flatten(), column.is_null()
    for number, member in enumerate(_members(column.type)):
        values = pc.struct_field(structs, number)
        yield member.name, pa.ListArray.from_arrays(offsets, values, mask=missing)
