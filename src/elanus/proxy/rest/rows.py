"""JSON rows to a record batch: the columns of an insert, with the rules of `elanus.core.rows`.

=============== ==================================================================================
Int8 … Int64    a whole number, or a text with one
Float, Double   a number
Bool            true or false, or a text with one of these
VarChar         a text
JSON            any value; a text that is a JSON object or list stands for that
Array           a list, or a text with one
FloatVector     a list of numbers
BinaryVector    base64, or a list of bytes (0 to 255)
Float16Vector   a list of numbers, or base64, as BFloat16Vector
Int8Vector      a list of whole numbers
SparseVector    ``{"1": 0.5}``, or ``{"indices": [1], "values": [0.5]}``
struct array    a list of objects
=============== ==================================================================================

A null, and a field that a row lacks, is the field's default value, or null. Keys that are no fields are
dynamic fields, where the collection has them.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.moments import DEFAULT_TIMEZONE
from elanus.core.pieces import array_of
from elanus.core.rows import Given, check_sent, conform
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, FieldSchema
from elanus.core.sparse import NO_INDEX, paired
from elanus.core.structs import check_lengths
from elanus.core.types import DataType
from elanus.core.vector_lists import list_column
from elanus.proxy.rest.structs import offsets_of, split
from elanus.proxy.rest.values import no_json_form
from elanus.proxy.wire.codecs import CODECS, ScalarCodec
from elanus.proxy.wire.columns import decode_column
from elanus.proxy.wire.stubs import schema_pb2

Rows = Sequence[Mapping[str, Any]]
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_BOOLS = {"true": True, "True": True, "false": False, "False": False}


def batch_of(
    schema: CollectionSchema,
    rows: Rows,
    *,
    with_auto_key: bool,
    zone: str = DEFAULT_TIMEZONE,
    partial: bool = False,
) -> pa.RecordBatch:
    """Return the rows as a batch, columns in the schema's order.

    An auto-id primary key is left out of the batch, and must not be sent, unless ``with_auto_key``. ``zone``:
    the time zone of moments without an offset. ``partial``: fields that no row has are left out, and each row
    must have the others. Raises `InvalidParameter`, `InvalidDimension`.
    """
    if not rows:
        raise InvalidParameter("the data to be inserted is empty: send at least one row")
    rows = split(schema, rows)
    names = set(itertools.chain.from_iterable(rows))
    strangers = names - schema.by_name.keys()
    known = names - strangers if schema.enable_dynamic else names
    check_sent(schema, sorted(known), with_auto_key=with_auto_key)

    def given(field: FieldSchema) -> Given | None:
        if field.is_dynamic:
            return _dynamic(rows, strangers, is_whole=DYNAMIC_FIELD in names)
        return _column(field, rows) if field.name in names else None

    only = _sent_by_all(schema, rows, names) if partial else None
    batch = conform(schema, given, len(rows), with_auto_key=with_auto_key, zone=zone, only=only)
    check_lengths(schema.structs, batch)
    return batch


def _sent_by_all(schema: CollectionSchema, rows: Rows, names: set[str]) -> set[str]:
    """Return the fields of a partial update, the dynamic one among them if a row has dynamic members."""
    fields = names & schema.by_name.keys()
    for number, row in enumerate(rows):
        if missing := sorted(fields - row.keys()):
            raise InvalidParameter(
                f"row {number} of the partial update lacks field {missing[0]}, which other rows have: "
                "send rows with the same fields, others in another request"
            )
    return fields | {DYNAMIC_FIELD} if names - fields else fields


def _dynamic(rows: Rows, strangers: set[str], *, is_whole: bool) -> Given | None:
    if is_whole:
        raise InvalidParameter(
            f"the field name {DYNAMIC_FIELD} is reserved: send dynamic fields as members of the row"
        )
    if not strangers:
        return None
    return Given([_written({name: row[name] for name in row if name in strangers}) for row in rows])


def _column(field: FieldSchema, rows: Rows) -> Given:
    name = field.name
    values = [row.get(name) for row in rows]
    valid: npt.NDArray[np.bool_] | None = None
    if any(value is None for value in values):
        valid = np.fromiter((value is not None for value in values), bool, len(values))
        values = [value for value in values if value is not None]
    return Given(column_values(field, values), valid)


def column_values(field: FieldSchema, values: list[Any]) -> pa.Array | Sequence[bytes]:
    """Return values that are not null as a column for `elanus.core.rows.conform`.

    Raises `InvalidParameter`, `InvalidDimension`.
    """
    if field.has_vector_lists:
        return _vector_lists(field, values)
    if field.kind.vector is not None:
        return vectors(field, values)
    read = _READERS.get(field.kind.data_type)
    return _as_on_the_wire(field, values) if read is None else read(field, values)


def _wrong(field: FieldSchema, value: object, expected: str) -> InvalidParameter:
    shown = str(value)
    shown = f"{shown[:100]}…" if len(shown) > 100 else shown
    return InvalidParameter(
        f"the value [{shown}] of field {field.name} does not fit its type "
        f"{field.data_type.name}: send {expected}"
    )


def _check(field: FieldSchema, values: Sequence[Any], types: frozenset[type], expected: str) -> None:
    """Raises `InvalidParameter` for a value of another type. By exact type: JSON has no subtypes."""
    if set(map(type, values)) - types:
        raise _wrong(field, next(value for value in values if type(value) not in types), expected)


_WHOLE = frozenset({int})
_NUMBERS = frozenset({int, float})
_TEXTS = frozenset({str})
_BOOLEANS = frozenset({bool})


def _integers(field: FieldSchema, values: list[Any]) -> pa.Array:
    if str in set(map(type, values)):
        values = [
            int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value for value in values
        ]
    _check(field, values, _WHOLE, "a whole number")
    try:
        return array_of(values, lambda part: pa.array(part, pa.int64()))
    except (OverflowError, pa.ArrowInvalid):
        large = next(value for value in values if not -(2**63) <= value < 2**63)
        raise _wrong(field, large, "a number that it can hold") from None


def _floats(field: FieldSchema, values: list[Any]) -> pa.Array:
    _check(field, values, _NUMBERS, "a number")
    return pa.array([float(value) for value in values], pa.float64())


def _bools(field: FieldSchema, values: list[Any]) -> pa.Array:
    values = [_BOOLS.get(value, value) if isinstance(value, str) else value for value in values]
    _check(field, values, _BOOLEANS, "true or false")
    return pa.array(values, pa.bool_())


def _texts(field: FieldSchema, values: list[Any]) -> pa.Array:
    _check(field, values, _TEXTS, "a text")
    return array_of(values, lambda part: pa.array(part, pa.string()))


def _documents(field: FieldSchema, values: list[Any]) -> Sequence[bytes]:
    return [_document(value) for value in values]


def _document(value: object) -> bytes:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError:
            pass  # a text that only begins like an object
        else:
            return value.encode()
    return _written(value)


def _written(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise InvalidParameter("a value is nested too deeply: send documents of at most 250 levels") from None


def _arrays(field: FieldSchema, values: list[Any]) -> pa.Array:
    lists: list[Any] = [_list(value) for value in values]
    _check(field, lists, frozenset({list}), "a list")
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(value) for value in lists], out=offsets[1:])
    flat = list(itertools.chain.from_iterable(lists))
    if None in flat:
        raise _wrong(field, None, "a list without nulls")
    elements = column_values(field.element, flat)
    return pa.ListArray.from_arrays(pa.array(offsets), elements)


def _vector_lists(field: FieldSchema, values: list[Any]) -> pa.Array:
    lists: list[Any] = [_list(value) for value in values]
    _check(field, lists, frozenset({list}), "a list of vectors")
    flat = list(itertools.chain.from_iterable(lists))
    return list_column(field.vector, matrix(field, flat), offsets_of(lists))


def _list(value: object) -> object:
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _as_on_the_wire(field: FieldSchema, values: list[Any]) -> pa.Array | Sequence[bytes]:
    """Values of any other type of scalars: as a gRPC client would send them. Raises `NotSupported`."""
    codec = CODECS[field.data_type]
    if not isinstance(codec, ScalarCodec):
        raise no_json_form(field)
    message = schema_pb2.FieldData(type=schema_pb2.DataType.ValueType(field.data_type), field_name=field.name)
    target = getattr(message.scalars, codec.member)
    try:
        target.data.extend(values)
    except (TypeError, ValueError):
        raise _wrong(field, values[0], f"values of {codec.member}") from None
    if not values:
        return pa.array([], field.arrow_type)
    found = decode_column(field, message, len(values))
    assert found is not None
    return found.values


def vectors(field: FieldSchema, values: list[Any]) -> pa.Array:
    """Return vectors as a column. Raises `InvalidParameter`, `InvalidDimension`."""
    form = field.vector
    if not form.has_dim:
        return pa.array([sparse_row(field, value) for value in values], pa.binary())
    return form.to_column(matrix(field, values))


def matrix(field: FieldSchema, values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return dense vectors as stored values (n, width). Raises `InvalidParameter`, `InvalidDimension`."""
    form = field.vector
    if not values:
        return form.empty(0, field.dim)
    if any(isinstance(value, str) for value in values):
        return np.concatenate([_one(field, value) for value in values])
    _check(field, values, frozenset({list}), "a list of numbers")
    width = form.width(field.dim)
    for value in values:
        if len(value) != width:
            raise InvalidDimension(
                f"the dim ({len(value) * form.dims_per_value}) of field data({field.name}) "
                f"is not equal to schema dim ({field.dim})"
            )
    if np.issubdtype(form.dtype, np.integer):
        return _whole(field, values)
    with np.errstate(over="ignore"):  # what becomes infinite is refused with its position, later
        return _singles(field, values, width).astype(form.dtype, copy=False)


