"""Results: columns come out of the message as they went in, whatever their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from wire_messages import SCALAR_MEMBER, field, schema, steady

from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.query import QueryResult
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.codecs import packed_floats
from elanus.proxy.wire.results import add_ids, encode_column, encode_query, encode_search
from elanus.proxy.wire.stubs import milvus_pb2, schema_pb2

BOOKS = schema(
    field("vector", DataType.FLOAT_VECTOR, dim=2),
    field("title", DataType.VARCHAR, max_length=9),
    dynamic=True,
)


def encoded(data_type: DataType, column: pa.Array, **more: Any) -> Message:
    """The message as a client gets it: serialized and parsed."""
    message = schema_pb2.FieldData()
    encode_column(message, "x", field("x", data_type, 105, **more), column)
    return schema_pb2.FieldData.FromString(message.SerializeToString())


VALUES = {
    DataType.BOOL: st.booleans(),
    DataType.INT8: st.integers(-128, 127),
    DataType.INT16: st.integers(-(2**15), 2**15 - 1),
    DataType.INT32: st.integers(-(2**31), 2**31 - 1),
    DataType.INT64: st.integers(-(2**63), 2**63 - 1),
    DataType.FLOAT: st.floats(width=32, allow_nan=False),
    DataType.DOUBLE: st.floats(allow_nan=False),
    DataType.VARCHAR: st.text(max_size=6),
    DataType.JSON: st.sampled_from(["{}", '{"a":"ü"}', "1", "null"]),
}


def test_values_inside_json_that_hits_are_grouped_by_are_columns_of_their_own() -> None:
    for groups in (
        {"color": pa.array([True, None])},
        {"color": pa.array([True, None]), "title": pa.array(["a", "b"])},
    ):
        result = SearchResult(
            np.array([0, 2]),
            np.array([1, 2]),
            np.zeros(2, np.float32),
            {},
            (),
            (),
            BOOKS,
            Timestamp(1),
            groups=groups,
        )
        data = encode_search(result, "books").results
        column = data.group_by_field_value if len(groups) == 1 else data.group_by_field_values[0]
        assert (column.field_name, column.type) == ("color", schema_pb2.DataType.Bool)
        assert (list(column.scalars.bool_data.data), list(column.valid_data)) == (
            [True, False],
            [True, False],
        )


@pytest.mark.parametrize("name", ['about["color"]', 'about["color"][0]', "about['color']"])
def test_a_value_inside_json_is_among_several_groups_though_its_name_is_like_that_of_a_struct_field(
    name: str,
) -> None:
    groups = {"title": pa.array(["a", "b"]), name: pa.array([True, None])}
    no_scores = np.zeros(2, np.float32)
    result = SearchResult(
        np.array([0, 2]), np.array([1, 2]), no_scores, {}, (), (), BOOKS, Timestamp(1), groups=groups
    )
    values = encode_search(result, "books").results.group_by_field_values
    assert [(column.field_name, column.type) for column in values] == [
        ("title", schema_pb2.DataType.VarChar),
        (name, schema_pb2.DataType.Bool),
    ]


@steady
@given(st.data(), st.sampled_from(list(VALUES)), st.booleans())
def test_scalar_columns_come_back(data: st.DataObject, data_type: DataType, nullable: bool) -> None:
    element = st.none() | VALUES[data_type] if nullable else VALUES[data_type]
    values = data.draw(st.lists(element, max_size=20))
    column = pa.array(values, field("x", data_type).arrow_type)
    message = encoded(data_type, column, nullable=nullable)
    got = list(getattr(message.scalars, SCALAR_MEMBER[data_type]).data)
    if data_type is DataType.JSON:
        got = [text.decode() for text in got]
    valid = list(message.valid_data) or [True] * len(got)
    assert [value if there else None for value, there in zip(got, valid, strict=True)] == values
    assert (message.type, message.field_name, message.field_id) == (data_type, "x", 105)
    assert message.scalars.WhichOneof("data") == SCALAR_MEMBER[data_type]


@steady
@given(hnp.arrays(np.float32, st.tuples(st.integers(0, 20), st.just(3))), st.integers(0, 3))
def test_float_vectors_come_back_also_from_a_slice(vectors: np.ndarray, start: int) -> None:
    x = field("x", DataType.FLOAT_VECTOR, dim=3)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=x.arrow_type).slice(start)
    message = encoded(DataType.FLOAT_VECTOR, column, dim=3)
    expected = vectors[start:].ravel()
    assert np.array_equal(np.array(message.vectors.float_vector.data, np.float32), expected, equal_nan=True)
    assert (message.vectors.dim, message.vectors.WhichOneof("data")) == (3, "float_vector")


@steady
@given(st.lists(st.binary(min_size=2, max_size=2), max_size=9), st.integers(0, 3))
def test_binary_vectors_come_back_also_from_a_slice(values: list[bytes], start: int) -> None:
    column = pa.array(values, pa.binary(2)).slice(start)
    message = encoded(DataType.BINARY_VECTOR, column, dim=16)
    assert message.vectors.binary_vector == b"".join(values[start:])
    assert (message.vectors.dim, message.vectors.WhichOneof("data")) == (16, "binary_vector")


@pytest.mark.parametrize("count", [0, 1, 31, 32, 5000])
def test_packed_floats_are_what_protobuf_itself_writes(count: int) -> None:
    values = np.linspace(-1, 1, count, dtype=np.float32)
    if count:
        assert packed_floats(1, values) == schema_pb2.FloatArray(data=values.tolist()).SerializeToString()
    assert list(schema_pb2.FloatArray.FromString(packed_floats(1, values)).data) == values.tolist()


def test_nulls_have_a_stand_in_for_clients_that_do_not_know_them() -> None:
    assert list(encoded(DataType.JSON, pa.array(["{}", None]), nullable=True).scalars.json_data.data) == [
        b"{}",
        b"null",
    ]
    assert list(encoded(DataType.BOOL, pa.array([None, True]), nullable=True).scalars.bool_data.data) == [
        False,
        True,
    ]
    assert not encoded(DataType.BOOL, pa.array([True]), nullable=True).valid_data


def search_result(**more: Any) -> SearchResult:
    return SearchResult(
        **{
            "offsets": np.array([0, 2, 2, 3]),
            "ids": np.array([11, 12, 13]),
            "scores": np.array([0.5, 0.25, 1.5], np.float32),
            "fields": {"title": pa.array(["a", "b", "c"]), "$meta": pa.array(['{"j":2,"k":1}', "{}", "{}"])},
            "output_fields": ("title", "k"),
            "dynamic_fields": ("k",),
            "schema": BOOKS,
            "ts": Timestamp(99),
            **more,
        }
    )


def test_a_search_result_has_what_each_client_generation_reads() -> None:
    sent = encode_search(search_result(), "shelf").SerializeToString()
    message = milvus_pb2.SearchResults.FromString(sent)
    results = message.results
    assert (message.status.code, message.collection_name, message.session_ts) == (0, "shelf", 99)
    assert (results.num_queries, results.top_k, list(results.topks)) == (3, 2, [2, 0, 1])
    assert list(results.ids.int_id.data) == [11, 12, 13]
    assert list(results.scores) == [0.5, 0.25, 1.5]
    assert (results.primary_field_name, list(results.output_fields)) == ("id", ["title", "k"])
    title, meta = results.fields_data
    assert (title.field_name, title.field_id, title.is_dynamic) == ("title", 102, False)
    assert (meta.field_name, meta.is_dynamic) == ("$meta", True)
    assert list(meta.scalars.json_data.data) == [b'{"k":1}', b"{}", b"{}"]  # of the keys, those named


def test_a_query_answers_the_dynamic_keys_that_it_names() -> None:
    fields = {"id": pa.array([1]), "$meta": pa.array(['{"j":[2],"k":{"l": 1}}'])}

    def sent(keys: tuple[str, ...] | None) -> bytes:
        result = QueryResult(fields, ("id", *(keys or ("$meta",))), keys, BOOKS, Timestamp(9))
        return bytes(encode_query(result, "books").fields_data[1].scalars.json_data.data[0])

    assert sent(("k", "m")) == b'{"k":{"l": 1}}'
    assert sent(None) == b'{"j":[2],"k":{"l": 1}}'


def test_recalls_are_sent_only_where_they_were_asked_for() -> None:
    assert list(encode_search(search_result(), "books").results.recalls) == []
    answer = encode_search(search_result(recalls=(1.0, 0.5)), "books")
    assert list(answer.results.recalls) == [1.0, 0.5]


def test_string_keys_and_empty_results_say_their_kind() -> None:
    empty = search_result(
        offsets=np.array([0, 0]), ids=pa.array([], pa.string()), scores=np.array([], np.float32), fields={}
    )
    results = encode_search(empty, "books").results
    assert results.ids.WhichOneof("id_field") == "str_id"
    assert (results.num_queries, results.top_k, list(results.topks)) == (1, 0, [0])
    ids = schema_pb2.IDs()
    add_ids(ids, pa.array(["a", "b"]))
    assert list(ids.str_id.data) == ["a", "b"]


def test_a_query_result_keeps_columns_without_rows() -> None:
    none = {
        "id": pa.array([], pa.int64()),
        "title": pa.array([], pa.string()),
        "vector": pa.array([], BOOKS.field("vector").arrow_type),
        "$meta": pa.array([], pa.string()),
    }
    message = encode_query(QueryResult(none, tuple(none), None, BOOKS, Timestamp(7)), "books")
    kinds = [
        data.vectors.WhichOneof("data") if data.HasField("vectors") else data.scalars.WhichOneof("data")
        for data in message.fields_data
    ]
    assert kinds == ["long_data", "string_data", "float_vector", "json_data"]
    assert (message.primary_field_name, message.session_ts) == ("id", 7)
    assert list(message.output_fields) == ["id", "title", "vector", "$meta"]


def test_a_count_is_a_column_of_its_own() -> None:
    counted = QueryResult({"count(*)": pa.array([5], pa.int64())}, ("count(*)",), (), BOOKS, Timestamp(7))
    (data,) = encode_query(counted, "books").fields_data
    assert (data.field_name, data.type, list(data.scalars.long_data.data)) == (
        "count(*)",
        DataType.INT64,
        [5],
    )
