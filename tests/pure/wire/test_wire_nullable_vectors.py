"""Nullable vectors on the wire: a flag for each row, and the vectors of the rows that have one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from wire_messages import field

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.rows import conform
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.proxy.wire.columns import decode_column
from elanus.proxy.wire.results import encode_column
from elanus.proxy.wire.stubs import schema_pb2

DIM = 8
PAIR = np.array([3], "<u4").tobytes() + np.array([0.5], "<f4").tobytes()
DENSE = {
    DataType.FLOAT_VECTOR: "float_vector",
    DataType.BINARY_VECTOR: "binary_vector",
    DataType.FLOAT16_VECTOR: "float16_vector",
    DataType.BFLOAT16_VECTOR: "bfloat16_vector",
    DataType.INT8_VECTOR: "int8_vector",
}
TYPES = [*DENSE, DataType.SPARSE_FLOAT_VECTOR]

each_type = pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)


def nullable(data_type: DataType) -> FieldSchema:
    return field("v", data_type, dim=0 if data_type is DataType.SPARSE_FLOAT_VECTOR else DIM, nullable=True)


def sent(data_type: DataType, vectors: int, valid: list[bool]) -> Message:
    data = schema_pb2.FieldData(field_name="v", type=int(data_type), valid_data=valid)
    if data_type is DataType.SPARSE_FLOAT_VECTOR:
        if vectors:
            data.vectors.sparse_float_vector.contents.extend([PAIR] * vectors)
        return data
    data.vectors.dim = DIM
    if data_type is DataType.FLOAT_VECTOR:
        data.vectors.float_vector.data.extend(range(vectors * DIM))
    else:
        row_bytes = nullable(data_type).vector.row_bytes(DIM)
        setattr(data.vectors, DENSE[data_type], bytes(range(row_bytes)) * vectors)
    return data


def inserted(of: FieldSchema, data: Message | None, rows: int) -> pa.Array:
    def given(of: FieldSchema) -> object:
        return None if data is None else decode_column(of, data, rows)

    return conform(CollectionSchema("c", (of,)), given, rows, with_auto_key=True).column(0)


@each_type
@pytest.mark.parametrize("vectors", [2, 3], ids=["compact", "expanded"])
def test_an_insert_comes_back(data_type: DataType, vectors: int) -> None:
    of = nullable(data_type)
    column = inserted(of, sent(data_type, vectors, [True, False, True]), 3)
    assert column.type == of.arrow_type
    assert column.is_valid().to_pylist() == [True, False, True]
    answer = schema_pb2.FieldData()
    encode_column(answer, "v", of, column)
    assert list(answer.valid_data) == [True, False, True]
    again = inserted(of, answer, 3)
    assert again.to_pylist() == column.to_pylist()
    if vectors == 2:
        member = DENSE.get(data_type, "sparse_float_vector")
        original = sent(data_type, 2, [])
        if data_type is DataType.SPARSE_FLOAT_VECTOR:
            assert list(answer.vectors.sparse_float_vector.contents) == [PAIR] * 2
        else:
            assert getattr(answer.vectors, member) == getattr(original.vectors, member)


@each_type
def test_rows_that_all_lack_one(data_type: DataType) -> None:
    of = nullable(data_type)
    for data in (sent(data_type, 0, [False, False]), None):
        column = inserted(of, data, 2)
        assert column.type == of.arrow_type
        assert column.null_count == 2
        answer = schema_pb2.FieldData()
        encode_column(answer, "v", of, column)
        assert list(answer.valid_data) == [False, False]
        assert answer.vectors.WhichOneof("data") == DENSE.get(data_type, "sparse_float_vector")
        assert inserted(of, answer, 2).null_count == 2


@each_type
def test_an_answer_says_of_every_row_that_it_has_one(data_type: DataType) -> None:
    answer = schema_pb2.FieldData()
    encode_column(answer, "v", nullable(data_type), inserted(nullable(data_type), sent(data_type, 2, []), 2))
    assert list(answer.valid_data) == [True, True]


def test_what_does_not_fit() -> None:
    of = nullable(DataType.FLOAT_VECTOR)
    with pytest.raises(InvalidParameter, match=r"the num_rows \(1\) of field \(v\)"):
        inserted(of, sent(DataType.FLOAT_VECTOR, 1, [True, False, True]), 3)
    with pytest.raises(InvalidParameter, match="valid_data"):
        inserted(of, sent(DataType.FLOAT_VECTOR, 1, [True]), 3)
    data = sent(DataType.FLOAT_VECTOR, 2, [True, False, True])
    data.vectors.dim = 4
    with pytest.raises(InvalidDimension):
        inserted(of, data, 3)
    required = field("v", DataType.FLOAT_VECTOR, dim=DIM)
    with pytest.raises(InvalidParameter, match="vector field v cannot be null"):
        inserted(required, sent(DataType.FLOAT_VECTOR, 1, [True, False]), 2)
