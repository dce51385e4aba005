"""Schemas: what is refused, in which words, and that nothing is lost on the way there and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from wire_messages import field, field_message, key_message, schema, schema_bytes, steady, vector_message

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidDimension, InvalidParameter, NotSupported
from elanus.core.ids import CollectionID, FieldID
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import compose
from elanus.proxy.api.collections import CollectionView
from elanus.proxy.wire.schemas import decode_schema, describe, encode_schema
from elanus.proxy.wire.stubs import schema_pb2

KEY, VECTOR = key_message(), vector_message()


def scalar(data_type: int, params: dict[str, object] | None = None, **more: Any) -> Message:
    return field_message("x", data_type, params, **more)


def array(element_type: int, max_capacity: object = None, **more: Any) -> Message:
    params = None if max_capacity is None else {"max_capacity": max_capacity}
    return scalar(DataType.ARRAY, params, element_type=element_type, **more)


def default(**value: Any) -> Message:
    return schema_pb2.ValueField(**value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([VECTOR], "primary key is not specified"),
        (
            [KEY, field_message("id2", DataType.INT64, is_primary_key=True), VECTOR],
            "more than one primary key",
        ),
        ([KEY, KEY, VECTOR], "duplicated field name id"),
        ([KEY], "schema does not contain vector field"),
        ([KEY, *[vector_message(f"v{i}") for i in range(11)]], "field's number should be limited to 10"),
        ([KEY, VECTOR, *[field_message(f"f{i}", DataType.INT64) for i in range(63)]], "field's number"),
        ([field_message("id", DataType.FLOAT, is_primary_key=True), VECTOR], "should be Int64 or VarChar"),
        ([field_message("id", DataType.TEXT, is_primary_key=True), VECTOR], "should be Int64 or VarChar"),
        ([KEY, VECTOR, scalar(DataType.INT64, autoID=True)], "only primary field can speficy AutoID"),
        ([key_message(nullable=True), VECTOR], "primary field not support null"),
        (
            [key_message(default_value=default(long_data=1)), VECTOR],
            "primary field not support default_value",
        ),
        ([KEY, VECTOR, scalar(DataType.VARCHAR)], "type param(max_length) should be specified"),
        ([KEY, VECTOR, scalar(DataType.VARCHAR, {"max_length": 0})], "should be in (0, 65535]"),
        ([KEY, VECTOR, scalar(DataType.VARCHAR, {"max_length": 65536})], "should be in (0, 65535]"),
        ([KEY, VECTOR, scalar(DataType.VARCHAR, {"max_length": "a"})], "should be in (0, 65535]"),
        ([KEY, VECTOR, array(5)], "type param(max_capacity) should be specified for array field x of"),
        ([KEY, VECTOR, array(5, "a")], "the value for max_capacity of field x must be an integer"),
        ([KEY, VECTOR, array(5, 0)], "the maximum capacity specified for a Array should be in (0, 4096]"),
        ([KEY, VECTOR, array(5, 4097)], "the maximum capacity specified for a Array should be in (0, 4096]"),
        ([KEY, VECTOR, array(0, 4)], "element data type None is not valid"),
        ([KEY, VECTOR, array(20, 4)], "please use VarChar type instead"),
        ([KEY, VECTOR, array(101, 4)], "element type FloatVector is not supported"),
        ([KEY, VECTOR, array(23, 4)], "element type JSON is not supported"),
        ([KEY, VECTOR, array(22, 4)], "element type Array is not supported"),
        ([KEY, VECTOR, array(99, 4)], "element type 99 of field x is not supported"),
        ([KEY, VECTOR, array(21, 4)], "type param(max_length) should be specified for the field(x)"),
        ([KEY, VECTOR, array(5, 4, default_value=default(long_data=1))], "default_value, type:Array, name:x"),
        (
            [field_message("id", 22, {"max_capacity": 4}, element_type=5, is_primary_key=True), VECTOR],
            "should be Int64 or VarChar",
        ),
        ([key_message(is_partition_key=True), VECTOR], "the partition key field must not be primary field"),
        (
            [KEY, VECTOR, scalar(DataType.DOUBLE, is_partition_key=True)],
            "the data type of partition key should be Int64 or VarChar",
        ),
        (
            [KEY, VECTOR, scalar(DataType.INT64, is_partition_key=True, nullable=True)],
            "partition key field not support nullable",
        ),
        (
            [KEY, VECTOR, *(field_message(n, 5, is_partition_key=True) for n in ("a", "b"))],
            "there are more than one partition key, field name = a, b",
        ),
        (
            [KEY, VECTOR, scalar(DataType.BOOL, is_clustering_key=True)],
            "clustering key field x has unsupported data type Bool",
        ),
        (
            [KEY, VECTOR, scalar(DataType.TEXT, is_clustering_key=True)],
            "clustering key field x has unsupported data type Text",
        ),
        (
            [KEY, VECTOR, field_message("x", DataType.FLOAT16_VECTOR, {"dim": 4}, is_clustering_key=True)],
            "clustering key field x has unsupported data type Float16Vector",
        ),
        (
            [KEY, VECTOR, *(field_message(n, 5, is_clustering_key=True) for n in ("a", "b"))],
            "there are more than one clustering key, field name = a, b",
        ),
        ([KEY, VECTOR, scalar(0)], "data type None"),
        ([KEY, VECTOR, scalar(99)], "data type 99"),
        ([KEY, VECTOR, field_message("1a", DataType.INT64)], "Invalid field name: 1a. The first character"),
        ([KEY, VECTOR, field_message("a-b", DataType.INT64)], "can only contain numbers, letters"),
        ([KEY, VECTOR, field_message("", DataType.INT64)], "field name should not be empty"),
        ([KEY, VECTOR, field_message("a" * 256, DataType.INT64)], "must be less than 255 characters"),
        ([KEY, VECTOR, field_message("$meta", DataType.JSON)], "Invalid field name: $meta. The first"),
        ([KEY, VECTOR, field_message("Timestamp", DataType.INT64)], "schema contains system field"),
        ([KEY, VECTOR, scalar(DataType.STRING)], "string data type not supported yet, please use VarChar"),
        ([KEY, VECTOR, scalar(DataType.NONE)], "data type None is not valid"),
        ([KEY, VECTOR, field_message("LIKE", DataType.INT64)], "LIKE is keyword in milvus"),
        ([KEY, VECTOR, field_message("RowID", DataType.INT64)], "schema contains system field"),
        ([KEY, VECTOR, scalar(DataType.JSON, is_dynamic=True)], "cannot explicitly set a field as a dynamic"),
        (
            [KEY, VECTOR, scalar(DataType.INT32, default_value=default(long_data=1))],
            "type (Int32) of field (x) is not equal to the type(DataType_Int64) of default_value",
        ),
        (
            [KEY, VECTOR, scalar(DataType.DOUBLE, default_value=default(string_data="2.6"))],
            "type (Double) of field (x) is not equal to the type(DataType_VarChar) of default_value",
        ),
        (
            [KEY, VECTOR, scalar(DataType.INT8, default_value=default(int_data=300))],
            "[300 out of range -128 <= value <= 127]",
        ),
        (
            [
                KEY,
                VECTOR,
                scalar(DataType.VARCHAR, {"max_length": 2}, default_value=default(string_data="äö")),
            ],
            "the length (4) of string exceeds max length (2)",
        ),
        ([KEY, VECTOR, scalar(DataType.JSON, default_value=default(bytes_data=b"1"))], "not support default"),
    ],
)
def test_a_bad_schema_is_refused_in_the_references_words(fields: list[Message], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        decode_schema(schema_bytes(*fields), "books")
    assert text in refusal.value.message


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        (vector_message(dim=1), "invalid dimension: 1. should be in range 2 ~ 32768"),
        (
            vector_message(dim=32769),
            "32769 of field vector. float vector dimension should be in range 2 ~ 32768",
        ),
        (vector_message(dim="x"), "invalid dimension: x"),
        (
            field_message("v", DataType.FLOAT_VECTOR),
            "dimension is not defined in field type params of field v, check",
        ),
        (
            field_message("v", DataType.BINARY_VECTOR, {"dim": 12}),
            "12 of field v. binary vector dimension should be multiple of 8. ",
        ),
        (
            field_message("v", DataType.BINARY_VECTOR, {"dim": 8 * 32768 + 8}),
            "262152 of field v. binary vector dimension should be in range 2 ~ 262144",
        ),
    ],
)
def test_a_bad_dimension_is_refused(vector: Message, text: str) -> None:
    with pytest.raises(InvalidDimension) as refusal:
        decode_schema(schema_bytes(KEY, vector), "books")
    assert text in refusal.value.message


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (schema_bytes(KEY, VECTOR, scalar(DataType.INT64, {"enable_analyzer": "true"})), "enable_analyzer"),
        (schema_bytes(KEY, VECTOR, enable_namespace=True), "the field enable_namespace"),
    ],
)
def test_what_is_not_built_is_refused_with_a_remedy(content: bytes, text: str) -> None:
    with pytest.raises(NotSupported) as refusal:
        decode_schema(content, "books")
    assert text in refusal.value.message
    assert "not supported by this release" in refusal.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "collection name should not be empty"),
        ("1n", "Invalid collection name: 1n. the first character of a collection name must be an underscore"),
        ("a b", "collection name can only contain numbers, letters and underscores"),
        ("a" * 256, "must be less than 255 characters"),
        ("other", "collection name matches schema name"),
    ],
)
def test_a_bad_collection_name_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        decode_schema(schema_bytes(KEY, VECTOR), name)
    assert text in refusal.value.message


def test_bytes_that_are_no_schema_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="not a valid message"):
        decode_schema(b"\xff\xff", "books")


def test_a_dynamic_schema_gets_its_field_and_clients_do_not_see_it() -> None:
    decoded = decode_schema(schema_bytes(KEY, VECTOR, enable_dynamic_field=True), "books")
    assert decoded.fields[-1].name == DYNAMIC_FIELD
    assert decoded.dynamic_field is decoded.fields[-1]
    shown = encode_schema(decoded)
    assert shown.enable_dynamic_field
    assert [f.name for f in shown.fields] == ["id", "vector"]


def test_further_type_params_are_kept() -> None:
    content = schema_bytes(KEY, field_message("v", DataType.FLOAT_VECTOR, {"dim": 4, "mmap.enabled": "true"}))
    decoded = decode_schema(content, "books")
    assert dict(decoded.fields[1].params) == {"mmap.enabled": "true"}
    assert {p.key: p.value for p in encode_schema(decoded).fields[1].type_params} == {
        "dim": "4",
        "mmap.enabled": "true",
    }


def test_describing_names_what_the_clients_read() -> None:
    created = compose(1_700_000_000_123)
    view = CollectionView(
        database="library",
        collection_id=CollectionID(7),
        name="books",
        schema=schema(field("vector", DataType.FLOAT_VECTOR, dim=4)),
        vchannels=("ch_0_7v0", "ch_1_7v1"),
        pchannels=("ch_0", "ch_1"),
        consistency_level=ConsistencyLevel.BOUNDED,
        aliases=("shelf",),
        properties={"k": "v"},
        num_partitions=3,
        created=created,
        database_id=3,
        schema_changes=2,
    )
    response = describe(view, "shelf")
    assert (response.collection_name, response.schema.name) == ("shelf", "books")
    assert (response.db_name, response.collectionID, response.num_partitions) == ("library", 7, 3)
    assert (response.db_id, response.schema.version) == (3, 2)
    assert (response.shards_num, list(response.virtual_channel_names)) == (2, ["ch_0_7v0", "ch_1_7v1"])
    assert response.consistency_level == ConsistencyLevel.BOUNDED
    assert (response.created_timestamp, response.created_utc_timestamp) == (created, 1_700_000_000_123)
    assert response.update_timestamp == created
    assert {p.key: p.value for p in response.properties} == {"k": "v"}
    assert describe(view, "").collection_name == "books"


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: name not in ("RowID", "Timestamp", "id")
)
integer_types = st.sampled_from([DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64])


@st.composite
def scalar_fields(draw: st.DrawFn, name: str) -> FieldSchema:
    made = FieldSchema(
        FieldID(0), name, DataType.BOOL, description=draw(st.text(max_size=8)), nullable=draw(st.booleans())
    )
    kind = draw(st.sampled_from(["bool", "int", "float", "double", "varchar", "json"]))
    if kind == "int":
        value = draw(st.none() | st.integers(-128, 127))
        return replace(made, data_type=draw(integer_types), default_value=value)
    if kind == "float":
        value = draw(st.none() | st.floats(width=32, allow_nan=False))
        return replace(made, data_type=DataType.FLOAT, default_value=value)
    if kind == "double":
        return replace(made, data_type=DataType.DOUBLE, default_value=draw(st.none() | st.floats(-1e9, 1e9)))
    if kind == "varchar":
        value = draw(st.none() | st.text(max_size=4))
        return replace(
            made, data_type=DataType.VARCHAR, max_length=draw(st.integers(16, 65535)), default_value=value
        )
    if kind == "json":
        return replace(made, data_type=DataType.JSON)
    return replace(made, default_value=draw(st.none() | st.booleans()))


@st.composite
def schemas(draw: st.DrawFn) -> CollectionSchema:
    chosen = draw(st.lists(names, unique=True, min_size=1, max_size=6))
    key = draw(
        st.sampled_from(
            [
                FieldSchema(FieldID(0), "id", DataType.INT64, is_primary=True, auto_id=True),
                FieldSchema(FieldID(0), "id", DataType.VARCHAR, is_primary=True, max_length=64),
            ]
        )
    )
    vector = draw(
        st.sampled_from(
            [
                FieldSchema(FieldID(0), chosen[0], DataType.FLOAT_VECTOR, dim=8),
                FieldSchema(FieldID(0), chosen[0], DataType.BINARY_VECTOR, dim=16),
            ]
        )
    )
    scalars = tuple(draw(scalar_fields(name)) for name in chosen[1:])
    return CollectionSchema("books", (key, vector, *scalars), description=draw(st.text(max_size=8)))


@steady
@given(schemas())
def test_a_schema_comes_back_as_it_was(given_schema: CollectionSchema) -> None:
    assert decode_schema(encode_schema(given_schema).SerializeToString(), "books") == given_schema
