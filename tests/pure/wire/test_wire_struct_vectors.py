"""Vectors in struct arrays on the wire: declared, inserted, returned, searched with lists and by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from pymilvus import DataType as ClientType
from pymilvus import MilvusClient

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.rows import conform
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.vector_lists import VectorLists, is_packed, unpacked
from elanus.proxy.api.query import QueryResult
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.columns import decode_column
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.results import encode_column, encode_query, encode_search
from elanus.proxy.wire.schemas import decode_schema
from elanus.proxy.wire.stubs import common_pb2, schema_pb2

DIM = 8
MEMBERS = {
    DataType.FLOAT_VECTOR: "float_vector",
    DataType.BINARY_VECTOR: "binary_vector",
    DataType.FLOAT16_VECTOR: "float16_vector",
    DataType.BFLOAT16_VECTOR: "bfloat16_vector",
    DataType.INT8_VECTOR: "int8_vector",
}
each_type = pytest.mark.parametrize("element", MEMBERS, ids=lambda t: t.name)


def listed(element: DataType, **more: Any) -> FieldSchema:
    return FieldSchema(
        FieldID(101),
        "clips[v]",
        DataType.ARRAY_OF_VECTOR,
        element_type=element,
        dim=DIM,
        max_capacity=3,
        **more,
    )


def sent(element: DataType, lengths: list[int], valid: tuple[bool, ...] = ()) -> Message:
    data = schema_pb2.FieldData(field_name="v", type=106, valid_data=valid)
    target = data.vectors.vector_array
    target.dim, target.element_type = DIM, int(element)
    for length in lengths:
        row = target.data.add(dim=DIM)
        if element is DataType.FLOAT_VECTOR:
            row.float_vector.data.extend(range(length * DIM))
        else:
            vector_bytes = listed(element).vector.row_bytes(DIM)
            setattr(row, MEMBERS[element], bytes(range(vector_bytes)) * length)
    return data


def inserted(of: FieldSchema, data: Message, rows: int) -> pa.Array:
    batch = conform(
        CollectionSchema("c", (of,)), lambda of: decode_column(of, data, rows), rows, with_auto_key=True
    )
    return batch.column(0)


@each_type
def test_an_insert_comes_back(element: DataType) -> None:
    of = listed(element)
    column = inserted(of, sent(element, [2, 0, 3]), 3)
    assert column.type == of.arrow_type
    assert pa.compute.list_value_length(column).to_pylist() == [2, 0, 3]
    answer = schema_pb2.FieldData()
    encode_column(answer, "v", of, column)
    assert answer.vectors.vector_array.element_type == int(element)
    assert inserted(of, answer, 3).equals(column)


@pytest.mark.parametrize("lengths", [[1, 2], [1, 0, 2]], ids=["compact", "expanded"])
def test_nulls(lengths: list[int]) -> None:
    of = listed(DataType.INT8_VECTOR, nullable=True)
    column = inserted(of, sent(DataType.INT8_VECTOR, lengths, (True, False, True)), 3)
    assert column.is_valid().to_pylist() == [True, False, True]
    answer = schema_pb2.FieldData()
    encode_column(answer, "v", of, column)
    assert list(answer.valid_data) == [True, False, True]
    assert inserted(of, answer, 3).equals(column)


def _changed(path: str, value: object) -> Message:
    data = sent(DataType.FLOAT_VECTOR, [1, 2])
    target = data.vectors.vector_array
    if path == "element_type":
        target.element_type = value
    elif path == "row dim":
        target.data[1].dim = value
    elif path == "values":
        target.data[1].float_vector.data.extend([1.0])
    elif path == "nan":
        target.data[1].float_vector.data[DIM + 3] = float("nan")
    elif path == "member":
        target.data[1].int8_vector = b"12345678"
    elif path == "rows":
        target.data.add(dim=DIM).float_vector.SetInParent()
    return data


@pytest.mark.parametrize(
    ("path", "value", "error", "why"),
    [
        ("element_type", 105, InvalidParameter, "has vectors of FLOAT_VECTOR in the schema.*INT8_VECTOR"),
        ("row dim", 7, InvalidDimension, r"the dim \(7\) of field data\(clips\[v\]\)"),
        ("values", 0, InvalidDimension, r"length\(17\) of float data should divide the dim\(8\)"),
        ("nan", 0, InvalidParameter, r"value 'NaN' is not a number or infinity: field clips\[v\], row 1"),
        ("member", 0, InvalidParameter, "expected=float_vector.*actual=int8_vector"),
        ("rows", 0, InvalidParameter, r"num_rows \(3\) of field \(clips\[v\]\)"),
    ],
)
def test_an_insert_that_does_not_fit(path: str, value: object, error: type, why: str) -> None:
    with pytest.raises(error, match=why):
        inserted(listed(DataType.FLOAT_VECTOR), _changed(path, value), 2)


def test_a_list_may_be_too_long() -> None:
    with pytest.raises(InvalidParameter, match=r"the length \(4\) of 1th array exceeds max capacity \(3\)"):
        inserted(listed(DataType.FLOAT_VECTOR), sent(DataType.FLOAT_VECTOR, [1, 4]), 2)


# ---- searches


def placeholders(kind: str, *values: bytes) -> bytes:
    group = common_pb2.PlaceholderGroup()
    group.placeholders.add(tag="$0", type=common_pb2.PlaceholderType.Value(kind), values=values)
    content: bytes = group.SerializeToString()
    return content


@each_type
def test_queries_are_lists_or_single_vectors(element: DataType) -> None:
    of = listed(element)
    name = {"FLOAT16": "Float16", "BFLOAT16": "BFloat16"}.get(
        element.name.split("_")[0], element.name.split("_")[0].capitalize()
    )
    one = bytes(range(1, of.vector.row_bytes(DIM) + 1))
    if element is DataType.FLOAT_VECTOR:
        one = np.arange(DIM, dtype="<f4").tobytes()
    found = decode_queries(placeholders(f"EmbList{name}Vector", one * 2, one), 2, of)
    assert is_packed(found)
    assert [len(vectors) for vectors in unpacked(of.vector, DIM, found)] == [2, 1]
    single = decode_queries(placeholders(f"{name}Vector", one, one), 2, of)
    assert not is_packed(single)
    np.testing.assert_array_equal(unpacked(of.vector, DIM, found)[0], single)


def test_queries_that_are_refused() -> None:
    of, one = listed(DataType.FLOAT_VECTOR), np.ones(DIM, "<f4").tobytes()
    for content, error, why in (
        (placeholders("EmbListFloatVector", one[:-4]), InvalidDimension, "32 or a multiple of it, actual 28"),
        (placeholders("EmbListFloatVector", b""), InvalidDimension, "actual 0"),
        (placeholders("EmbListInt8Vector", one), InvalidParameter, "vector type must be the same"),
        (placeholders("EmbListFloatVector", one[:-4] + b"\0\0\xc0\x7f"), InvalidParameter, "NaN"),
    ):
        with pytest.raises(error, match=why):
            decode_queries(content, 1, of)
    plain = FieldSchema(FieldID(1), "v", DataType.FLOAT_VECTOR, dim=DIM)
    with pytest.raises(InvalidParameter, match="search info type EmbListFloatVector"):
        decode_queries(placeholders("EmbListFloatVector", one), 1, plain)


KEYED = CollectionSchema("c", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),))


def test_hits_say_which_element_they_are() -> None:
    numbers = np.array([7, 7, 3])
    result = SearchResult(
        np.array([0, 2, 3]),
        numbers,
        np.ones(3, np.float32),
        {},
        (),
        (),
        KEYED,
        1,
        elements=np.array([0, 2, 1]),
    )
    assert list(encode_search(result, "c").results.element_indices.data) == [0, 2, 1]


def test_rows_of_an_element_filter_say_which_elements_match() -> None:
    elements = pa.array([[0, 2], [1]], pa.list_(pa.int64()))
    result = QueryResult({"id": pa.array([1, 2])}, ("id",), (), KEYED, 1, elements)
    found = encode_query(result, "c").element_indices
    assert [list(row.indices.data) for row in found] == [[0, 2], [1]]


# ---- with the newest client


@pytest.fixture
def client(port: int) -> Iterator[MilvusClient]:
    client = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield client
    client.close()


def test_a_client_gets_its_structs_back(client: MilvusClient) -> None:
    clip = client.create_struct_field_schema()
    clip.add_field("v", ClientType.FLOAT_VECTOR, dim=2)
    clip.add_field("b", ClientType.BINARY_VECTOR, dim=16)
    clip.add_field("n", ClientType.INT64)
    schema = client.create_schema()
    schema.add_field("id", ClientType.INT64, is_primary=True)
    schema.add_field("w", ClientType.FLOAT_VECTOR, dim=2)
    schema.add_field(
        "clips", ClientType.ARRAY, element_type=ClientType.STRUCT, struct_schema=clip, max_capacity=3
    )
    index = client.prepare_index_params("w", index_type="FLAT", metric_type="L2")
    index.add_index("clips[v]", index_type="HNSW", metric_type="MAX_SIM_COSINE")
    index.add_index("clips[b]", index_type="BIN_FLAT", metric_type="MAX_SIM_HAMMING")
    client.create_collection("films", schema=schema, index_params=index)
    (struct,) = [f for f in client.describe_collection("films")["fields"] if f["name"] == "clips"]
    members = {f["name"]: f for f in struct["struct_fields"]}
    assert members["v"]["type"] is ClientType.FLOAT_VECTOR
    assert members["v"]["params"]["dim"] == 2
    clips = [{"v": [1.0, 2.0], "b": b"ab", "n": 1}, {"v": [3.0, 4.0], "b": b"cd", "n": 2}]
    client.insert("films", [{"id": 1, "w": [0, 0], "clips": clips}, {"id": 2, "w": [1, 0], "clips": []}])
    got = client.query("films", "id > 0", output_fields=["clips[v]", "clips[b]", "clips[n]"])
    assert got[0]["clips"] == [{**clip, "b": [clip["b"]]} for clip in clips]  # so this client shows bytes
    assert got[1]["clips"] == []


# ---- schemas


def schema_of(**changes: Any) -> bytes:
    schema = schema_pb2.CollectionSchema(name="films")
    schema.fields.add(name="id", data_type=5, is_primary_key=True)
    struct = schema.struct_array_fields.add(name="clips")
    field = struct.fields.add(name="v", data_type=106, element_type=changes.get("element", 101))
    for key, value in {"dim": "4", "max_capacity": "3", **changes.get("params", {})}.items():
        if value:
            field.type_params.add(key=key, value=value)
    if changes.get("plain"):
        schema.fields.append(field)
        del schema.struct_array_fields[:]
    content: bytes = schema.SerializeToString()
    return content


def test_a_schema_may_have_its_only_vectors_in_structs() -> None:
    found = decode_schema(schema_of(), "films")
    (field,) = found.searched_fields
    assert (field.name, field.dim, field.max_capacity) == ("clips[v]", 4, 3)
    assert field.element_type is DataType.FLOAT_VECTOR
    assert found.vector_fields == ()
    lists = VectorLists.from_column(field.vector, 4, pa.array([], field.arrow_type))
    assert len(lists) == 0


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"element": 104}, InvalidParameter, r"Unsupported element type of ArrayOfVector field clips\[v\]"),
        ({"element": 5}, InvalidParameter, "Unsupported element type"),
        ({"params": {"dim": ""}}, InvalidDimension, "dimension is not defined"),
        ({"params": {"dim": "0"}}, InvalidDimension, "invalid dimension"),
        ({"params": {"max_capacity": ""}}, InvalidParameter, "max_capacity"),
        ({"params": {"max_capacity": "5000"}}, InvalidParameter, "maximum capacity"),
        ({"plain": True}, InvalidParameter, "only supported in struct array field"),
    ],
)
def test_schemas_that_are_refused(changes: dict[str, Any], error: type, why: str) -> None:
    with pytest.raises(error, match=why):
        decode_schema(schema_of(**changes), "films")


@pytest.mark.parametrize("element", [DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR])
def test_single_vectors_are_rounded_to_the_precision_of_halves(element: DataType) -> None:
    one = np.arange(DIM, dtype="<f4") + np.float32(0.001)
    found = decode_queries(placeholders("FloatVector", one.tobytes()), 1, listed(element))
    assert np.array_equal(found[0], one.astype(listed(element).vector.dtype).astype(np.float32))
