"""Search requests: what is read from them, what is refused, and when a template is used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from wire_messages import field, pairs, placeholder_group, resolved, schema, search_request

from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import (
    ElanusError,
    InvalidDimension,
    InvalidParameter,
    InvalidTopK,
    NotSupported,
)
from elanus.core.functions import Function
from elanus.core.schema import CollectionSchema, DataType
from elanus.proxy.api.search import IteratorPage, Search
from elanus.proxy.wire.read_consistency import read_consistency
from elanus.proxy.wire.search_request import TemplateCache, TemplateKey, decode_search
from elanus.proxy.wire.stubs import common_pb2, schema_pb2

V2 = {"iterator": "True", "search_iter_v2": "True"}
BOOKS = schema(field("vector", DataType.FLOAT_VECTOR, dim=4), field("x", DataType.INT64))


def decode(
    request: Message, given_schema: CollectionSchema = BOOKS, cache: TemplateCache | None = None
) -> Search:
    return decode_search(request, resolved(given_schema), cache or TemplateCache())


def refusal(request: Message, kind: type[ElanusError], given_schema: CollectionSchema = BOOKS) -> str:
    with pytest.raises(kind) as refused:
        decode(request, given_schema)
    return refused.value.message


def test_a_search_carries_what_the_client_asked() -> None:
    search = decode(
        search_request(
            [[1, 2, 3, 4], [5, 6, 7, 8]],
            {"offset": 5, "round_decimal": 2, "ignore_growing": "True"},
            dsl="x > {low}",
            partition_names=["p"],
            output_fields=["x", "color"],
            expr_template_values={"low": schema_pb2.TemplateValue(int64_val=3)},
        )
    )
    asked = search.template
    assert (search.collection.view.name, asked.vector_field) == ("books", "vector")
    assert (asked.limit, asked.offset, asked.round_decimal) == (3, 5, 2)
    assert (asked.filter, asked.filter_values) == ("x > {low}", {"low": 3})
    assert (asked.partitions, asked.output_fields) == (("p",), ("x", "color"))
    assert (asked.metric_type, asked.params, asked.ignore_growing) == ("L2", {"ef": 64}, True)
    assert search.queries.dtype == np.float32
    assert search.queries.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_what_is_left_out_has_its_default() -> None:
    left_out = dict.fromkeys(("params", "round_decimal", "ignore_growing", "metric_type", "anns_field"))
    asked = decode(search_request(params=left_out)).template
    assert (asked.params, asked.round_decimal, asked.ignore_growing) == ({}, -1, False)
    assert (asked.metric_type, asked.vector_field, asked.offset) == ("", "vector", 0)


def test_binary_vectors_are_read_as_bytes() -> None:
    bits = schema(field("bits", DataType.BINARY_VECTOR, dim=16))
    group = placeholder_group([b"ab", b"cd"], common_pb2.BinaryVector)
    search = decode(search_request(params={"anns_field": "bits"}, placeholder_group=group, nq=2), bits)
    assert search.queries.dtype == np.uint8
    assert search.queries.tolist() == [[97, 98], [99, 100]]


def test_parameters_that_newer_clients_repeat_among_the_indexes_are_taken_once() -> None:
    inner = '{"ef":64,"metric_type":"L2","offset":2,"radius":1.5}'
    search = decode(search_request(params={"params": inner, "offset": 2}))
    assert search.template.params == {"ef": 64, "radius": 1.5}
    assert search.template.offset == 2
    only_inner = decode(search_request(params={"params": '{"metric_type":"IP"}', "metric_type": None}))
    assert only_inner.template.metric_type == "IP"


@pytest.mark.parametrize(
    "params",
    [
        {"enable_recall_calculation": "True"},
        {"params": '{"enable_recall_calculation":true}'},
        {"enable_recall_calculation": "true", "params": '{"enable_recall_calculation":true}'},
    ],
)
def test_a_search_may_ask_for_its_recall(params: dict[str, object]) -> None:
    assert decode(search_request(params=params)).template.measures_recall
    assert not decode(search_request()).template.measures_recall


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"topk": 0}, "topk [0] is invalid, it should be in range [1, 16384], but got 0"),
        ({"topk": 16385}, "topk [16385] is invalid"),
        ({"topk": None}, "topk not found in search_params"),
        ({"offset": -1}, "offset [-1] is invalid"),
        ({"offset": 16384}, "offset+topk [16387] is invalid, it should be in range [1, 16384]"),
    ],
)
def test_a_bad_window_is_refused(params: dict[str, object], text: str) -> None:
    assert text in refusal(search_request(params=params), InvalidTopK)


def test_a_collection_may_ask_for_windows_of_a_million_rows() -> None:
    large, cache = resolved(BOOKS, query_mode="large_topk"), TemplateCache()
    asked = decode_search(search_request(params={"topk": 999_999, "offset": 1}), large, cache).template
    assert (asked.limit, asked.offset) == (999_999, 1)
    with pytest.raises(InvalidTopK, match=r"offset\+topk \[1000001\] is invalid, .* in range \[1, 1000000\]"):
        decode_search(search_request(params={"topk": 1_000_000, "offset": 1}), large, cache)
    with pytest.raises(InvalidTopK, match=r"topk \[999999\] is invalid, it should be in range \[1, 16384\]"):
        decode_search(search_request(params={"topk": 999_999}), resolved(BOOKS, query_mode="x"), cache)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"topk": "x"}, "topk [x] is invalid"),
        ({"offset": "x"}, "offset [x] is invalid"),
        ({"round_decimal": 7}, "round_decimal [7] is invalid, should be -1 or an integer in range [0, 6]"),
        ({"round_decimal": "x"}, "round_decimal [x] is invalid"),
        ({"round_decimal": -2}, "round_decimal [-2] is invalid"),
        ({"ignore_growing": "x"}, "ignore_growing [x] is invalid"),
        ({"params": "{"}, "params [{] is not a JSON object"),
        ({"params": "[1]"}, "params [[1]] is not a JSON object"),
        ({"params": '{"ef":[1]}'}, "search parameter ef must be a number, string or bool"),
        ({"params": '{"radius":"1"}'}, "type must be number, but is string: search parameter radius is 1"),
        ({"params": '{"radius":[0.1]}'}, "type must be number, but is array"),
        ({"params": '{"range_filter":true}'}, "type must be number, but is boolean"),
        ({"params": '{"range_filter":null}'}, "type must be number, but is null"),
        ({"params": '{"metric_type":"IP"}'}, "ambiguous parameter: metric_type is L2 in the request and IP"),
        ({"params": '{"offset":3}', "offset": 2}, "ambiguous parameter: offset is 2 in the request and 3"),
        ({"params": '{"topk":4}'}, "ambiguous parameter: topk is 3 in the request and 4 in params"),
        ({"params": '{"ef":10}', "ef": 20}, "ambiguous parameter: ef is 20 in the request and 10 in params"),
        ({"params": '{"anns_field":"x"}'}, "ambiguous parameter: anns_field is vector in the request and x"),
        ({"params": '{"round_decimal":2}', "round_decimal": 3}, "round_decimal is 3 in the request and 2"),
        ({"params": '{"expr":"id > 5"}'}, "ambiguous parameter: expr is empty in the request and id > 5"),
        ({"params": '{"offset":[1]}'}, "search parameter offset must be a number, string or bool"),
        ({"radius": "wide"}, "type must be number, but is string: search parameter radius is wide"),
        ({"anns_field": "x"}, "field (x) to search is not of vector data type"),
    ],
)
def test_a_bad_parameter_is_refused(params: dict[str, object], text: str) -> None:
    assert text in refusal(search_request(params=params), InvalidParameter)


def test_a_pair_given_twice_is_refused_unless_it_repeats_itself() -> None:
    request = search_request()
    request.search_params.extend(pairs({"topk": 4}))
    assert "parameter topk is given twice: 3 and 4" in refusal(request, InvalidParameter)
    again = search_request()
    again.search_params.extend(pairs({"topk": 3}))
    assert decode(again).template.limit == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"params": "{}", "nprobe": 8}, {"nprobe": 8}),
        ({"params": None, "ef": 20, "radius": "0.5"}, {"ef": 20, "radius": 0.5}),
        ({"params": '{"ef":8,"radius":1}', "ef": "8", "radius": "1.0"}, {"ef": 8, "radius": 1}),
        ({"params": '{"ef":"8"}', "ef": 8}, {"ef": "8"}),
        ({"params": '{"page_retain_order":true}', "page_retain_order": "True"}, {"page_retain_order": True}),
        ({"params": "{}", "page_retain_order": "True"}, {"page_retain_order": "True"}),
        ({"params": '{"hints":"iterative_filter"}', "hints": "iterative_filter"}, {}),
        ({"params": '{"limit":9,"data":[[1]],"param":{"a":1},"foo":null}', "bar": "x"}, {}),
        ({"params": '{"group_size":2}', "strict_group_size": "false", "group_by_field": ""}, {}),
    ],
)
def test_the_indexes_parameters_are_read_from_both_places(
    given: dict[str, object], expected: dict[str, object]
) -> None:
    assert decode(search_request(params=given)).template.params == expected


def test_the_requests_parameters_are_read_from_both_places_and_a_default_gives_way() -> None:
    inner = (
        '{"anns_field":"vector","metric_type":"IP","topk":3,'
        '"round_decimal":3,"offset":2,"ignore_growing":true}'
    )
    defaults = {"anns_field": None, "metric_type": "", "offset": 0, "round_decimal": -1}
    asked = decode(search_request(params={**defaults, "params": inner})).template
    assert (asked.vector_field, asked.metric_type, asked.offset) == ("vector", "IP", 2)
    assert (asked.round_decimal, asked.ignore_growing, asked.limit) == (3, True, 3)
    reverse = {"params": '{"round_decimal":-1,"offset":0}', "round_decimal": 3, "offset": 2}
    asked = decode(search_request(params=reverse)).template
    assert (asked.round_decimal, asked.offset) == (3, 2)


def test_a_filter_among_the_parameters_may_repeat_the_filter() -> None:
    asked = decode(search_request(params={"params": '{"expr":"id > 5"}'}, dsl="id > 5")).template
    assert (asked.filter, asked.params) == ("id > 5", {})


def test_an_unknown_parameter_is_logged_once(logged: list[Any]) -> None:
    for _ in range(2):
        decode(search_request(params={"params": '{"never_seen_before":1}', "nor_this": "1"}))
    ignored = [line["parameter"] for line in logged if line["event"] == "unknown parameter ignored"]
    assert ignored == ["never_seen_before", "nor_this"]


@pytest.mark.parametrize("text", ["\uff11", "1_0", " 1", "1.0", "1e3", "", "9" * 5000])
def test_a_number_is_written_in_digits(text: str) -> None:
    message = refusal(search_request(params={"topk": text}), InvalidParameter)
    assert message == f"topk [{text}] is invalid"


def test_a_page_of_an_iterator_is_pinned_to_the_moment_and_collection_it_began_with() -> None:
    cache = TemplateCache()
    asked = {
        "iterator": "True",
        "search_iter_v2": "True",
        "search_iter_batch_size": "7",
        "collection_id": "5",
    }
    page = decode(search_request(params=asked, guarantee_timestamp=10**15), cache=cache)
    assert (page.consistency.moment, page.template.collection_id) == (10**15, 5)
    later = decode(search_request(params=asked, guarantee_timestamp=2 * 10**15), cache=cache)
    assert later.consistency.moment == 2 * 10**15
    plain = decode(search_request(guarantee_timestamp=10**15), cache=cache)
    assert (plain.consistency.moment, plain.template.collection_id) == (None, None)


def test_a_page_behind_a_bound_is_read_from_the_parameters() -> None:
    first = decode(search_request(params=V2 | {"search_iter_batch_size": "7"}))
    assert first.template.page == IteratorPage(7)
    cache = TemplateCache()
    asked = V2 | {"search_iter_id": "abc", "search_iter_last_bound": "0.30000001192092896"}
    later = decode(search_request(params=asked | {"guarantee_timestamp": str(10**15)}), cache=cache)
    assert later.template.page == IteratorPage(3, "abc", float(np.float32(0.3)))
    assert later.consistency.moment == 10**15
    assert decode(search_request()).template.page is None
    assert not cache._templates


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"search_iter_batch_size": "0"}, "search_iter_batch_size [0] is invalid"),
        ({"search_iter_batch_size": "16385"}, "search_iter_batch_size [16385] is invalid"),
        ({"search_iter_last_bound": "near"}, "search_iter_last_bound [near] is invalid"),
        ({"search_iter_last_bound": "nan"}, "search_iter_last_bound [nan] is invalid"),
        ({"search_iter_last_bound": "1e39"}, "search_iter_last_bound [1e39] is invalid"),
        ({"search_iter_id": "x" * 300}, "search_iter_id is invalid: it has 300 characters"),
        ({"guarantee_timestamp": "-1"}, "guarantee_timestamp [-1] is invalid"),
        ({"offset": "2"}, "Setting an offset is not permitted when using a search iterator v2: offset is 2"),
    ],
)
def test_a_page_that_cannot_be_is_refused(params: dict[str, str], said: str) -> None:
    assert said in refusal(search_request(params=V2 | params), InvalidParameter)


def test_an_iterator_takes_one_vector() -> None:
    several = search_request([[1, 2, 3, 4], [5, 6, 7, 8]], V2)
    assert refusal(several, InvalidParameter) == "nq [2] is invalid: a search iterator takes one vector"


def test_a_moment_of_the_past_comes_as_a_field_or_as_a_search_parameter() -> None:
    cache = TemplateCache()
    for moment in (10**15, 2 * 10**15):
        assert decode(search_request(travel_timestamp=moment), cache=cache).consistency.moment == moment
        among_params = search_request(params={"params": f'{{"ef":9,"travel_timestamp":{moment}}}'})
        search = decode(among_params, cache=cache)
        assert (search.consistency.moment, search.template.params) == (moment, {"ef": 9})
    assert decode(search_request(), cache=cache).consistency.moment is None


@pytest.mark.parametrize("text", ["-1", "1.5", "true", '"5"'])
def test_a_moment_that_is_no_timestamp_is_refused(text: str) -> None:
    message = refusal(search_request(params={"params": f'{{"travel_timestamp":{text}}}'}), InvalidParameter)
    assert "should be a hybrid timestamp" in message


def test_the_vector_field_must_exist_and_be_named_among_several() -> None:
    missing = search_request(params={"anns_field": "nowhere"})
    assert "fieldName(nowhere) not found" in refusal(missing, InvalidParameter)
    two = schema(field("a", DataType.FLOAT_VECTOR, dim=4), field("b", DataType.FLOAT_VECTOR, dim=4))
    unnamed = search_request(params={"anns_field": None})
    assert "multiple anns_fields exist, please specify a anns_field in search_params: a, b" in refusal(
        unnamed, InvalidParameter, two
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"search_by_primary_keys": True}, "the field search_by_primary_keys of a search"),
        ({"namespace": "n"}, "the field namespace of a search"),
        ({"search_params": pairs({"topk": 1, "params": '{"hints":"x"}'})}, "hints: x not supported"),
        ({"search_params": pairs({"topk": 1, "params": '{"hints":["x"]}'})}, "hints: ['x'] not supported"),
    ],
)
def test_what_is_not_built_is_refused(fields: dict[str, Any], text: str) -> None:
    request = search_request()
    for name, value in fields.items():
        if name == "search_params":
            request.ClearField(name)
            request.search_params.extend(value)
        else:
            setattr(request, name, value)
    assert text in refusal(request, NotSupported)


def test_the_old_query_language_is_refused() -> None:
    request = search_request(dsl='{"bool":{}}')
    request.dsl_type = common_pb2.Dsl
    assert "JSON query language" in refusal(request, NotSupported)


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"queries": [[1.0] * 5]}, InvalidDimension, "expected vector size(byte) 16, actual 20."),
        (
            {"placeholder_group": placeholder_group([b"x" * 16, b"abc"]), "nq": 2},
            InvalidDimension,
            "actual 3.",
        ),
        ({"queries": [[1, np.nan, 0, 0]]}, InvalidParameter, "value 'NaN' is not a number or infinity"),
        ({"nq": 5}, InvalidParameter, "nq is 5, but the request holds 1 vectors"),
        (
            {"placeholder_group": placeholder_group([]), "nq": 0},
            InvalidParameter,
            "in range [1, 16384], but got 0",
        ),
        ({"placeholder_group": placeholder_group([b""] * 16385), "nq": 0}, InvalidParameter, "but got 16385"),
        ({"placeholder_group": b""}, InvalidParameter, "a search needs one placeholder"),
        ({"placeholder_group": b"\xff"}, InvalidParameter, "placeholder_group is not a valid message"),
        (
            {"placeholder_group": placeholder_group([b"x" * 16], common_pb2.BinaryVector)},
            InvalidParameter,
            "vector type must be the same, field vector - type VECTOR_FLOAT, search info type VECTOR_BINARY",
        ),
        (
            {"placeholder_group": placeholder_group([b"a text"], common_pb2.VarChar)},
            InvalidParameter,
            "vector type must be the same, field vector - type VECTOR_FLOAT, search info type VARCHAR",
        ),
        (
            {"placeholder_group": placeholder_group([b"x"], common_pb2.SparseFloatVector)},
            InvalidParameter,
            "field vector - type VECTOR_FLOAT, search info type VECTOR_SPARSE_U32_F32",
        ),
    ],
)
def test_bad_query_vectors_are_refused(fields: dict[str, Any], kind: type[ElanusError], text: str) -> None:
    assert text in refusal(search_request(**fields), kind)


def test_a_client_that_does_not_count_its_vectors_is_understood() -> None:
    assert len(decode(search_request([[0] * 4] * 3, nq=0)).queries) == 3


# templates


class CountingCache(TemplateCache):
    def __init__(self, max_templates: int = 1024) -> None:
        super().__init__(max_templates)
        self.made = 0

    def put(self, key: TemplateKey, parsed: Any) -> None:
        self.made += 1
        super().put(key, parsed)


def test_repeated_searches_share_a_template_but_not_their_vectors() -> None:
    cache, templates = CountingCache(), []
    for i in range(5):
        search = decode(search_request([[i] * 4] * (i + 1), guarantee_timestamp=100 + i), cache=cache)
        assert search.queries.tolist() == [[i] * 4] * (i + 1)
        assert search.consistency.guarantee_ts == 100 + i
        templates.append(search.template)
    assert cache.made == 1
    assert all(template is templates[0] for template in templates)


@pytest.mark.parametrize(
    "changed",
    [
        {"dsl": "x > 1"},
        {"output_fields": ["x"]},
        {"partition_names": ["p"]},
        {"params": {"topk": 4}},
        {"params": {"params": '{"ef":65}'}},
        {"expr_template_values": {"a": schema_pb2.TemplateValue(int64_val=1)}},
    ],
)
def test_any_other_change_makes_a_template_of_its_own(changed: dict[str, Any]) -> None:
    cache = CountingCache()
    first, second = decode(search_request(), cache=cache), decode(search_request(**changed), cache=cache)
    assert first.template != second.template
    assert cache.made == 2


def test_a_changed_schema_makes_the_template_again() -> None:
    cache = CountingCache()
    decode(search_request(), cache=cache)
    again = schema(field("vector", DataType.FLOAT_VECTOR, dim=8))
    with pytest.raises(InvalidDimension):
        decode(search_request(), again, cache)
    assert len(decode(search_request([[0] * 8]), again, cache).queries[0]) == 8


def test_a_full_cache_is_emptied() -> None:
    cache = CountingCache(max_templates=2)
    for text in ("x > 1", "x > 2", "x > 3", "x > 1"):
        decode(search_request(dsl=text), cache=cache)
    assert cache.made == 4


def test_the_time_zone_of_the_collection_is_part_of_a_template() -> None:
    cache, request = CountingCache(), {"dsl": "t > ISO '2025-01-01T00:00:00'"}
    for zone, written in (("UTC", "2025-01-01T00:00:00"), ("Asia/Tokyo", "2024-12-31T15:00:00Z")):
        found = decode_search(search_request(**request), resolved(BOOKS, timezone=zone), cache).template
        assert (found.times.zone, found.filter) == (zone, f"t > ISO '{written}'")
    assert cache.made == 2


def test_searches_of_two_databases_do_not_share_a_template() -> None:
    cache = CountingCache()
    for name in ("one", "two"):
        found = decode_search(search_request(), resolved(BOOKS, name), cache)
        assert found.collection.view.database == name
    assert cache.made == 2


# consistency


@pytest.mark.parametrize(
    ("use_default", "level", "guarantee_ts", "expected"),
    [
        (True, 0, 77, ReadConsistency(None, 77)),
        (False, ConsistencyLevel.STRONG, 0, ReadConsistency(ConsistencyLevel.STRONG, 0)),
        (False, ConsistencyLevel.SESSION, 77, ReadConsistency(ConsistencyLevel.SESSION, 77)),
        (False, ConsistencyLevel.BOUNDED, 2, ReadConsistency(ConsistencyLevel.BOUNDED, 2)),
        (False, ConsistencyLevel.EVENTUALLY, 1, ReadConsistency(ConsistencyLevel.EVENTUALLY, 1)),
        (False, 0, 1, ReadConsistency(ConsistencyLevel.EVENTUALLY, 1)),
        (False, 0, 2, ReadConsistency(ConsistencyLevel.BOUNDED, 2)),
        (False, 0, 77, ReadConsistency(ConsistencyLevel.CUSTOMIZED, 77)),
    ],
)
def test_the_level_is_what_the_clients_generation_means(
    use_default: bool, level: int, guarantee_ts: int, expected: ReadConsistency
) -> None:
    assert read_consistency(use_default, level, guarantee_ts) == expected


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="consistency level 9 does not exist"):
        read_consistency(False, 9, 0)


EMBEDDED = replace(
    schema(
        field("text", DataType.VARCHAR, max_length=9),
        replace(field("vector", DataType.FLOAT_VECTOR, dim=4), is_function_output=True),
    ),
    functions=(Function("f", "TextEmbedding", ("text",), ("vector",), params={"provider": "tei"}),),
)


def texts_request(*texts: bytes, nq: int = 0) -> Any:
    request = search_request([[1, 2, 3, 4]])
    placeholder = common_pb2.PlaceholderValue(tag="$0", type=common_pb2.VarChar, values=texts)
    group = common_pb2.PlaceholderGroup(placeholders=[placeholder])
    request.placeholder_group, request.nq = group.SerializeToString(), nq
    return request


def test_a_field_whose_vectors_a_provider_computes_is_searched_with_texts_or_vectors() -> None:
    cache = TemplateCache()
    given = decode(texts_request(b"a", "\u00e9".encode(), nq=2), EMBEDDED, cache)
    assert given.texts == ("a", "\u00e9")
    assert given.queries.shape == (0, 0)
    given = decode(search_request([[1, 2, 3, 4]]), EMBEDDED, cache)
    assert (given.texts, given.queries.tolist()) == ((), [[1, 2, 3, 4]])
    assert "nq is 3, but the request holds 1 texts" in refusal(
        texts_request(b"a", nq=3), InvalidParameter, EMBEDDED
    )
    assert "not valid UTF-8" in refusal(texts_request(b"\xff"), InvalidParameter, EMBEDDED)
    assert "vector type must be the same" in refusal(texts_request(b"a"), InvalidParameter)
