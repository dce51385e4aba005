"""Sparse vectors and vectors of bytes on the wire: schemas, inserts, searches and answers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from pymilvus.client.entity_helper import sparse_rows_to_proto
from wire_messages import field

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.limits import VECTOR_FIELDS_MAX
from elanus.core.rows import conform
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.proxy.wire.columns import decode_column as column_of
from elanus.proxy.wire.fields import encode_field
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.results import encode_column
from elanus.proxy.wire.schemas import decode_schema
from elanus.proxy.wire.stubs import common_pb2, schema_pb2

ROWS = [{1: 0.5, 100: 0.25}, {}, {2**32 - 2: 1.5, 3: 2.0}]
SPARSE = field("v", DataType.SPARSE_FLOAT_VECTOR)
INT8 = field("v", DataType.INT8_VECTOR, dim=4)
BYTES = np.array([[1, -2, 127, -128], [0, 0, 5, -7]], np.int8)


def contents() -> list[bytes]:
    return list(sparse_rows_to_proto(ROWS).contents)


def sparse_insert(rows: list[bytes], dim: int = 101) -> Message:
    data = schema_pb2.FieldData(field_name="v", type=104)
    data.vectors.sparse_float_vector.contents.extend(rows)
    data.vectors.sparse_float_vector.dim = data.vectors.dim = dim
    return data


def queries_of(placeholder: int, values: list[bytes]) -> bytes:
    one = common_pb2.PlaceholderValue(tag="$0", type=placeholder, values=values)
    content: bytes = common_pb2.PlaceholderGroup(placeholders=[one]).SerializeToString()
    return content


def decode_column(of: FieldSchema, data: Message, rows: int) -> pa.Array:
    """As an insert takes it: read, and checked."""
    only = CollectionSchema("c", (of,))
    return conform(only, lambda f: column_of(f, data, rows), rows, with_auto_key=True).column(0)


def test_a_sparse_insert_comes_back_byte_for_byte() -> None:
    column = decode_column(SPARSE, sparse_insert(contents()), 3)
    assert column.type == SPARSE.arrow_type == pa.binary()
    assert column.to_pylist() == contents()
    for part, sent, dim in (
        (column, contents(), 2**32 - 1),
        (column[:2], contents()[:2], 101),
        (column[:0], [], 0),
    ):
        answer = schema_pb2.FieldData()
        encode_column(answer, "v", SPARSE, part)
        assert list(answer.vectors.sparse_float_vector.contents) == sent
        assert answer.vectors.WhichOneof("data") == "sparse_float_vector"
        assert (answer.type, answer.vectors.dim, answer.vectors.sparse_float_vector.dim) == (104, dim, dim)


def test_a_sparse_insert_that_does_not_fit() -> None:
    unsorted = contents()[0][8:] + contents()[0][:8]
    with pytest.raises(
        InvalidParameter, match=r"unsorted or same indices in sparse float vector.*field v, row 1"
    ):
        decode_column(SPARSE, sparse_insert([contents()[0], unsorted]), 2)
    with pytest.raises(
        InvalidParameter, match="invalid data length in sparse float vector: 5: field v, row 0"
    ):
        decode_column(SPARSE, sparse_insert([b"12345"]), 1)
    with pytest.raises(InvalidParameter, match=r"the num_rows \(3\) of field \(v\)"):
        decode_column(SPARSE, sparse_insert(contents()), 2)
    wrong = schema_pb2.FieldData(field_name="v", type=104)
    wrong.vectors.binary_vector = bytes(8)
    with pytest.raises(InvalidParameter, match="SPARSE_FLOAT_VECTOR needs sparse_float_vector"):
        decode_column(SPARSE, wrong, 1)


def test_sparse_queries() -> None:
    queries = decode_queries(queries_of(104, contents()), 3, SPARSE)
    assert queries.shape == (3, 2)
    assert queries.dtype == np.uint64
    with pytest.raises(InvalidParameter, match=r"type must be the same.*search info type VECTOR_FLOAT"):
        decode_queries(queries_of(101, contents()), 3, SPARSE)
    with pytest.raises(
        InvalidParameter, match="invalid data length in sparse float vector: 7: query vector 0"
    ):
        decode_queries(queries_of(104, [b"1234567"]), 1, SPARSE)
    with pytest.raises(InvalidParameter, match="nq is 2, but the request holds 3"):
        decode_queries(queries_of(104, contents()), 2, SPARSE)


def test_vectors_of_bytes() -> None:
    data = schema_pb2.FieldData(field_name="v", type=105)
    data.vectors.dim, data.vectors.int8_vector = 4, BYTES.tobytes()
    column = decode_column(INT8, data, 2)
    assert column.type == pa.binary(4)
    answer = schema_pb2.FieldData()
    encode_column(answer, "v", INT8, column)
    assert (answer.type, answer.vectors.dim, answer.vectors.int8_vector) == (105, 4, BYTES.tobytes())
    queries = decode_queries(queries_of(105, [v.tobytes() for v in BYTES]), 2, INT8)
    assert queries.dtype == np.float32
    assert np.array_equal(queries, BYTES.astype(np.float32))
    data.vectors.int8_vector = BYTES.tobytes()[:-1]
    with pytest.raises(InvalidDimension, match=r"the length\(7\) of int8 data should divide the dim\(4\)"):
        decode_column(INT8, data, 2)


def declared(*vectors: Message) -> CollectionSchema:
    key = schema_pb2.FieldSchema(name="id", data_type=schema_pb2.Int64, is_primary_key=True)
    message = schema_pb2.CollectionSchema(name="docs", fields=[key, *vectors])
    return decode_schema(message.SerializeToString(), "docs")


def vector(name: str, data_type: DataType, dim: int | None = None) -> Message:
    params = [] if dim is None else [common_pb2.KeyValuePair(key="dim", value=str(dim))]
    return schema_pb2.FieldSchema(name=name, data_type=int(data_type), type_params=params)


def test_a_sparse_field_has_no_dimension() -> None:
    schema = declared(vector("v", DataType.SPARSE_FLOAT_VECTOR))
    assert schema.field("v").dim == 0
    assert not encode_field(schema.field("v")).type_params
    with pytest.raises(InvalidParameter, match="dim should not be specified for sparse vector field v"):
        declared(vector("v", DataType.SPARSE_FLOAT_VECTOR, 8))
    with pytest.raises(InvalidDimension, match="dimension is not defined"):
        declared(vector("v", DataType.INT8_VECTOR))


def test_ten_vector_fields_of_all_types() -> None:
    types = [t for t in DataType if t.is_vector]
    dims = {t: None if t is DataType.SPARSE_FLOAT_VECTOR else 8 for t in types}
    fields = [vector(f"v{n}", t := types[n % len(types)], dims[t]) for n in range(VECTOR_FIELDS_MAX + 1)]
    assert VECTOR_FIELDS_MAX == 10
    assert len(declared(*fields[:-1]).vector_fields) == 10
    with pytest.raises(InvalidParameter, match="maximum vector field's number should be limited to 10"):
        declared(*fields)
