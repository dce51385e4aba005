"""Arrow columns to JSON rows.

=============== ==========================================================================
Int64           a number; beyond 2^53 a text, unless the client says that it reads such numbers
Float, Double   a number, with the digits that its type has; null for NaN and infinities
JSON            a text, which is the document, as in the reference
Array           ``{"Data": {"LongData": {"data": [...]}}}``, as in the reference
FloatVector     a list of numbers, as Int8Vector
BinaryVector    base64, as Float16Vector and BFloat16Vector
SparseVector    an object: the values by index
struct array    a list of objects, whose members have these forms
dynamic fields  members of the row
=============== ==========================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.aggregation import field_of_column
from elanus.core.errors import NotSupported
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.sparse import SparseRows
from elanus.core.types import DataType
from elanus.proxy.rest.structs import joined, listed_vectors, members_of, own_name
from elanus.proxy.wire.codecs import CODECS, ScalarCodec
from elanus.proxy.wire.stubs import schema_pb2
from elanus.proxy.wire.unsupported import unsupported

EXACT_MAX = 2**53 - 1
"""The largest number up to which programs that know only doubles read each integer exactly."""
Row = dict[str, Any]


class Integers(Enum):
    """How 64-bit integers are written: the header ``Accept-Type-Allow-Int64`` says what a client reads."""

    NUMBERS = "true"
    QUOTED = "false"
    QUOTED_IF_LARGE = ""

    def listed(self, values: Sequence[int]) -> list[Any]:
        """Return the values of rows in that form."""
        if self is Integers.NUMBERS:
            return list(values)
        if self is Integers.QUOTED:
            return [str(value) for value in values]
        return [value if -EXACT_MAX <= value <= EXACT_MAX else str(value) for value in values]

    def column(self, column: pa.Array) -> list[Any]:
        """Return an integer column in that form, with None for nulls."""
        values: list[Any] = column.to_pylist()
        if self is Integers.NUMBERS or (self is Integers.QUOTED_IF_LARGE and _is_small(column)):
            return values
        return [None if value is None else self.listed((value,))[0] for value in values]

    def applied(self, value: Any) -> Any:
        """Return a description (not rows) with its large integers in that form."""
        if isinstance(value, dict):
            return {name: self.applied(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.applied(item) for item in value]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > EXACT_MAX:
            return value if self is Integers.NUMBERS else str(value)
        return value


def _is_small(column: pa.Array) -> bool:
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is None or (low >= -EXACT_MAX and high <= EXACT_MAX)


def rows_of(
    columns: Mapping[str, pa.Array],
    schema: CollectionSchema,
    count: int,
    dynamic_fields: Sequence[str] | None,
    integers: Integers,
) -> list[Row]:
    """Return ``count`` rows. ``dynamic_fields``: the keys to pick from dynamic rows; None: all of them."""
    rows: list[Row] = [{} for _ in range(count)]
    structs = members_of(schema, columns) if schema.structs else {}
    for struct, fields in structs.items():
        for row, value in zip(rows, _structs(fields, columns, integers), strict=True):
            row[struct] = value
    in_structs = {field.name for fields in structs.values() for field in fields}
    for name, column in columns.items():
        if name in in_structs:
            continue
        field = field_of_column(name, schema)
        if field is not None and field.is_dynamic:
            _add_dynamic(rows, column, dynamic_fields, integers)
            continue
        values = computed(column, integers) if field is None else json_values(field, column, integers)
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return rows


def _structs(
    fields: Sequence[FieldSchema], columns: Mapping[str, pa.Array], integers: Integers
) -> Sequence[Any]:
    members = {own_name(field): columns[field.name] for field in fields}
    values = {
        own_name(field): listed_vectors(field, columns[field.name])
        if field.has_vector_lists
        else json_values(field.element, columns[field.name].flatten(), integers)
        for field in fields
    }
    return joined(members, values)


def computed(column: pa.Array, integers: Integers) -> Iterable[Any]:
    """Return the values of a column that is no field, such as an aggregate."""
    return integers.column(column) if pa.types.is_integer(column.type) else column.to_pylist()


def json_values(field: FieldSchema, column: pa.Array, integers: Integers) -> Iterable[Any]:
    """Return a field's values in the form of the table above, with None for nulls."""
    if field.kind.vector is not None:
        return _with_nulls(column, lambda given: _vectors(field, given))
    if field.data_type is DataType.INT64:
        return integers.column(column)
    write = _WRITERS.get(field.data_type)
    if write is not None:
        return write(field, column, integers)
    return _with_nulls(column, lambda given: _as_on_the_wire(field, given))