def _singles(field: FieldSchema, values: Sequence[Any], width: int) -> npt.NDArray[np.float32]:
    """The numbers of lists of ``width``: float32 (n, width). `struct` packs them twice as fast as numpy."""
    pack = struct.Struct(f"<{width}f").pack
    try:
        content = b"".join([pack(*value) for value in values])
    except struct.error:
        raise _wrong(field, _stranger(values, _NUMBERS), "a list of numbers") from None
    except OverflowError:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(np.float32)
    found = np.frombuffer(content, np.float32).reshape(len(values), width)
    # JSON's true is packed as 1 and false as 0.
    suspicious = np.flatnonzero(((found == 0) | (found == 1)).any(axis=1)).tolist()
    wrong = _stranger([values[row] for row in suspicious], _NUMBERS)
    if wrong is not None:
        raise _wrong(field, wrong, "a list of numbers")
    return found


def _whole(field: FieldSchema, values: Sequence[Any]) -> npt.NDArray[Any]:
    dtype = field.vector.dtype
    ends = np.iinfo(dtype)
    expected = f"a list of whole numbers from {ends.min} to {ends.max}"
    wrong = _stranger(values, _WHOLE)
    if wrong is not None:
        raise _wrong(field, wrong, expected)
    try:
        found = np.array(values, np.int64)
    except OverflowError:
        raise _wrong(field, "a number beyond 64 bits", expected) from None
    if found.min() < ends.min or found.max() > ends.max:
        raise _wrong(field, found[(found < ends.min) | (found > ends.max)][0], expected)
    return found.astype(dtype)


