"""Vectors of half precision on the wire: bytes in inserts, searches and answers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from wire_messages import field

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.rows import conform
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.proxy.wire.columns import decode_column as column_of
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.results import encode_column
from elanus.proxy.wire.stubs import common_pb2, schema_pb2

CASES = [
    (DataType.FLOAT16_VECTOR, "float16_vector", np.dtype(np.float16), 102),
    (DataType.BFLOAT16_VECTOR, "bfloat16_vector", np.dtype(ml_dtypes.bfloat16), 103),
]
DIM = 4
VALUES = np.array([[1, -2, 0.5, 3], [0, 1e-3, 100, -7]])

each_type = pytest.mark.parametrize(("data_type", "member", "dtype", "placeholder"), CASES)


def insert_of(data_type: DataType, member: str, content: bytes, dim: int = DIM) -> Message:
    data = schema_pb2.FieldData(field_name="v", type=int(data_type))
    data.vectors.dim = dim
    setattr(data.vectors, member, content)
    return data


def queries_of(placeholder: int, values: list[bytes]) -> bytes:
    one = common_pb2.PlaceholderValue(tag="$0", type=placeholder, values=values)
    content: bytes = common_pb2.PlaceholderGroup(placeholders=[one]).SerializeToString()
    return content


def decode_column(of: FieldSchema, data: Message, rows: int) -> pa.Array:
    """As an insert takes it: read, and checked."""
    only = CollectionSchema("c", (of,))
    return conform(only, lambda f: column_of(f, data, rows), rows, with_auto_key=True).column(0)


def half(data_type: DataType) -> FieldSchema:
    return field("v", data_type, dim=DIM)


@each_type
def test_an_insert_comes_back_byte_for_byte(
    data_type: DataType, member: str, dtype: np.dtype, placeholder: int
) -> None:
    content = VALUES.astype(dtype).tobytes()
    column = decode_column(half(data_type), insert_of(data_type, member, content), 2)
    assert column.type == half(data_type).arrow_type
    assert half(data_type).vector.to_matrix(column).tobytes() == content
    for part, rows in ((column, slice(None)), (column.slice(1), slice(1, 2)), (column.slice(2), slice(2, 2))):
        answer = schema_pb2.FieldData()
        encode_column(answer, "v", half(data_type), part)
        assert getattr(answer.vectors, member) == VALUES.astype(dtype)[rows].tobytes()
        assert answer.vectors.WhichOneof("data") == member
        assert (answer.type, answer.vectors.dim) == (int(data_type), DIM)


@each_type
def test_queries_are_widened(data_type: DataType, member: str, dtype: np.dtype, placeholder: int) -> None:
    values = VALUES.astype(dtype)
    queries = decode_queries(queries_of(placeholder, [v.tobytes() for v in values]), 2, half(data_type))
    assert queries.dtype == np.float32
    assert np.array_equal(queries, values.astype(np.float32))
    with pytest.raises(InvalidDimension, match=r"expected vector size\(byte\) 8, actual 16"):
        decode_queries(queries_of(placeholder, [values.tobytes()]), 1, half(data_type))
    with pytest.raises(InvalidParameter, match=r"vector type must be the same.*search info type VECTOR_INT8"):
        decode_queries(queries_of(105, [bytes(8)]), 1, half(data_type))


@each_type
def test_float32_queries_are_rounded_to_the_precision_of_the_field(
    data_type: DataType, member: str, dtype: np.dtype, placeholder: int
) -> None:
    single = (VALUES + np.float32(0.001)).astype(np.float32)
    queries = decode_queries(queries_of(101, [row.tobytes() for row in single]), 2, half(data_type))
    assert queries.dtype == np.float32
    assert np.array_equal(queries, single.astype(dtype).astype(np.float32))
    with pytest.raises(InvalidDimension, match=r"expected vector size\(byte\) 16, actual 8"):
        decode_queries(queries_of(101, [bytes(8)]), 1, half(data_type))
    beyond = np.full(DIM, np.finfo(np.float32).max, np.float32)  # infinite as a half
    with pytest.raises(InvalidParameter, match=r"value '\+Inf' is not a number or infinity"):
        decode_queries(queries_of(101, [beyond.tobytes()]), 1, half(data_type))


@each_type
def test_float32_rows_are_rounded_to_the_precision_of_the_field(
    data_type: DataType, member: str, dtype: np.dtype, placeholder: int
) -> None:
    """Clients since 3.0 send lists and float32 arrays as they are."""
    single = (VALUES + np.float32(0.001)).astype(np.float32)

    def sent(values: np.ndarray) -> Message:
        data = schema_pb2.FieldData(field_name="v", type=int(data_type))
        data.vectors.dim = DIM
        data.vectors.float_vector.data.extend(values.reshape(-1).tolist())
        return data

    column = decode_column(half(data_type), sent(single), 2)
    assert half(data_type).vector.to_matrix(column).tobytes() == single.astype(dtype).tobytes()
    beyond = single.copy()
    beyond[1, 2] = np.finfo(np.float32).max  # infinite as a half
    with pytest.raises(InvalidParameter, match=r"value '\+Inf' is not a number.*field v, row 1"):
        decode_column(half(data_type), sent(beyond), 2)
    with pytest.raises(InvalidDimension, match=r"the length\(7\) of float data"):
        decode_column(half(data_type), sent(single.reshape(-1)[:-1]), 2)


@each_type
def test_an_insert_that_does_not_fit(
    data_type: DataType, member: str, dtype: np.dtype, placeholder: int
) -> None:
    content = VALUES.astype(dtype).tobytes()
    with pytest.raises(InvalidDimension, match=rf"the length\(15\) of {member[:-7]} data"):
        decode_column(half(data_type), insert_of(data_type, member, content[:-1]), 2)
    with pytest.raises(InvalidDimension, match=r"the dim \(8\) of field data\(v\) is not equal"):
        decode_column(half(data_type), insert_of(data_type, member, content, dim=8), 2)
    with pytest.raises(InvalidParameter, match=r"the num_rows \(2\) of field \(v\)"):
        decode_column(half(data_type), insert_of(data_type, member, content), 3)
    with pytest.raises(InvalidParameter, match=f"of type {data_type.name} needs {member}"):
        decode_column(half(data_type), insert_of(data_type, "binary_vector", content), 2)
    for bad, text in ((np.inf, r"\+Inf"), (-np.inf, "-Inf"), (np.nan, "NaN")):
        broken = VALUES.copy()
        broken[1, 2] = bad
        with pytest.raises(InvalidParameter, match=f"value '{text}' is not a number.*field v, row 1"):
            decode_column(half(data_type), insert_of(data_type, member, broken.astype(dtype).tobytes()), 2)
