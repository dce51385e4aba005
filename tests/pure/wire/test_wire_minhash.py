"""MinHash functions on the wire: schemas, inserts, outputs, and texts to search with."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from wire_messages import field_message, key_message, pairs, placeholder_group, scalar_data, schema_bytes

from elanus.core.errors import InvalidParameter
from elanus.core.schema import CollectionSchema, DataType
from elanus.proxy.role.outputs import resolve_outputs
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.schemas import decode_schema, encode_schema
from elanus.proxy.wire.stubs import common_pb2, schema_pb2
from elanus.text import query_texts

TEXT = {"max_length": 99, "enable_analyzer": "true"}


def function(**params: object) -> Message:
    return schema_pb2.FunctionSchema(
        name="near",
        type=schema_pb2.MinHash,
        input_field_names=["text"],
        output_field_names=["near"],
        params=pairs(params),
    )


def fields(**changes: Any) -> tuple[Message, ...]:
    given = {
        "text": field_message("text", DataType.VARCHAR, TEXT),
        "near": field_message("near", DataType.BINARY_VECTOR, {"dim": 64}),
    }
    return (key_message(), *{**given, **changes}.values())


def schema_of(*functions: Message, **changes: Any) -> CollectionSchema:
    return decode_schema(schema_bytes(*fields(**changes), functions=functions or [function()]), "books")


def test_a_schema_comes_back_with_its_function() -> None:
    (back,) = encode_schema(schema_of(function(num_hashes=2, shingle_size=3))).functions
    assert (back.type, back.output_field_names) == (schema_pb2.MinHash, ["near"])
    assert {pair.key: pair.value for pair in back.params} == {"num_hashes": "2", "shingle_size": "3"}


@pytest.mark.parametrize(
    ("params", "changes", "text"),
    [
        ({"num_hashes": 3}, {}, "does not match expected dim 96"),
        ({}, {"near": field_message("near", DataType.FLOAT_VECTOR, {"dim": 64})},
         "MinHash function output field must be a BinaryVector field, but got FloatVector"),
        ({}, {"text": field_message("text", DataType.INT64)},
         "MinHash function input field must be a VARCHAR/TEXT field, got 1 field with type Int64"),
    ],
)  # fmt: skip
def test_a_bad_function_is_refused(params: dict[str, object], changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        schema_of(function(**params), **changes)
    assert text in refusal.value.message


def test_an_input_needs_no_analyzer() -> None:
    assert schema_of(text=field_message("text", DataType.VARCHAR, {"max_length": 9})).functions


def test_an_insert_leaves_the_output_out_and_reads_return_it() -> None:
    schema = schema_of()
    sent = [scalar_data("id", DataType.INT64, [1]), scalar_data("text", DataType.VARCHAR, ["a b"])]
    rows = decode_rows(schema, sent, 1, with_auto_key=False)
    assert rows.column("near").to_pylist() == [bytes(8)]
    assert resolve_outputs(schema, ("*",), with_key=True).names == ("id", "text", "near")
    assert resolve_outputs(schema, ("near",), with_key=True).names == ("id", "near")


def test_texts_to_search_with_become_signatures() -> None:
    schema = schema_of()
    field = schema.field("near")
    texts = query_texts(schema, field)
    found = decode_queries(placeholder_group([b"a b", b"A, b"], common_pb2.VarChar), 2, field, texts)
    assert (found.dtype, found.shape) == ("uint8", (2, 8))
    assert found[0].tolist() == found[1].tolist()
    vectors = placeholder_group([bytes(8)], common_pb2.BinaryVector)
    with pytest.raises(InvalidParameter, match="provide varchar/text for MinHash Function based search"):
        decode_queries(vectors, 1, field, texts)