def _stranger(values: Sequence[Any], types: frozenset[type]) -> object | None:
    """The first item of the lists that is of no such type, as JSON writes it; None if there is none."""
    for value in values:
        if set(map(type, value)) - types:
            return json.dumps(next(item for item in value if type(item) not in types))
    return None


def _one(field: FieldSchema, value: object) -> npt.NDArray[Any]:
    """One vector, as a list or as base64: (1, width)."""
    form = field.vector
    if not isinstance(value, str) or form.dtype == np.float32:
        return matrix(field, [value]) if not isinstance(value, str) else _listed_in_text(field, value)
    try:
        content = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return _listed_in_text(field, value)
    if len(content) != form.row_bytes(field.dim):
        raise InvalidDimension(
            f"the vector of field {field.name} has {len(content)} bytes in base64, "
            f"its dim ({field.dim}) needs {form.row_bytes(field.dim)}"
        )
    return np.frombuffer(content, form.dtype).reshape(1, -1)


def _listed_in_text(field: FieldSchema, value: str) -> npt.NDArray[Any]:
    listed = _list(value)
    if not isinstance(listed, list):
        raise _wrong(field, value, "a list of numbers, or for vectors of bytes their base64")
    return matrix(field, [listed])


def sparse_row(field: FieldSchema, value: object) -> bytes:
    """Return a sparse vector's pairs, in the order of their indices. Raises `InvalidParameter`."""
    value = _list(value)
    if not isinstance(value, dict):
        raise _wrong(field, value, 'an object, such as {"1": 0.5}')
    if value.keys() == {"indices", "values"}:
        indices, numbers = value["indices"], value["values"]
        if not isinstance(indices, list) or not isinstance(numbers, list) or len(indices) != len(numbers):
            raise _wrong(field, value, "as many values as indices")
    else:
        indices, numbers = [_index(key) for key in value], list(value.values())
    if set(map(type, indices)) - _WHOLE or any(not 0 <= index < NO_INDEX for index in indices):
        raise _wrong(field, value, f"indices from 0 to {NO_INDEX - 1}")
    if set(map(type, numbers)) - _NUMBERS:
        raise _wrong(field, value, "numbers as values")
    order = np.argsort(np.array(indices, np.int64), kind="stable")
    with np.errstate(over="ignore"):
        pairs = paired(np.array(indices, np.int64)[order], np.array(numbers, np.float64)[order])
    return pairs.tobytes()


def _index(key: str) -> int | str:
    return int(key) if _INTEGER.fullmatch(key) else key


def keys(schema: CollectionSchema, values: Sequence[Any]) -> pa.Array:
    """Return primary keys as a column of the key's type. Raises `InvalidParameter`."""
    column = column_values(schema.primary_field, list(values))
    assert isinstance(column, pa.Array)
    return column.cast(schema.primary_field.arrow_type)


_READERS: Mapping[DataType, Callable[[FieldSchema, list[Any]], pa.Array | Sequence[bytes]]] = {
    DataType.BOOL: _bools,
    DataType.INT8: _integers,
    DataType.INT16: _integers,
    DataType.INT32: _integers,
    DataType.INT64: _integers,
    DataType.FLOAT: _floats,
    DataType.DOUBLE: _floats,
    DataType.VARCHAR: _texts,
    DataType.JSON: _documents,
    DataType.ARRAY: _arrays,
}
