"""Struct arrays in JSON: a member of the row that is a list of objects, one for each struct.

They are stored as one array for each field of the structs (`elanus.core.structs`). A row may have these
arrays instead, as ``clips[title]``.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.structs import StructSchema, struct_and_name
from elanus.core.types import DataType
from elanus.core.vector_lists import VectorLists

Row = Mapping[str, Any]


def split(schema: CollectionSchema, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows with the arrays of the structs' fields in place of the structs.

    Raises `InvalidParameter` for a value that is no list of objects with exactly the fields of the struct.
    """
    for struct in schema.structs:
        if any(struct.name in row for row in rows):
            rows = [_split_row(schema, struct, row) for row in rows]
    return rows


def _split_row(schema: CollectionSchema, struct: StructSchema, row: Row) -> Row:
    if struct.name not in row:
        return row
    value = row[struct.name]
    left = {name: member for name, member in row.items() if name != struct.name}
    names = {field.name: own_name(field) for field in schema.members(struct.name)}
    if value is None:
        return {**left, **dict.fromkeys(names)}
    structs = _listed(struct, value)
    expected = set(names.values())
    for place, one in enumerate(structs):
        if not isinstance(one, dict) or one.keys() != expected:
            shown = ", ".join(one) if isinstance(one, dict) else str(one)[:100]
            raise InvalidParameter(
                f"struct {place} of struct array field {struct.name} has [{shown}]: "
                f"send an object with {', '.join(names.values())}"
            )
    return {**left, **{name: [one[own] for one in structs] for name, own in names.items()}}


def _listed(struct: StructSchema, value: object) -> list[Any]:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            value = None
    if not isinstance(value, list):
        raise InvalidParameter(
            f"the value of struct array field {struct.name} does not fit its type: send a list of objects"
        )
    return value


def own_name(member: FieldSchema) -> str:
    """Return the name that a field has in its struct."""
    found = struct_and_name(member.name)
    assert found is not None, f"{member.name} is a field of no struct array"
    return found[1]


def joined(members: Mapping[str, pa.Array], values: Mapping[str, Iterable[Any]]) -> list[Any]:
    """Return the structs of each row, None for a null.

    ``members``: the arrays by the names of the fields; ``values``: their elements of all rows in JSON's form.
    """
    names = list(members)
    objects = iter([dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)])
    return [
        None if length is None else list(itertools.islice(objects, length))
        for length in members[names[0]].value_lengths().to_pylist()
    ]


def listed_vectors(field: FieldSchema, column: pa.Array) -> Iterable[Any]:
    """Return the vectors of all rows of an array of vectors in JSON's form."""
    vectors = VectorLists.from_column(field.vector, field.dim, column).vectors
    if field.element_type in (DataType.FLOAT_VECTOR, DataType.INT8_VECTOR):
        return vectors
    return [base64.b64encode(vector.tobytes()).decode() for vector in vectors]


def offsets_of(lists: Sequence[Sequence[Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where each list begins among the items of all. (lists + 1,)"""
    return np.concatenate(([0], np.cumsum([len(items) for items in lists], dtype=np.int64)))


def members_of(schema: CollectionSchema, columns: Mapping[str, pa.Array]) -> dict[str, list[FieldSchema]]:
    """Return the fields of structs among the columns, by struct array."""
    found = {
        struct.name: [field for field in schema.members(struct.name) if field.name in columns]
        for struct in schema.structs
    }
    return {name: fields for name, fields in found.items() if fields}
