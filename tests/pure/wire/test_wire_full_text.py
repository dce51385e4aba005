"""Full-text search on the wire: functions in schemas, texts to search with, and the RPCs of analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fake_verbs import FakeVerbs
from google.protobuf.message import Message
from wire_messages import (
    Call,
    field_message,
    key_message,
    placeholder_group,
    scalar_data,
    schema_bytes,
    vector_message,
)

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.schema import CollectionSchema, DataType
from elanus.core.sparse import SparseRows, indices_of, values_of
from elanus.proxy.role.outputs import resolve_outputs
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.schemas import decode_schema, encode_schema
from elanus.proxy.wire.stubs import common_pb2, schema_pb2
from elanus.text import computed_terms, query_texts, with_computed_columns

TEXT = {"max_length": 99, "enable_analyzer": "true", "analyzer_params": '{"type": "english"}'}


def function(**changes: Any) -> Message:
    given: dict[str, Any] = {
        "name": "bm25",
        "type": schema_pb2.BM25,
        "input_field_names": ["text"],
        "output_field_names": ["terms"],
        **changes,
    }
    return schema_pb2.FunctionSchema(**given)


def text_message(**params: object) -> Message:
    return field_message("text", DataType.VARCHAR, {**TEXT, **params})


def terms_message(**more: Any) -> Message:
    return field_message("terms", DataType.SPARSE_FLOAT_VECTOR, **more)


FIELDS = (key_message(), text_message(), terms_message())
CONTENT = schema_bytes(*FIELDS, functions=[function(description="words")])


def schema_of(content: bytes = CONTENT) -> CollectionSchema:
    return decode_schema(content, "books")


def test_a_schema_comes_back_with_its_function() -> None:
    schema = schema_of()
    assert [f.name for f in schema.fields if f.is_function_output] == ["terms"]
    shown = encode_schema(schema)
    (back,) = shown.functions
    assert (back.name, back.type, back.description) == ("bm25", schema_pb2.BM25, "words")
    assert (back.input_field_names, back.output_field_names) == (["text"], ["terms"])
    assert len(back.input_field_ids) == len(back.output_field_ids) == 1
    assert [field.is_function_output for field in shown.fields] == [False, False, True]
    kept = {pair.key: pair.value for pair in shown.fields[1].type_params}
    assert kept == {key: str(value) for key, value in TEXT.items()}


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ([function(name="")], "function name cannot be empty"),
        ([function(), function()], "duplicate function name: bm25"),
        ([function(input_field_names=[])], "function input field names cannot be empty"),
        ([function(output_field_names=[])], "function output field names cannot be empty"),
        ([function(input_field_names=["text", "text"])], "input field should be used exactly once"),
        ([function(output_field_names=["text"])], "a single field cannot be both input and output"),
        ([function(output_field_names=["terms"] * 2)], "output field should be used exactly once"),
        ([function(params=[common_pb2.KeyValuePair(key="a")])], "BM25 function accepts no params"),
        ([function(input_field_names=["nothing"])], "function input field not found: nothing"),
        ([function(output_field_names=["nothing"])], "function output field not found: nothing"),
        ([function(input_field_names=["id"])], "must be a VARCHAR/TEXT field, got 1 field with type Int64"),
        ([function(output_field_names=["id"])], "function output field cannot be primary key"),
        ([function(), function(name="b")], "duplicate function output field: function b, field terms"),
    ],
)  # fmt: skip
def test_a_bad_function_is_refused_in_the_references_words(functions: list[Message], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        schema_of(schema_bytes(*FIELDS, functions=functions))
    assert text in refusal.value.message


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([key_message(), text_message(enable_analyzer="false"), terms_message()], "must set enable_analyzer"),
        ([key_message(), text_message(), vector_message("terms")],
         "must be a SparseFloatVector field, but got FloatVector"),
        ([key_message(), text_message(analyzer_params='{"type": "x"}'), terms_message()],
         "unknown build-in analyzer type: x"),
    ],
)  # fmt: skip
def test_bad_fields_of_a_function_are_refused(fields: list[Message], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        schema_of(schema_bytes(*fields, functions=[function()]))
    assert text in refusal.value.message


def test_other_functions_and_outputs_without_one_are_refused() -> None:
    fingerprint = function(type=schema_pb2.MolFingerprint)
    with pytest.raises(NotSupported, match="a function of type MolFingerprint is not supported"):
        schema_of(schema_bytes(*FIELDS, functions=[fingerprint]))
    with pytest.raises(InvalidParameter, match="output of a function, but no function has it"):
        schema_of(schema_bytes(key_message(), terms_message(is_function_output=True)))


def test_a_nullable_text_may_be_the_input() -> None:
    nullable = field_message("text", DataType.VARCHAR, TEXT, nullable=True)
    schema = schema_of(schema_bytes(key_message(), nullable, terms_message(), functions=[function()]))
    assert schema.field("text").nullable
    rows = pa.record_batch({"text": pa.array(["red car", None, ""])})
    assert computed_terms(schema, schema.functions[0], rows).lengths.tolist() == [2, 0, 0]


def test_a_text_without_a_maximum_length_may_be_the_input() -> None:
    fields = (
        key_message(),
        field_message("text", DataType.TEXT, {"enable_analyzer": "true"}),
        terms_message(),
    )
    schema = schema_of(schema_bytes(*fields, functions=[function()]))
    assert schema.functions[0].input == "text"
    assert schema.field("text").params == {"enable_analyzer": "true"}


def test_an_insert_leaves_the_output_out_and_jobs_compute_it() -> None:
    schema = schema_of()
    sent = [
        scalar_data("id", DataType.INT64, [1, 2]),
        scalar_data("text", DataType.VARCHAR, ["Foxes run", ""]),
    ]
    rows = decode_rows(schema, sent, 2, with_auto_key=False)
    assert rows.column("terms").to_pylist() == [b"", b""]
    computed = with_computed_columns(schema, rows)
    assert SparseRows.from_column(computed.column("terms")).lengths.tolist() == [2, 0]
    assert computed.drop_columns(["terms"]).equals(rows.drop_columns(["terms"]))
    data = schema_pb2.FieldData(field_name="terms", type=104)
    with pytest.raises(InvalidParameter, match="field terms is the output of a function"):
        decode_rows(schema, [*sent, data], 2, with_auto_key=False)


def test_the_output_is_not_returned() -> None:
    schema = schema_of()
    assert resolve_outputs(schema, ("*",), with_key=True).names == ("id", "text")
    with pytest.raises(InvalidParameter, match="not allowed to retrieve raw data of field terms"):
        resolve_outputs(schema, ("text", "terms"), with_key=True)


def test_texts_to_search_with_become_terms() -> None:
    schema = schema_of()
    field = schema.field("terms")
    terms = query_texts(schema, field)
    texts = placeholder_group([b"foxes fox", b"", b"the run"], common_pb2.VarChar)
    queries = decode_queries(texts, 3, field, terms)
    assert queries.shape == (3, 1)
    assert values_of(np.ascontiguousarray(queries[0])).tolist() == [2.0]
    assert indices_of(np.ascontiguousarray(queries[0])) != indices_of(np.ascontiguousarray(queries[2]))
    vectors = placeholder_group([b"\x01\0\0\0\0\0\x80\x3f"], common_pb2.SparseFloatVector)
    with pytest.raises(InvalidParameter, match="please provide varchar/text for BM25 Function based search"):
        decode_queries(vectors, 1, field, terms)
    with pytest.raises(InvalidParameter, match="not valid UTF-8"):
        decode_queries(placeholder_group([b"\xff"], common_pb2.VarChar), 1, field, terms)


def created(call: Call) -> None:
    fields = (*FIELDS, field_message("plain", DataType.VARCHAR, {"max_length": 9}))
    content = schema_bytes(*fields, functions=[function()])
    answer: Any = call("CreateCollection", collection_name="books", schema=content)
    assert answer.code == 0, answer.reason


def tokens(answer: Any) -> list[list[str]]:
    assert answer.status.code == 0, answer.status.reason
    return [[token.token for token in result.tokens] for result in answer.results]


def test_an_analyzer_is_run_by_its_parameters_or_by_a_field(call: Call, verbs: FakeVerbs) -> None:
    created(call)
    texts = [b"The foxes", "Ünïque runs".encode()]
    assert tokens(call("RunAnalyzer", placeholder=texts)) == [["the", "foxes"], ["ünïque", "runs"]]
    by_field = {"collection_name": "books", "field_name": "text"}
    assert tokens(call("RunAnalyzer", placeholder=texts, **by_field)) == [["fox"], ["ünïque", "run"]]
    detailed: Any = call("RunAnalyzer", placeholder=texts[1:], with_detail=True, with_hash=True, **by_field)
    last = detailed.results[0].tokens[1]
    assert (last.start_offset, last.end_offset, last.position, last.position_length) == (9, 13, 1, 1)
    assert last.hash > 0
    plain: Any = call("RunAnalyzer", placeholder=texts)
    assert plain.results[0].tokens[0].hash == plain.results[0].tokens[0].end_offset == 0


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"analyzer_params": '{"tokenizer": "x"}'}, "unsupported tokenizer: x"),
        ({"analyzer_names": ["a"]}, "analyzer_names need a collection_name"),
        ({"collection_name": "books", "field_name": "plain"}, "does not enable analyzer"),
        ({"collection_name": "books", "field_name": "text", "analyzer_names": ["a"] * 3},
         "3 analyzer_names for 1"),
        ({"collection_name": "books", "field_name": "nothing"}, "field not found"),
        ({"placeholder": [b"\xff"]}, "text 0 is not valid UTF-8"),
    ],
)  # fmt: skip
def test_a_bad_request_for_analysis(
    call: Call, verbs: FakeVerbs, request_: dict[str, Any], text: str
) -> None:
    created(call)
    answer: Any = call("RunAnalyzer", **{"placeholder": [b"a"], **request_})
    assert text in answer.status.reason


def test_the_slop_of_a_phrase(call: Call) -> None:
    texts = ["machine learning", "machine deep learning", "learning machine", "machine", ""]
    answer: Any = call("ComputePhraseMatchSlop", query_text="machine learning", data_texts=texts)
    assert list(answer.is_match) == [True, True, True, False, False]
    assert list(answer.slops) == [0, 1, 2, 0, 0]
    empty: Any = call("ComputePhraseMatchSlop", query_text="!", data_texts=texts)
    assert "has no tokens" in empty.status.reason
