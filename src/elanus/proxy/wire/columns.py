"""One column of an insert: a ``FieldData`` message to an Arrow array, without per-row Python.

Everything that depends on the data type is in `elanus.proxy.wire.codecs`; the rules for valid values are in
`elanus.core.rows`.

For nullable fields and fields with a default, clients since 2.5 send ``valid_data``, one flag per row, and
only the values of the valid rows (*compact*). Others send a value for every row (*expanded*). Both are
accepted; the number of values distinguishes them. The values of null rows in expanded columns are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.rows import Given, Valid, check_nulls
from elanus.core.schema import DataType, FieldSchema
from elanus.proxy.wire.codecs import CODECS, FLOATS, ArrayCodec, ScalarCodec, VectorCodec, VectorListCodec
from elanus.proxy.wire.stubs import schema_pb2


def decode_column(field: FieldSchema, data: schema_pb2.FieldData, rows: int) -> Given | None:
    """Return the ``rows`` values sent for a field; None if the message is present but empty.

    Raises `InvalidParameter` or `InvalidDimension` for a wrong type, dimension or count, and for nulls where
    they are not allowed.
    """
    if data.type != int(field.data_type):
        raise _wrong_type(field, data)
    codec = CODECS[field.data_type]
    if isinstance(codec, VectorCodec):
        return _vectors(codec, field, data, rows)
    if isinstance(codec, VectorListCodec):
        return _vector_lists(codec, field, data, rows)
    return _scalars(codec, field, data, rows)


def _scalars(
    codec: ScalarCodec | ArrayCodec, field: FieldSchema, data: schema_pb2.FieldData, rows: int
) -> Given | None:
    _check_member(field, data.scalars, codec.member)
    values = getattr(data.scalars, codec.member).data
    valid = _valid_rows(field, data, rows)
    if not len(values) and valid is None and (field.nullable or field.default_value is not None):
        return None
    if len(values) == (rows if valid is None else int(valid.sum())):
        return Given(_decoded(codec, field, values), valid)
    if valid is None or len(values) != rows:
        raise _wrong_count(field, len(values), rows)
    if isinstance(codec, ArrayCodec):  # what stands for a null need not be an array of the field's type
        return Given(codec.decode(field, list(compress(values, valid.tolist()))), valid)
    expanded = codec.decode(values)
    if isinstance(expanded, pa.Array):
        return Given(expanded.filter(pa.array(valid)), valid)
    return Given(list(compress(expanded, valid.tolist())), valid)


def _decoded(codec: ScalarCodec | ArrayCodec, field: FieldSchema, values: Any) -> pa.Array | Sequence[bytes]:
    return codec.decode(field, values) if isinstance(codec, ArrayCodec) else codec.decode(values)


def _valid_rows(field: FieldSchema, data: schema_pb2.FieldData, rows: int) -> Valid | None:
    """Return which rows hold a value, or ``None`` if the client did not specify it."""
    if not len(data.valid_data):
        return None
    valid = np.array(data.valid_data)
    if len(valid) != rows:
        raise InvalidParameter(
            f"the length of valid_data of field({field.name}) is wrong: {len(valid)}, but num_rows is {rows}"
        )
    check_nulls(field, valid)
    return valid


def _vectors(codec: VectorCodec, field: FieldSchema, data: schema_pb2.FieldData, rows: int) -> Given | None:
    if not (codec.takes_floats and data.vectors.WhichOneof("data") == FLOATS):
        _check_member(field, data.vectors, codec.member)
    valid = _valid_rows(field, data, rows)
    if field.nullable and data.vectors.WhichOneof("data") is None and (valid is None or not valid.any()):
        return None
    column = codec.decode(field, data.vectors)
    if field.dim and data.vectors.dim != field.dim and (len(column) or not field.nullable):
        raise InvalidDimension(
            f"the dim ({data.vectors.dim}) of field data({field.name}) "
            f"is not equal to schema dim ({field.dim})"
        )
    if len(column) == (rows if valid is None else int(valid.sum())):
        return Given(column, valid)
    if valid is None or len(column) != rows:
        raise _wrong_count(field, len(column), rows)
    return Given(column.filter(pa.array(valid)), valid)


def _vector_lists(
    codec: VectorListCodec, field: FieldSchema, data: schema_pb2.FieldData, rows: int
) -> Given | None:
    _check_member(field, data.vectors, codec.member)
    sent = data.vectors.vector_array
    if sent.element_type not in (0, int(field.element_type)):
        raise InvalidParameter(
            f"field {field.name} has vectors of {field.element_type.name} in the schema, "
            f"but the data passed has {_type_name(sent.element_type)}"
        )
    valid = _valid_rows(field, data, rows)
    if not len(sent.data) and valid is None and field.nullable:
        return None
    if len(sent.data) == (rows if valid is None else int(valid.sum())):
        return Given(codec.decode(field, sent.data), valid)
    if valid is None or len(sent.data) != rows:
        raise _wrong_count(field, len(sent.data), rows)
    return Given(codec.decode(field, list(compress(sent.data, valid.tolist()))), valid)


def _check_member(
    field: FieldSchema, values: schema_pb2.ScalarField | schema_pb2.VectorField, member: str
) -> None:
    passed = values.WhichOneof("data")
    if passed not in (member, None):
        raise InvalidParameter(
            f"field {field.name} of type {field.data_type.name} needs {member}, but {passed} was passed"
        )


def _wrong_count(field: FieldSchema, got: int, rows: int) -> InvalidParameter:
    return InvalidParameter(
        f"the num_rows ({got}) of field ({field.name}) is not equal to passed num_rows ({rows})"
    )


def _wrong_type(field: FieldSchema, data: schema_pb2.FieldData) -> InvalidParameter:
    if field.is_dynamic:
        return InvalidParameter(f"json field '{field.name}' is illegal: its data type must be JSON")
    return InvalidParameter(
        f"field {field.name} has data type {field.data_type.name} in the schema, "
        f"but the data passed has {_type_name(data.type)}"
    )


def _type_name(number: int) -> str:
    try:
        return DataType(number).name
    except ValueError:
        return f"the unknown type {number}"
