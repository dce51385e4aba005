"""Struct arrays of a user's Parquet file: a list of structs becomes one list for each of their fields.

A file may instead have these lists as columns of their own, ``clips[title]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.given_types import is_struct_array, struct_members
from elanus.core.schema import CollectionSchema
from elanus.core.structs import member_name


def split_rows(schema: CollectionSchema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a file with the struct arrays among their columns split."""
    if not any(is_struct_array(schema, field) for field in rows.schema):
        return rows  # among them rows without columns
    names: list[str] = []
    columns: list[pa.Array] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not is_struct_array(schema, field):
            names.append(field.name)
            columns.append(column)
            continue
        for name, member in _lists(column):
            names.append(member_name(field.name, name))
            columns.append(member)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _lists(column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    structs, missing = column.flatten(), column.is_null()
    for number, member in enumerate(struct_members(column.type)):
        values = pc.struct_field(structs, number)
        yield member.name, pa.ListArray.from_arrays(offsets, values, mask=missing)
