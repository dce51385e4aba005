"""The wire encoding of each data type: one `Codec` per type, with the same keys as `elanus.core.types.KINDS`.

numpy reads protobuf's repeated numbers through the buffer protocol (protobuf ≥ 7): 768,000 floats take
0.06 ms. Strings and JSON texts are passed as lists, which protobuf and Arrow iterate in C, in pieces
(`elanus.core.pieces`).

Floats are written to the wire as bytes: a packed repeated field is a length followed by the little-endian
values, so a numpy buffer is spliced in and parsed with one copy (0.15 ms for 768,000 floats; passing a list
to protobuf takes 23 ms). Integers are varints and strings are length-prefixed; protobuf iterates a list of
them in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.pieces import array_of
from elanus.core.schema import FieldSchema
from elanus.core.sparse import SparseRows
from elanus.core.types import DataType
from elanus.core.vector_lists import VectorLists, list_column
from elanus.proxy.wire.stubs import common_pb2, schema_pb2

FLOATS = "float_vector"
"""The member of ``VectorField`` with float32 values."""
_LENGTH_DELIMITED = 2
_FLOATS_NUMBER: int = schema_pb2.FloatArray.DESCRIPTOR.fields_by_name["data"].number

Stored = npt.NDArray[Any]
"""The stored values of vectors, concatenated: shape (n · width,)."""
_Decode = Callable[[FieldSchema, schema_pb2.VectorField], pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class ScalarCodec:
    """``member``: of ``ScalarField``. ``decode``: its values as a column, or JSON documents, unchecked.

    ``encode`` fills the member's ``data`` from a column without nulls. ``default_member``: of ``ValueField``;
    None if the type has no defaults. ``null_stand_in``: sent in place of a null, for clients that do not know
    ``valid_data``.
    """

    member: str
    decode: Callable[[Any], pa.Array | Sequence[bytes]]
    encode: Callable[[Any, pa.Array], None]
    default_member: str | None
    null_stand_in: bool | int | str = 0


@dataclass(frozen=True, slots=True, eq=False)
class VectorCodec:
    """``member``: of ``VectorField``. ``decode``: its vectors as a column, unchecked; raises
    `InvalidDimension` if they are not whole vectors. ``encode`` fills the message from a column without
    nulls, which may be empty. ``placeholder_type``: of query vectors, which are sent as the bytes of their
    stored values. ``list_placeholder_type``: of queries that are lists of such vectors. ``takes_floats``: the
    vectors may also be sent as float32, and are rounded.
    """

    member: str
    decode: _Decode
    encode: Callable[[schema_pb2.VectorField, FieldSchema, pa.Array], None]
    placeholder_type: int
    list_placeholder_type: int | None = None
    takes_floats: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ArrayCodec:
    """``member``: of ``ScalarField``; it has one ``ScalarField`` per row, with the elements' own member.

    ``elements``: the codecs of the types that elements can have.
    """

    member: str
    elements: Mapping[DataType, ScalarCodec]

    def decode(self, field: FieldSchema, rows: Sequence[schema_pb2.ScalarField]) -> pa.Array:
        """Return the rows as a ``list`` column, unchecked. Raises `InvalidParameter` for other elements."""
        codec = self.elements[field.element_type]
        sent = {row.WhichOneof("data") for row in rows}
        if sent - {codec.member}:
            wrong = sorted("nil" if member is None else member for member in sent - {codec.member})[0]
            raise InvalidParameter(
                f"insert data does not match: field {field.name} is an array of {field.element_type.name}"
                f"[expected={codec.member} array][actual={wrong} array]"
            )
        values = [getattr(row, codec.member).data for row in rows]
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
        sent_as = _SENT_AS[codec.member]
        elements = array_of(values, lambda part: pa.array(list(chain.from_iterable(part)), sent_as))
        return pa.ListArray.from_arrays(pa.array(offsets), elements)

    def encode(self, field: FieldSchema, target: schema_pb2.ArrayArray, column: pa.Array) -> None:
        """Fill the member with one message per row; a null row gets an empty one."""
        target.element_type = schema_pb2.DataType.ValueType(field.element_type)
        member = self.elements[field.element_type].member
        for elements in column.to_pylist():
            row = getattr(target.data.add(), member)
            row.SetInParent()  # clients look up the member of an empty array, too
            row.data.extend(elements or ())


@dataclass(frozen=True, slots=True, eq=False)
class VectorListCodec:
    """``member``: of ``VectorField``; it has one ``VectorField`` per row, with the vectors' own member."""

    member: str

    def decode(self, field: FieldSchema, rows: Sequence[schema_pb2.VectorField]) -> pa.Array:
        """Return the rows as a column of `elanus.core.vector_lists`, unchecked.

        Raises `InvalidParameter` for other vectors, `InvalidDimension` for those of another dimension.
        """
        codec = VECTOR_CODECS[field.element_type]
        form, element = field.vector, field.element
        found: list[Stored] = [np.empty(0, dtype=form.dtype)]
        offsets = np.zeros(len(rows) + 1, np.int64)
        for number, row in enumerate(rows):
            sent = row.WhichOneof("data")
            if sent not in (codec.member, None):
                raise InvalidParameter(
                    f"insert data does not match: field {field.name} has vectors of {field.element_type.name}"
                    f"[expected={codec.member}][actual={sent}]"
                )
            if sent is not None and row.dim not in (0, field.dim):
                raise InvalidDimension(
                    f"the dim ({row.dim}) of field data({field.name}) "
                    f"is not equal to schema dim ({field.dim})"
                )
            vectors = codec.decode(element, row)
            offsets[number + 1] = offsets[number] + len(vectors)
            found.append(form.to_values(vectors))
        values = np.concatenate(found).reshape(-1, form.width(field.dim))
        return list_column(form, values, offsets)

    def encode(self, field: FieldSchema, target: schema_pb2.VectorArray, column: pa.Array) -> None:
        """Fill the member with one message per row; a null row gets an empty one."""
        target.dim = field.dim
        target.element_type = schema_pb2.DataType.ValueType(field.element_type)
        codec, form, element = VECTOR_CODECS[field.element_type], field.vector, field.element
        lists = VectorLists.from_column(form, field.dim, column)
        for start, end in pairwise(lists.offsets.tolist()):
            codec.encode(target.data.add(), element, form.to_column(lists.vectors[start:end]))


