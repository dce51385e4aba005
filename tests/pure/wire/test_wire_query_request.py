"""Query requests and the values of filter templates."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from wire_messages import pairs, resolved, schema

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.proxy.wire.parameters import filter_values
from elanus.proxy.wire.query_request import decode_query
from elanus.proxy.wire.search_parameters import ORDER
from elanus.proxy.wire.stubs import milvus_pb2, schema_pb2

BOOKS = resolved(schema())


def query_request(params: dict[str, object] | None = None, **more: Any) -> Message:
    return milvus_pb2.QueryRequest(collection_name="books", query_params=pairs(params or {}), **more)


def test_a_query_carries_what_the_client_asked() -> None:
    request = query_request(
        {"limit": 10, "offset": 5, "ignore_growing": "True", "reduce_stop_for_best": "False"},
        expr="id > 1",
        output_fields=["x"],
        partition_names=["p"],
        consistency_level=int(ConsistencyLevel.BOUNDED),
        guarantee_timestamp=2,
    )
    query = decode_query(request, BOOKS)
    assert (query.collection, query.filter) == (BOOKS, "id > 1")
    assert (query.limit, query.offset, query.ignore_growing) == (10, 5, True)
    assert (query.output_fields, query.partitions, query.ids) == (("x",), ("p",), None)
    assert query.consistency.level is ConsistencyLevel.BOUNDED


def test_a_page_of_an_iterator_is_pinned_to_the_moment_and_collection_it_began_with() -> None:
    params = {"iterator": "True", "reduce_stop_for_best": "True", "collection_id": "5", "limit": 9}
    page = decode_query(query_request(params, guarantee_timestamp=10**15), BOOKS)
    assert (page.consistency.moment, page.collection_id, page.limit) == (10**15, 5, 9)
    first = decode_query(query_request(params), BOOKS)
    assert first.consistency.moment is None
    plain = decode_query(query_request({"limit": 9}, guarantee_timestamp=10**15), BOOKS)
    assert (plain.consistency.moment, plain.collection_id) == (None, None)


@pytest.mark.parametrize(
    ("params", "text"),
    [({"order_by_fields": "id:desc"}, "order_by is not"), ({"group_by_fields": "id"}, "group by is not")],
)
def test_a_page_of_an_iterator_has_no_order_of_its_own(params: dict[str, object], text: str) -> None:
    assert decode_query(query_request({**params, "limit": 9}), BOOKS).limit == 9
    with pytest.raises(InvalidParameter, match=f"{text} supported when using query iterator"):
        decode_query(query_request({**params, "limit": 9, "iterator": "True"}), BOOKS)


def test_a_query_of_a_session_names_a_cluster_and_there_is_one() -> None:
    assert decode_query(query_request({"limit": 9, "cluster_id": "east"}), BOOKS).limit == 9


def test_a_query_may_ask_for_a_moment_of_the_past() -> None:
    query = decode_query(query_request(expr="id > 1", travel_timestamp=10**15, guarantee_timestamp=1), BOOKS)
    assert query.consistency.moment == 10**15


def test_without_a_limit_all_rows_are_meant() -> None:
    query = decode_query(query_request({"offset": 7}, expr="id > 1"), BOOKS)
    assert (query.limit, query.offset) == (None, 0)


def test_an_order_needs_a_limit() -> None:
    with pytest.raises(InvalidParameter, match="ORDER BY requires explicit limit"):
        decode_query(query_request({ORDER: "id:desc"}, expr="id > 1"), BOOKS)
    assert decode_query(query_request({ORDER: "id:desc", "limit": 3}, expr="id > 1"), BOOKS).limit == 3


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"limit": 0}, "limit [0] is invalid, should be greater than 0"),
        ({"limit": "x"}, "limit [x] is invalid"),
        ({"ignore_growing": "1.2"}, "parse search growing failed: ignore_growing [1.2] is invalid"),
        ({"collection_id": "x"}, "collection_id [x] is invalid"),
        ({"limit": 1, "offset": -1}, "offset [-1] is invalid, should be gte than 0"),
        ({"limit": 16384, "offset": 1}, "(offset+limit) should be in range [1, 16384], but got 16385"),
    ],
)
def test_a_bad_window_is_refused(params: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        decode_query(query_request(params, expr="id > 1"), BOOKS)
    assert text in refusal.value.message


@pytest.mark.parametrize(
    ("request_message", "text"),
    [
        (query_request({"region": "EU"}), "the parameter region"),
        (query_request(namespace="n"), "the field namespace of a query"),
    ],
)
def test_what_is_not_built_is_refused(request_message: Message, text: str) -> None:
    with pytest.raises(NotSupported) as refusal:
        decode_query(request_message, BOOKS)
    assert text in refusal.value.message


Array = schema_pb2.TemplateArrayValue


def nested(*arrays: Message) -> Message:
    return Array(array_data=schema_pb2.TemplateArrayValueArray(data=arrays))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"bool_val": True}, True),
        ({"int64_val": -3}, -3),
        ({"float_val": 0.5}, 0.5),
        ({"string_val": "a"}, "a"),
        ({"bytes_val": b"\x00a"}, b"\x00a"),
        ({"array_val": Array()}, []),
        ({"array_val": Array(long_data=schema_pb2.LongArray(data=[1, 2]))}, [1, 2]),
        ({"array_val": Array(string_data=schema_pb2.StringArray(data=["a"]))}, ["a"]),
        ({"array_val": Array(json_data=schema_pb2.JSONArray(data=[b'{"a":1}', b"2"]))}, [{"a": 1}, 2]),
        ({"array_val": nested(Array(bool_data=schema_pb2.BoolArray(data=[True])), Array())}, [[True], []]),
    ],
)
def test_filter_values_become_python_values(value: dict[str, Any], expected: object) -> None:
    assert filter_values({"name": schema_pb2.TemplateValue(**value)}) == {"name": expected}


def test_filter_values_of_other_kinds_are_refused() -> None:
    with pytest.raises(NotSupported, match="the filter value name of kind None"):
        filter_values({"name": schema_pb2.TemplateValue()})
    broken = schema_pb2.TemplateValue(array_val=Array(json_data=schema_pb2.JSONArray(data=[b"{"])))
    with pytest.raises(InvalidParameter, match="the filter value name is no valid JSON"):
        filter_values({"name": broken})


def test_local_times_of_a_filter_are_those_of_the_request_or_of_the_collection() -> None:
    in_tokyo = resolved(schema(), timezone="Asia/Tokyo")
    filter_ = "t > ISO '2025-01-01T09:00:00'"
    query = decode_query(query_request(expr=filter_), in_tokyo)
    assert query.filter == "t > ISO '2025-01-01T00:00:00Z'"
    query = decode_query(query_request({"timezone": "Asia/Shanghai"}, expr=filter_), in_tokyo)
    assert query.filter == "t > ISO '2025-01-01T01:00:00Z'"
    assert decode_query(query_request(expr=filter_), BOOKS).filter == filter_


def test_a_page_of_elements_says_where_the_one_before_ended() -> None:
    cursor = {"query_iter_last_pk": "a b", "query_iter_last_element_offset": 3}
    after = decode_query(query_request({"limit": 1, **cursor}), BOOKS).after
    assert after is not None
    assert (after.key, after.element) == ("a b", 3)
    assert decode_query(query_request({"limit": 1}), BOOKS).after is None
    for wrong in (
        {"query_iter_last_pk": "1"},
        {"query_iter_last_element_offset": 1},
        {**cursor, "query_iter_last_element_offset": -1},
    ):
        with pytest.raises(InvalidParameter, match="query_iter_last"):
            decode_query(query_request({"limit": 1, **wrong}), BOOKS)


def test_a_collection_may_ask_for_windows_of_a_million_rows() -> None:
    large = resolved(schema(), query_mode="large_topk")
    request = milvus_pb2.QueryRequest(expr="", query_params=pairs({"limit": "1000000"}))
    assert decode_query(request, large).limit == 1_000_000
    with pytest.raises(InvalidParameter, match=r"\(offset\+limit\) should be in range \[1, 16384\]"):
        decode_query(request, BOOKS)