def _with_nulls(column: pa.Array, write: Callable[[pa.Array], Iterable[Any]]) -> Iterable[Any]:
    """Write the values that are not null."""
    if not column.null_count:
        return write(column)
    given = iter(write(column.drop_null()))
    return [next(given) if valid else None for valid in column.is_valid().to_pylist()]


def _add_dynamic(rows: list[Row], column: pa.Array, picked: Sequence[str] | None, integers: Integers) -> None:
    for row, text in zip(rows, column.to_pylist(), strict=True):
        members = msgspec.json.decode(text) if text else {}
        for name in members if picked is None else picked:
            if name in members:
                row.setdefault(name, integers.applied(members[name]))


def _plain(field: FieldSchema, column: pa.Array, integers: Integers) -> Iterable[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _floats(field: FieldSchema, column: pa.Array, integers: Integers) -> Iterable[Any]:
    """Numbers of single precision as such, so that they are written with as few digits as they need."""
    return _with_nulls(column, lambda given: given.to_numpy(zero_copy_only=False))


def _arrays(field: FieldSchema, column: pa.Array, integers: Integers) -> Iterable[Any]:
    codec = CODECS[field.element_type]
    assert isinstance(codec, ScalarCodec)
    member = "".join(part.capitalize() for part in codec.member.split("_"))
    listed = integers.listed if field.element_type is DataType.INT64 else list
    single = field.element_type is DataType.FLOAT
    return [
        None
        if values is None
        else {"Data": {member: {"data": [*np.array(values, np.float32)] if single else listed(values)}}}
        for values in column.to_pylist()
    ]


def _vectors(field: FieldSchema, column: pa.Array) -> Iterable[Any]:
    form = field.vector
    if not form.has_dim:
        return [_sparse_row(SparseRows.from_column(column[at : at + 1])) for at in range(len(column))]
    if field.kind.data_type in (DataType.FLOAT_VECTOR, DataType.INT8_VECTOR):
        return form.to_matrix(column)
    return [base64.b64encode(row.tobytes()).decode() for row in form.to_matrix(column)]


def _sparse_row(row: SparseRows) -> dict[str, Any]:
    return dict(zip(map(str, row.indices.tolist()), row.values, strict=True))


def _as_on_the_wire(field: FieldSchema, column: pa.Array) -> Iterable[Any]:
    """The values of any other type of scalars: those of the protobuf member. Raises `NotSupported`."""
    codec = CODECS[field.data_type]
    if not isinstance(codec, ScalarCodec):
        raise no_json_form(field)
    target = getattr(schema_pb2.ScalarField(), codec.member)
    codec.encode(target, column)
    return [value.decode() if isinstance(value, bytes) else value for value in target.data]


def no_json_form(field: FieldSchema) -> NotSupported:
    """Return the error for a field of a type that has no form in JSON."""
    return unsupported(f"the type {field.data_type.name} of field {field.name} in JSON", "use a gRPC client")


_WRITERS: Mapping[DataType, Callable[[FieldSchema, pa.Array, Integers], Iterable[Any]]] = {
    DataType.BOOL: _plain,
    DataType.INT8: _plain,
    DataType.INT16: _plain,
    DataType.INT32: _plain,
    DataType.FLOAT: _floats,
    DataType.DOUBLE: _plain,
    DataType.VARCHAR: _plain,
    DataType.JSON: _plain,
    DataType.ARRAY: _arrays,
    DataType.TIMESTAMPTZ: _plain,
    DataType.GEOMETRY: _plain,
}


def encoded(answer: Mapping[str, object]) -> bytes:
    """Return the JSON text of an answer. Arrays of numpy are written as lists."""
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=_other)


def _other(value: object) -> object:
    if isinstance(value, np.ndarray):  # not contiguous, or of a type that orjson does not know
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
