"""Hybrid searches, rankers, groups, orders and keys: what is read from requests, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.message import Message
from pymilvus import WeightedRanker
from pymilvus.client.prepare import Prepare
from wire_messages import field, pairs, resolved, schema, search_request

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import ElanusError, FieldNotFound, InvalidParameter, NotSupported
from elanus.core.grouping import Grouping
from elanus.core.json_keys import JsonKey
from elanus.core.ordering import OrderBy
from elanus.core.rankers import Decay, Ranker, Rrf, Weighted
from elanus.core.schema import DataType
from elanus.proxy.api.query import Query
from elanus.proxy.api.search import BoostRequest, BoostRequests, HybridSearch, Search
from elanus.proxy.wire.hybrid_request import decode_hybrid_search
from elanus.proxy.wire.query_request import decode_query
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import milvus_pb2, schema_pb2

BOOKS = schema(
    field("vector", DataType.FLOAT_VECTOR, dim=4),
    field("x", DataType.INT64),
    field("tag", DataType.VARCHAR, max_length=9),
)
RERANK = int(schema_pb2.Rerank)


def decode(request: Message) -> HybridSearch:
    return decode_hybrid_search(request, resolved(BOOKS), TemplateCache(), 3.0, "me")


def decode_one(request: Message) -> Search:
    return decode_search(request, resolved(BOOKS), TemplateCache())


def hybrid_request(rank_params: dict[str, object] | None = None, **more: Any) -> Message:
    more.setdefault("requests", [search_request(), search_request([[1, 2, 3, 4]], {"topk": 7})])
    params = {"limit": 3, "offset": 0, "round_decimal": -1, **(rank_params or {})}
    return milvus_pb2.HybridSearchRequest(
        collection_name="books",
        rank_params=pairs({key: value for key, value in params.items() if value is not None}),
        **more,
    )


def function(params: dict[str, object], *inputs: str, kind: int = RERANK) -> Message:
    return schema_pb2.FunctionSchema(name="f", type=kind, input_field_names=inputs, params=pairs(params))


def score(*functions: Message, **params: object) -> Message:
    return schema_pb2.FunctionScore(functions=functions, params=pairs(params))


def refusal(request: Message, kind: type[ElanusError] = InvalidParameter) -> str:
    read = decode if isinstance(request, milvus_pb2.HybridSearchRequest) else decode_one
    with pytest.raises(kind) as refused:
        read(request)
    return refused.value.message


def test_a_hybrid_search_carries_what_the_client_asked() -> None:
    got = decode(
        hybrid_request(
            {
                "limit": 5,
                "offset": 2,
                "round_decimal": 3,
                "rank_group_scorer": "sum",
                "group_by_field": "tag",
            },
            partition_names=["p"],
            output_fields=["x"],
            use_default_consistency=False,
            consistency_level=int(ConsistencyLevel.BOUNDED),
        )
    )
    assert (got.limit, got.offset, got.round_decimal, got.group_scorer) == (5, 2, 3, "sum")
    assert (got.partitions, got.output_fields, got.grouping) == (("p",), ("x",), Grouping(("tag",)))
    assert (got.consistency.level, got.consistency.client, got.timeout_s) == (
        ConsistencyLevel.BOUNDED,
        "me",
        3.0,
    )
    templates = [search.template for search in got.searches]
    assert [(asked.vector_field, asked.limit) for asked in templates] == [("vector", 3), ("vector", 7)]
    assert got.searches[1].queries.tolist() == [[1, 2, 3, 4]]
    assert got.ranker == Rrf(60)


def test_a_search_repeats_parameters_of_the_whole_request_without_effect() -> None:
    repeated = {"offset": 16000, "group_by_field": "tag", "group_size": 3, "round_decimal": 2}
    searches = [search_request(params={**repeated, "topk": 900})]
    got = decode(hybrid_request({"group_by_field": "x"}, requests=searches))
    assert got.grouping == Grouping(("x",))
    (search,) = got.searches
    asked = search.template
    assert (asked.limit, asked.offset, asked.grouping, asked.round_decimal) == (900, 0, None, -1)


@pytest.mark.parametrize(
    "asked",
    [
        {"group_by_fields": ["tag", "x"], "group_size": 2, "strict_group_size": True},
        {"group_by_field": "tag", "group_size": 3},
        {"group_size": 3},
        {},
    ],
)
def test_a_grouping_counts_where_the_client_sends_it(asked: dict[str, Any]) -> None:
    searches = [
        Prepare.search_requests_with_expr("books", "vector", {}, 9, data=[[0.0] * 4], **asked)
        for _ in range(2)
    ]
    request = Prepare.hybrid_search_request_with_ranker("books", searches, WeightedRanker(1, 1), 9, **asked)
    got = decode(milvus_pb2.HybridSearchRequest.FromString(request.SerializeToString()))
    fields = asked.get("group_by_fields") or [asked[name] for name in ("group_by_field",) if name in asked]
    expected = Grouping(tuple(fields), asked.get("group_size", 1), "strict_group_size" in asked)
    assert got.grouping == (expected if fields else None)
    assert [search.template.grouping for search in got.searches] == [None, None]


def test_a_grouping_of_searches_may_be_by_a_value_inside_json() -> None:
    docs = schema(field("vector", DataType.FLOAT_VECTOR, dim=4), field("doc", DataType.JSON))
    asked = {"group_by_field": "doc", "json_path": "/a", "json_type": "Int64", "strict_cast": "true"}
    request = hybrid_request(requests=[search_request(params=asked)] * 2)
    got = decode_hybrid_search(request, resolved(docs), TemplateCache())
    inside = JsonKey("doc/a", "doc", ("a",), DataType.INT64, True)
    assert got.grouping == Grouping(("doc",), inside=inside)


@pytest.mark.parametrize(
    ("other", "said"),
    [({}, "none"), ({"group_by_field": "x"}, "x"), ({"group_by_field": "tag", "group_size": 2}, "tag")],
)
def test_searches_with_different_groupings_are_refused(other: dict[str, object], said: str) -> None:
    searches = [search_request(params={"group_by_field": "tag"}), search_request(params=other)]
    text = refusal(hybrid_request(requests=searches))
    assert f"the searches of a hybrid search have different groupings: tag, {said}; give all" in text


@pytest.mark.parametrize("topk", [None, "None"])
def test_a_search_without_a_limit_has_that_of_the_whole_request(topk: str | None) -> None:
    got = decode(hybrid_request({"offset": 4}, requests=[search_request(params={"topk": topk})]))
    assert [search.template.limit for search in got.searches] == [7]


RANKERS: dict[str, tuple[dict[str, object], Ranker]] = {
    "RRF": ({"strategy": "RRF", "params": '{"k":10}'}, Rrf(10)),
    "RRF by default": ({}, Rrf(60)),
    "RRF with weights": ({"strategy": "rrf", "params": '{"k":10,"weights":[0.5,1]}'}, Rrf(10, (0.5, 1.0))),
    "weights": ({"strategy": "weighted", "params": '{"weights":[0.5,1]}'}, Weighted((0.5, 1.0))),
    "normalized weights": (
        {"strategy": "weighted", "params": '{"weights":[0.5,1],"norm_score":true}'},
        Weighted((0.5, 1.0), normalized=True),
    ),
}


@pytest.mark.parametrize("name", RANKERS)
def test_the_rankers_of_older_clients(name: str) -> None:
    params, ranker = RANKERS[name]
    assert decode(hybrid_request(params)).ranker == ranker


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"strategy": "best"}, "unsupported rank type best"),
        ({"strategy": "rrf", "params": '{"k":"x"}'}, "The type of rank param k should be float"),
        ({"strategy": "rrf", "params": '{"k":true}'}, "The type of rank param k should be float"),
        ({"strategy": "weighted"}, "weights not found"),
        ({"strategy": "weighted", "params": '{"weights":3}'}, "weight should be []float, but got: 3"),
        ({"strategy": "weighted", "params": '{"weights":["1"]}'}, "weight should be []float"),
        (
            {"strategy": "weighted", "params": '{"weights":[1],"norm_score":7}'},
            "The type of rank param norm_score should be bool",
        ),
        ({"params": "[1]"}, "params [[1]] is not a JSON object"),
        ({"limit": None}, "limit not found in rank_params"),
        ({"limit": "x"}, "limit [x] is invalid"),
        ({"limit": 16384, "offset": 1}, "(offset+limit) should be in range [1, 16384], but got 16385"),
        ({"round_decimal": 8}, "round_decimal [8] is invalid"),
        ({"order_by_fields": "x:asc"}, "order_by is not supported for hybrid search"),
        ({"group_by_field": "tag", "group_size": "x"}, "failed to parse input group size:x"),
        ({"group_by_field": "tag", "group_size": 0}, "input group size:0 is negative"),
    ],
)
def test_bad_rank_params_are_refused(params: dict[str, object], text: str) -> None:
    assert text in refusal(hybrid_request(params))


def test_an_order_of_one_search_is_refused() -> None:
    request = hybrid_request(requests=[search_request(params={"order_by_fields": "x:asc"})])
    assert "order_by is not supported for hybrid search" in refusal(request)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"namespace": "n"}, "the field namespace of a hybrid search"),
        (
            {"function_score": score(function({"reranker": "boost", "weight": 1}))},
            "the reranker boost of a hybrid search",
        ),
        ({"function_score": score(function({"reranker": "model"}, "tag"))}, "the reranker model"),
    ],
)
def test_what_is_not_built_is_refused(fields: dict[str, Any], text: str) -> None:
    assert text in refusal(hybrid_request(**fields), NotSupported)


FUNCTIONS: dict[str, tuple[Message, Ranker]] = {
    "rrf": (function({"reranker": "rrf", "k": 9}), Rrf(9)),
    "rrf by default": (function({"reranker": "RRF"}), Rrf(60)),
    "rrf with weights": (function({"reranker": "rrf", "weights": "[0.7, 0]"}), Rrf(60, (0.7, 0.0))),
    "weighted": (
        function({"reranker": "weighted", "weights": "[0.1, 0.9]", "norm_score": "True"}),
        Weighted((0.1, 0.9), normalized=True),
    ),
    "decay": (
        function({"reranker": "decay", "function": "Gauss", "origin": 5, "scale": "2.5"}, "x"),
        Decay("x", "gauss", 5.0, 2.5),
    ),
    "decay with everything": (
        function(
            {
                "reranker": "decay",
                "function": "exp",
                "origin": 5,
                "scale": 2,
                "offset": 1,
                "decay": 0.25,
                "score_mode": "avg",
                "norm_score": "true",
            },
            "x",
        ),
        Decay("x", "exp", 5.0, 2.0, 1.0, 0.25, "avg", normalized=True),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_rankers_of_newer_clients(name: str) -> None:
    message, ranker = FUNCTIONS[name]
    assert decode(hybrid_request(function_score=score(message))).ranker == ranker
    alone = search_request(function_score=score(message))
    assert decode_one(alone).template.ranker == ranker


def test_boosts_of_a_search() -> None:
    chance = json.dumps({"seed": 7, "field": "x"})
    request = search_request(
        function_score=score(
            function({"reranker": "boost", "weight": 0.5, "filter": "x > 3"}),
            function({"reranker": "boost", "weight": 2, "random_score": chance}),
            boost_mode="Sum",
        )
    )
    assert decode_one(request).template.boosts == BoostRequests(
        (BoostRequest("x > 3", 0.5), BoostRequest("", 2.0, is_random=True, seed=7, random_field="x")),
        "sum",
        "multiply",
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (score(), "function_score has no functions"),
        (score(function({})), "reranker name not specified"),
        (
            score(function({"reranker": "magic"})),
            "unsupported reranker magic: use rrf, weighted, decay or boost",
        ),
        (score(function({"reranker": "rrf"}, kind=int(schema_pb2.BM25))), "BM25 is not rerank function"),
        (score(function({"reranker": "rrf"}, kind=999)), "unknown FunctionType 999 is not rerank function"),
        (score(function({"reranker": "rrf"}), function({"reranker": "rrf"})), "only supports one rerank"),
        (score(function({"reranker": "rrf"}, "x")), "The rrf function does not support input parameters"),
        (score(function({"reranker": "rrf", "k": "x"})), "Param k:x is not a number"),
        (score(function({"reranker": "weighted"})), "weights not found"),
        (score(function({"reranker": "weighted", "weights": "[x"})), "weight should be []float"),
        (score(function({"reranker": "decay"})), "Decay function only supoorts single input"),
        (score(function({"reranker": "decay", "function": "exp"}, "x")), "Decay function lost param: origin"),
        (score(function({"reranker": "boost"})), "must set weight params for weight scorer"),
        (score(function({"reranker": "boost", "weight": "inf"})), "Param weight:inf is not a finite number"),
        (
            score(function({"reranker": "boost", "weight": 1}, "x")),
            "The boost function does not support input",
        ),
        (
            score(function({"reranker": "boost", "weight": 1, "random_score": '{"seed":"a"}'})),
            "random seed must be number",
        ),
        (
            score(function({"reranker": "boost", "weight": 1, "random_score": '{"field":1}'})),
            "random seed field must be string",
        ),
        (score(function({"reranker": "boost", "weight": 1}), boost_mode="min"), "unknown boost mode: min"),
    ],
)
def test_an_unusable_function_score_is_refused(message: Message, text: str) -> None:
    assert text in refusal(search_request(function_score=message))


@pytest.mark.parametrize(
    ("params", "grouping"),
    [
        ({"group_by_field": "tag"}, Grouping(("tag",))),
        (
            {"group_by_field": " tag ", "group_size": 3, "strict_group_size": "True"},
            Grouping(("tag",), 3, strict=True),
        ),
        ({"group_by_fields": "tag, x,tag"}, Grouping(("tag", "x"))),
        ({"group_by_field": "x", "group_by_fields": "tag"}, Grouping(("x",))),
        ({"params": '{"group_by_field":"x","group_size":2}'}, Grouping(("x",), 2)),
        ({"group_by_field": "x", "strict_group_size": "perhaps"}, Grouping(("x",))),
        ({"group_by_field": "", "group_size": 99}, None),
    ],
)
def test_the_grouping_of_a_search(params: dict[str, object], grouping: Grouping | None) -> None:
    assert decode_one(search_request(params=params)).template.grouping == grouping


DOCS = schema(
    field("v", DataType.FLOAT_VECTOR, dim=4),
    field("x", DataType.INT64),
    field("doc", DataType.JSON),
    field("other", DataType.JSON),
    dynamic=True,
)


@pytest.mark.parametrize(
    ("params", "fields", "key"),
    [
        ({"group_by_field": "doc['a'][0]"}, ("doc",), JsonKey("doc['a'][0]", "doc", ("a", 0))),
        ({"group_by_fields": "x, doc['a,b']"}, ("x", "doc"), JsonKey("doc['a,b']", "doc", ("a,b",))),
        (
            {"group_by_fields": "x,color", "json_type": "VarChar", "strict_cast": "True"},
            ("x", "$meta"),
            JsonKey("color", "$meta", ("color",), DataType.VARCHAR, strict=True),
        ),
        ({"group_by_field": "doc"}, ("doc",), JsonKey("doc", "doc", ())),
        ({"group_by_field": "$meta['a']"}, ("$meta",), JsonKey("$meta['a']", "$meta", ("a",))),
        (
            {"group_by_field": "doc", "json_path": "/a/b", "json_type": "Int8"},
            ("doc",),
            JsonKey("doc/a/b", "doc", ("a", "b"), DataType.INT8),
        ),
        ({"group_by_field": "x", "json_path": "/a", "json_type": "unknown"}, ("x",), None),
    ],
)
def test_a_grouping_by_a_value_inside_json(
    params: dict[str, object], fields: tuple[str, ...], key: JsonKey | None
) -> None:
    request = search_request(params={"anns_field": "v", **params})
    search = decode_search(request, resolved(DOCS), TemplateCache())
    assert search.template.grouping == Grouping(fields, inside=key)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"group_by_fields": "doc['a'],other['b']"}, "at most one of the group_by_fields may be a value"),
        ({"group_by_field": "doc['a']", "json_type": "Double"}, "unsupported data type DOUBLE for group by"),
        ({"group_by_field": "doc", "json_path": "a"}, "json_path [a] is invalid"),
    ],
)
def test_an_unusable_value_inside_json_is_refused(params: dict[str, object], text: str) -> None:
    request = search_request(params={"anns_field": "v", **params})
    with pytest.raises(InvalidParameter) as refused:
        decode_search(request, resolved(DOCS), TemplateCache())
    assert text in refused.value.message


def test_a_grouping_of_an_unknown_field_is_refused() -> None:
    assert "groupBy field not found" in refusal(search_request(params={"group_by_field": "y"}), FieldNotFound)


def test_the_order_of_a_search_and_of_a_query() -> None:
    search = decode_one(search_request(params={"order_by_fields": "x:desc,tag"}))
    assert search.template.order == (OrderBy("x", True, True), OrderBy("tag", False, False))
    request = milvus_pb2.QueryRequest(
        collection_name="books",
        query_params=pairs({"order_by_fields": "x:desc,tag", "group_by_fields": "x, tag,", "limit": 5}),
    )
    query: Query = decode_query(request, resolved(BOOKS))
    assert query.order == (OrderBy("x", True, True), OrderBy("tag", False, False))
    assert query.group_by == ("x", "tag")


def test_a_search_by_primary_keys() -> None:
    request = search_request(placeholder_group=None, nq=2)
    request.ids.int_id.data.extend([5, 7])
    search = decode_one(request)
    assert search.query_ids is not None
    assert (search.query_ids.to_pylist(), search.queries.shape) == ([5, 7], (0, 0))


@pytest.mark.parametrize(
    ("ids", "nq", "text"),
    [
        (
            schema_pb2.IDs(str_id=schema_pb2.StringArray(data=["a"])),
            1,
            "primary key is int64, but IDs type mismatch",
        ),
        (schema_pb2.IDs(int_id=schema_pb2.LongArray(data=[1, 2])), 3, "nq is 3, but the request holds 2 ids"),
        (schema_pb2.IDs(int_id=schema_pb2.LongArray()), 0, "in range [1, 16384], but got 0"),
    ],
)
def test_bad_keys_to_search_with_are_refused(ids: Message, nq: int, text: str) -> None:
    request = search_request(placeholder_group=None, nq=nq)
    request.ids.CopyFrom(ids)
    assert text in refusal(request)


def test_a_template_does_not_keep_the_keys() -> None:
    cache = TemplateCache()
    for key in (5, 7):
        request = search_request(placeholder_group=None, nq=1)
        request.ids.int_id.data.append(key)
        found = decode_search(request, resolved(BOOKS), cache).query_ids
        assert found is not None
        assert found.to_pylist() == [key]


def test_the_requests_of_the_newest_client_are_understood() -> None:
    """The client's own builder, with everything that it can send."""
    asked = Prepare.search_requests_with_expr(
        "books",
        anns_field="vector",
        param={"metric_type": "L2", "params": {}},
        limit=4,
        data=[[1.0, 2.0, 3.0, 4.0]],
        group_by_field="tag",
        group_size=2,
        strict_group_size=True,
    )
    search = decode_one(milvus_pb2.SearchRequest.FromString(asked.SerializeToString()))
    assert search.template.grouping == Grouping(("tag",), 2, strict=True)
    fused = Prepare.hybrid_search_request_with_ranker(
        "books", [asked, asked], WeightedRanker(0.5, 0.25, norm_score=True), 4, group_by_field="tag"
    )
    got = decode(milvus_pb2.HybridSearchRequest.FromString(fused.SerializeToString()))
    assert got.ranker == Weighted((0.5, 0.25), normalized=True)
    assert got.grouping == Grouping(("tag",))