def packed_floats(field_number: int, values: npt.NDArray[np.float32]) -> bytes:
    """Return the wire form of a packed ``repeated float`` field: tag, length in bytes, values."""
    content = np.ascontiguousarray(values, dtype="<f4").tobytes()
    return _varint(field_number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Encode a non-negative number in protobuf's base-128 form."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


# scalars


def _numbers(values: Any) -> pa.Array:
    return pa.array(np.array(values))


def _texts(values: Any) -> pa.Array:
    return array_of(values, lambda part: pa.array(part, pa.string()))


def _documents(values: Any) -> Sequence[bytes]:
    documents: Sequence[bytes] = values
    return documents


def _add_numbers(target: Any, column: pa.Array) -> None:
    target.data.extend(column.to_numpy(zero_copy_only=False).tolist())


def _add_floats(target: Any, column: pa.Array) -> None:
    target.MergeFromString(packed_floats(_FLOATS_NUMBER, column.to_numpy(zero_copy_only=False)))


def _add_texts(target: Any, column: pa.Array) -> None:
    target.data.extend(column.to_pylist())


def _add_documents(target: Any, column: pa.Array) -> None:
    target.data.extend(column.cast(pa.binary()).to_pylist())


# vectors


def _dense(values: Callable[[FieldSchema, schema_pb2.VectorField], Stored]) -> _Decode:
    """Return a decoder of dense vectors, given one of their stored values."""

    def decode(field: FieldSchema, vectors: schema_pb2.VectorField) -> pa.Array:
        matrix = values(field, vectors).reshape(-1, field.vector.width(field.dim))
        return field.vector.to_column(matrix)

    return decode


def _floats(field: FieldSchema, vectors: schema_pb2.VectorField) -> Stored:
    values: Stored = np.array(vectors.float_vector.data)
    if len(values) % field.dim:
        raise InvalidDimension(
            f"the length({len(values)}) of float data should divide the dim({field.dim}), field {field.name}"
        )
    return values


def _bits(field: FieldSchema, vectors: schema_pb2.VectorField) -> Stored:
    content: bytes = vectors.binary_vector
    if len(content) % field.vector.row_bytes(field.dim):
        raise InvalidDimension(
            f"the num({len(content) * 8}) of all bits should divide the dim({field.dim}), field {field.name}"
        )
    return np.frombuffer(content, field.vector.dtype)


def _narrow(name: str) -> _Decode:
    """Return a decoder of vectors of half precision or of bytes; the member has the type's ``name``."""

    def values(field: FieldSchema, vectors: schema_pb2.VectorField) -> Stored:
        if vectors.WhichOneof("data") == FLOATS:
            with np.errstate(over="ignore"):  # what is beyond a half's range becomes infinite: refused later
                return _floats(field, vectors).astype(np.float32).astype(field.vector.dtype)
        content: bytes = getattr(vectors, f"{name}_vector")
        if len(content) % field.vector.row_bytes(field.dim):
            raise InvalidDimension(
                f"the length({len(content)}) of {name} data should divide the dim({field.dim}) in bytes, "
                f"field {field.name}"
            )
        return np.frombuffer(content, field.vector.dtype)

    return _dense(values)


def _sparse(field: FieldSchema, vectors: schema_pb2.VectorField) -> pa.Array:
    return array_of(vectors.sparse_float_vector.contents, lambda part: pa.array(part, pa.binary()))


def _add_float_vectors(vectors: schema_pb2.VectorField, field: FieldSchema, column: pa.Array) -> None:
    vectors.dim = field.dim
    vectors.float_vector.SetInParent()
    vectors.float_vector.MergeFromString(packed_floats(_FLOATS_NUMBER, field.vector.to_values(column)))


def _adds_bytes(member: str) -> Callable[[schema_pb2.VectorField, FieldSchema, pa.Array], None]:
    """Return an encoder of vectors that are sent as the bytes of their stored values."""

    def add(vectors: schema_pb2.VectorField, field: FieldSchema, column: pa.Array) -> None:
        vectors.dim = field.dim
        setattr(vectors, member, field.vector.to_values(column).tobytes())

    return add


def _add_sparse(vectors: schema_pb2.VectorField, field: FieldSchema, column: pa.Array) -> None:
    """A row is sent as the bytes that it was sent as. The dimension is that of these rows."""
    vectors.dim = SparseRows.from_column(column).dim
    vectors.sparse_float_vector.dim = vectors.dim
    vectors.sparse_float_vector.contents.extend(column.to_pylist())


_SENT_AS = {
    "bool_data": pa.bool_(),
    "int_data": pa.int32(),
    "long_data": pa.int64(),
    "float_data": pa.float32(),
    "double_data": pa.float64(),
    "string_data": pa.string(),
}
"""The Arrow type of each member's values."""

_ELEMENTS: Mapping[DataType, ScalarCodec] = {
    DataType.BOOL: ScalarCodec("bool_data", _numbers, _add_numbers, "bool_data", null_stand_in=False),
    DataType.INT8: ScalarCodec("int_data", _numbers, _add_numbers, "int_data"),
    DataType.INT16: ScalarCodec("int_data", _numbers, _add_numbers, "int_data"),
    DataType.INT32: ScalarCodec("int_data", _numbers, _add_numbers, "int_data"),
    DataType.INT64: ScalarCodec("long_data", _numbers, _add_numbers, "long_data"),
    DataType.FLOAT: ScalarCodec("float_data", _numbers, _add_floats, "float_data"),
    DataType.DOUBLE: ScalarCodec("double_data", _numbers, _add_numbers, "double_data"),
    DataType.VARCHAR: ScalarCodec("string_data", _texts, _add_texts, "string_data", null_stand_in=""),
}
"""The types that the elements of an array can have, too."""

CODECS: Mapping[DataType, ScalarCodec | VectorCodec | ArrayCodec | VectorListCodec] = {
    **_ELEMENTS,
    DataType.TEXT: ScalarCodec("string_data", _texts, _add_texts, "string_data", null_stand_in=""),
    DataType.GEOMETRY: ScalarCodec("geometry_wkt_data", _texts, _add_texts, "string_data", null_stand_in=""),
    DataType.TIMESTAMPTZ: ScalarCodec("string_data", _texts, _add_texts, "string_data", null_stand_in=""),
    DataType.JSON: ScalarCodec("json_data", _documents, _add_documents, None, null_stand_in="null"),
    DataType.ARRAY: ArrayCodec("array_data", _ELEMENTS),
    DataType.ARRAY_OF_VECTOR: VectorListCodec("vector_array"),
    DataType.FLOAT_VECTOR: VectorCodec(
        FLOATS,
        _dense(_floats),
        _add_float_vectors,
        common_pb2.PlaceholderType.Value("FloatVector"),
        common_pb2.PlaceholderType.Value("EmbListFloatVector"),
    ),
    DataType.BINARY_VECTOR: VectorCodec(
        "binary_vector",
        _dense(_bits),
        _adds_bytes("binary_vector"),
        common_pb2.PlaceholderType.Value("BinaryVector"),
        common_pb2.PlaceholderType.Value("EmbListBinaryVector"),
    ),
    DataType.FLOAT16_VECTOR: VectorCodec(
        "float16_vector",
        _narrow("float16"),
        _adds_bytes("float16_vector"),
        common_pb2.PlaceholderType.Value("Float16Vector"),
        common_pb2.PlaceholderType.Value("EmbListFloat16Vector"),
        takes_floats=True,
    ),
    DataType.BFLOAT16_VECTOR: VectorCodec(
        "bfloat16_vector",
        _narrow("bfloat16"),
        _adds_bytes("bfloat16_vector"),
        common_pb2.PlaceholderType.Value("BFloat16Vector"),
        common_pb2.PlaceholderType.Value("EmbListBFloat16Vector"),
        takes_floats=True,
    ),
    DataType.SPARSE_FLOAT_VECTOR: VectorCodec(
        "sparse_float_vector", _sparse, _add_sparse, common_pb2.PlaceholderType.Value("SparseFloatVector")
    ),
    DataType.INT8_VECTOR: VectorCodec(
        "int8_vector",
        _narrow("int8"),
        _adds_bytes("int8_vector"),
        common_pb2.PlaceholderType.Value("Int8Vector"),
        common_pb2.PlaceholderType.Value("EmbListInt8Vector"),
    ),
}


VECTOR_CODECS: Mapping[DataType, VectorCodec] = {
    data_type: codec for data_type, codec in CODECS.items() if isinstance(codec, VectorCodec)
}
