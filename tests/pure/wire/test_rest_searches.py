"""Function chains and aggregations of searches in JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front
from wire_messages import field, schema

from elanus.core.buckets import BestHits, Bucket, BucketLevel, BucketMetric, BucketOrder, HitOrder
from elanus.core.errors import InvalidParameter
from elanus.core.function_chains import COMBINE, Call, Chain, Chains, Limit, Map, Sort
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.search import SearchResult
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.rest.aggregations import bucket_rows
from elanus.proxy.rest.chains import chain_messages
from elanus.proxy.rest.searches import query_request
from elanus.proxy.rest.values import Integers, encoded

BOOKS = schema(
    field("v", DataType.FLOAT_VECTOR, dim=2),
    field("brand", DataType.VARCHAR, max_length=9, nullable=True),
    field("price", DataType.FLOAT),
)
STAGE = "FunctionChainStageL2Rerank"


def nested(levels: int, **leaf: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"fields": ["brand"], "size": 1, **leaf}
    for number in range(levels - 1):
        body = {"fields": [f"f{number}"], "size": 1, "subAggregation": body}
    return body


def chain(**op: Any) -> list[dict[str, Any]]:
    return [{"stage": STAGE, "ops": [op]}]


def expression(**members: Any) -> list[dict[str, Any]]:
    return chain(op="map", expr={"name": "decay", **members}, outputs=["x"])


@pytest.fixture
def client(verbs: FakeVerbs) -> RestClient:
    client = RestClient(rest_front(verbs))
    fields = [
        {"fieldName": "id", "dataType": "Int64", "isPrimary": True},
        {"fieldName": "brand", "dataType": "VarChar", "elementTypeParams": {"max_length": "9"}},
        {"fieldName": "price", "dataType": "Float"},
        {"fieldName": "v", "dataType": "FloatVector", "elementTypeParams": {"dim": "2"}},
    ]
    client.data("collections/create", collectionName="c", schema={"fields": fields})
    index = {"fieldName": "v", "indexName": "v", "metricType": "L2", "params": {"index_type": "FLAT"}}
    client.data("indexes/create", collectionName="c", indexParams=[index])
    client.data("collections/load", collectionName="c")
    return client


def search(client: RestClient, **body: Any) -> dict[str, Any]:
    return client.post("entities/search", collectionName="c", data=[[0, 1]], **body)


def test_chains_are_those_of_other_clients(client: RestClient, verbs: FakeVerbs) -> None:
    combined = {
        "name": "num_combine",
        "args": [{"column": "$score"}, {"column": " price "}],
        "params": {"mode": "weighted", "weights": [0.5, 2.0]},
    }
    ops = [
        {"op": " map ", "expr": combined, "outputs": ["$score"]},
        {"op": "sort", "params": {"column": "$score", "desc": True}},
        {"op": "limit", "params": {"limit": 3}},
    ]
    answer = search(client, functionChains=[{"name": "x", "stage": f" {STAGE} ", "ops": ops}])
    assert answer["code"] == 0, answer
    params = {"mode": "weighted", "weights": (0.5, 2.0), "null_policy": "propagate"}
    call = Call(COMBINE, ("$score", "price"), params)
    steps = (Map("$score", call), Sort("$score", True, ""), Limit(3, 0))
    assert verbs.searches[-1].template.chains == Chains(proxy=Chain(steps, ("price",)))


def test_values_of_chains_keep_their_types() -> None:
    params = {"a": 1, "b": 2.0, "c": 0.5, "d": True, "e": "x", "f": [1, "y"], "g": {" h ": 2**70}}
    op = bodies.ChainOperation(op="map", params=params)
    (message,) = chain_messages([bodies.Chain(stage=STAGE, ops=[op])])
    found = message.ops[0].params
    assert {name: value.WhichOneof("value") for name, value in found.items()} == {
        "a": "int64_value",
        "b": "int64_value",
        "c": "double_value",
        "d": "bool_value",
        "e": "string_value",
        "f": "array_value",
        "g": "object_value",
    }
    assert found["g"].object_value.fields["h"].double_value == 2.0**70


@pytest.mark.parametrize(
    ("chains", "text"),
    [
        ([{}], "functionChains[0]: unsupported function chain stage: "),
        ([{"stage": "L2_RERANK"}], "functionChains[0]: unsupported function chain stage: L2_RERANK"),
        (
            [{"stage": "FunctionChainStageUnspecified"}],
            "functionChains[0]: unsupported function chain stage: FunctionChainStageUnspecified",
        ),
        (chain(op=" "), "functionChains[0]: ops[0]: op name is empty"),
        (chain(op="sort", params={"": 1}), "functionChains[0]: ops[0]: params: param name is empty"),
        (
            chain(op="sort", params={"a": None}),
            'functionChains[0]: ops[0]: params: param "a": function param value is nil',
        ),
        (
            chain(op="sort", params={"a": [1, None]}),
            'functionChains[0]: ops[0]: params: param "a": array[1]: function param value is nil',
        ),
        (
            chain(op="sort", params={"a": {"": 1}}),
            'functionChains[0]: ops[0]: params: param "a": object field name is empty',
        ),
        (expression(name=""), "functionChains[0]: ops[0]: expr: expr name is empty"),
        (
            expression(args=[{}]),
            "functionChains[0]: ops[0]: expr: args[0]: exactly one of column or literal is required",
        ),
        (
            expression(args=[{"column": "a", "literal": 1}]),
            "functionChains[0]: ops[0]: expr: args[0]: exactly one of column or literal is required",
        ),
        (
            expression(args=[{"column": " "}]),
            "functionChains[0]: ops[0]: expr: args[0]: column name is empty",
        ),
        (expression(args=[{"literal": 1}]), "args must be columns, got a literal"),
        ([{"stage": STAGE}], "function chain[0] must contain at least one op"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(
    client: RestClient, chains: list[dict[str, Any]], text: str
) -> None:
    answer = search(client, functionChains=chains)
    assert (answer["code"], text in answer["message"]) == (1100, True), answer


def test_values_nested_too_deeply_are_refused() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    op = bodies.ChainOperation(op="map", params={"a": deep})
    with pytest.raises(InvalidParameter, match="nested too deeply"):
        chain_messages([bodies.Chain(stage=STAGE, ops=[op])])


def test_an_aggregation_is_that_of_other_clients(client: RestClient, verbs: FakeVerbs) -> None:
    aggregation = {
        "fields": [" brand "],
        "size": 2,
        "searchSize": 5,
        "metrics": {"mean": {"op": "avg", "fieldName": "price"}},
        "order": [{"key": "mean", "direction": "asc"}],
        "topHits": {"size": 3, "sort": [{"fieldName": "price", "direction": "desc"}]},
        "subAggregation": {"fields": ["id"], "size": 1},
    }
    answer = search(client, searchAggregation=aggregation)
    assert answer["code"] == 0, answer
    assert verbs.searches[-1].template.levels == (
        BucketLevel(
            ("brand",),
            2,
            5,
            (BucketMetric("mean", "avg", "price"),),
            (BucketOrder("mean", descending=False),),
            BestHits(3, (HitOrder("price", descending=True),)),
        ),
        BucketLevel(("id",), 1, 1),
    )


@pytest.mark.parametrize(
    ("aggregation", "more", "text"),
    [
        ({}, {}, "searchAggregation.fields must be non-empty"),
        ({"fields": [" "]}, {}, "searchAggregation.fields must contain non-empty field names"),
        ({"fields": ["brand"]}, {}, "searchAggregation.size must be positive"),
        (nested(1, searchSize=-1), {}, "searchAggregation.searchSize must be non-negative"),
        (
            nested(1, size=3, searchSize=2),
            {},
            "searchAggregation.searchSize must be greater than or equal to size",
        ),
        (nested(1, metrics={" ": {}}), {}, "searchAggregation.metrics alias must be non-empty"),
        (nested(1, metrics={"a": {}}), {}, "searchAggregation.metrics.a.op must be non-empty"),
        (
            nested(1, metrics={"a": {"op": "sum"}}),
            {},
            "searchAggregation.metrics.a.fieldName must be non-empty",
        ),
        (nested(1, order=[{}]), {}, "searchAggregation.order key must be non-empty"),
        (nested(1, order=[{"key": "_key"}]), {}, "searchAggregation.order direction must be non-empty"),
        (nested(2, topHits={}), {}, "searchAggregation.topHits.size must be positive"),
        (
            nested(1, topHits={"size": 1, "sort": [{}]}),
            {},
            "searchAggregation.topHits.sort fieldName must be non-empty",
        ),
        (
            nested(1, topHits={"size": 1, "sort": [{"fieldName": "price"}]}),
            {},
            "searchAggregation.topHits.sort direction must be non-empty",
        ),
        (nested(5), {}, "nesting exceeds max 4 levels"),
        (nested(100), {}, "nesting exceeds max 4 levels"),
        (nested(1), {"ids": [1]}, "ids and searchAggregation cannot be used simultaneously"),
        (nested(1), {"offset": 1}, "offset is not supported with searchAggregation"),
        (
            nested(1),
            {"groupSize": 2},
            "groupingField/groupSize/strictGroupSize and searchAggregation cannot be used simultaneously",
        ),
        (
            nested(1),
            {"searchParams": {"params": {"offset": 0}}},
            "searchParams.offset is not supported with searchAggregation",
        ),
        (
            nested(1),
            {"searchParams": {"group_by_field": "brand"}},
            "searchParams.group_by_field and searchAggregation cannot be used simultaneously",
        ),
    ],
)
def test_an_aggregation_that_makes_no_sense_is_refused(
    client: RestClient, aggregation: dict[str, Any], more: dict[str, Any], text: str
) -> None:
    answer = search(client, searchAggregation=aggregation, **more)
    assert (answer["code"], text in answer["message"]) == (1100, True), answer


@pytest.mark.parametrize(("integers", "three"), [(Integers.NUMBERS, 3), (Integers.QUOTED, "3")])
def test_buckets_are_objects_for_each_query(integers: Integers, three: object) -> None:
    child = Bucket((None,), 1, {}, (), ())
    result = SearchResult(
        np.array([0, 2, 2]),
        np.array([3, 2**60]),
        np.array([0.5, 0.25], np.float32),
        {"brand": pa.array(["a", None]), "price": pa.array([1.5, 2.5], pa.float32())},
        ("brand", "price"),
        (),
        BOOKS,
        Timestamp(5),
        levels=(BucketLevel(("brand",), 1, 1), BucketLevel(("price",), 1, 1)),
        buckets=((Bucket(("a",), 3, {"n": 3, "mean": 1.5, "none": None}, (1, 0), (child,)),), ()),
    )
    first, second = json.loads(encoded({"data": bucket_rows(result, integers)}))["data"]
    assert second == {"buckets": []}
    (bucket,) = first["buckets"]
    number = BOOKS.by_name["brand"].field_id
    shown = number if integers is Integers.NUMBERS else str(number)
    assert bucket["key"] == [{"fieldName": "brand", "fieldId": shown, "value": "a"}]
    assert (bucket["count"], bucket["metrics"]) == (three, {"n": three, "mean": 1.5, "none": None})
    key = BOOKS.primary_field.name
    big = 2**60 if integers is Integers.NUMBERS else str(2**60)
    assert bucket["hits"] == [
        {key: big, "distance": 0.25, "brand": None, "price": 2.5},
        {key: three, "distance": 0.5, "brand": "a", "price": 1.5},
    ]
    (group,) = bucket["subGroups"]
    assert (group["key"][0]["value"], group["count"], group["hits"], group["subGroups"]) == (
        None,
        1 if integers is Integers.NUMBERS else "1",
        [],
        [],
    )


def hybrid(client: RestClient, parts: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
    searches = [{"data": [[0, 1]], "annsField": "v", "limit": 2, **part} for part in parts]
    return client.post("entities/hybrid_search", collectionName="c", search=searches, limit=2, **body)


@pytest.mark.parametrize("name", ["param", "params"])
def test_searches_of_a_hybrid_search_have_parameters_by_either_name(
    client: RestClient, verbs: FakeVerbs, name: str
) -> None:
    answer = hybrid(client, [{name: {"ef": 50}}, {}])
    assert answer["code"] == 0, answer
    assert [search.template.params for search in verbs.searches[-2:]] == [{"ef": 50}, {}]


def test_searches_of_a_hybrid_search_have_chains(client: RestClient, verbs: FakeVerbs) -> None:
    expr = {"name": "num_combine", "args": [{"column": "$score"}, {"column": "price"}]}
    ops = [{"op": "map", "expr": expr, "outputs": ["$score"]}]
    parts = [{"functionChains": [{"stage": f"FunctionChainStageL{n}Rerank", "ops": ops}]} for n in (0, 1)]
    answer = hybrid(client, [*parts, {}])
    assert answer["code"] == 0, answer
    first, second, plain = (search.template.chains for search in verbs.searches[-3:])
    assert first is not None
    assert second is not None
    params = {"mode": "multiply", "weights": (), "null_policy": "propagate"}
    step = Map("$score", Call(COMBINE, ("$score", "price"), params))
    assert first == Chains(segment=Chain((step,), ("price",)))
    assert second == Chains(node=Chain((step,), ("price",)))
    assert plain is None


@pytest.mark.parametrize(
    ("parts", "body", "text"),
    [
        (
            [{}, {"functionChains": [{"stage": "L0"}]}],
            {},
            "search[1].functionChains[0]: unsupported function chain stage: L0",
        ),
        (
            [{"functionChains": chain(op="limit", params={"limit": 1})}],
            {},
            "L2 function chain is not supported in a search of a hybrid search",
        ),
        (
            [{}],
            {"functionChains": chain(op="limit", params={"limit": 1})},
            "the field function_chains of a hybrid search is not supported by this release: send a ranker, "
            "or chains of L0 and L1 in its searches",
        ),
        (
            [{"searchAggregation": {"fields": ["brand"], "size": 1}}],
            {},
            "search_aggregation is not supported in hybrid_search: send a search of its own",
        ),
        (
            [{}],
            {"searchAggregation": {"fields": ["brand"], "size": 1}},
            "search_aggregation is not supported in hybrid_search: send a search of its own",
        ),
    ],
)
def test_what_a_hybrid_search_cannot_do_is_refused_as_over_grpc(
    client: RestClient, parts: list[dict[str, Any]], body: dict[str, Any], text: str
) -> None:
    answer = hybrid(client, parts, **body)
    assert answer["code"] != 0
    assert text in answer["message"]


@pytest.mark.parametrize(
    ("outputs", "groups", "window"),
    [
        (["count(*)"], [], {}),
        ([" COUNT(*) "], [], {}),
        (["count(*)"], ["brand"], {"limit": "5", "offset": "2"}),
        (["brand", "count(*)"], ["brand"], {"limit": "5", "offset": "2"}),
        (["count(*)", "sum(price)"], [], {"limit": "5", "offset": "2"}),
    ],
)
def test_only_a_count_of_all_rows_has_no_window(
    outputs: list[str], groups: list[str], window: dict[str, str]
) -> None:
    body = bodies.Query(collection_name="c", output_fields=outputs, group_by_fields=groups, limit=5, offset=2)
    params = {pair.key: pair.value for pair in query_request(body).query_params}
    assert {name: value for name, value in params.items() if name != "group_by_fields"} == window


def test_a_single_vector_is_no_list_of_vectors(client: RestClient) -> None:
    refused = client.post("entities/search", collectionName="c", data=[0.5, 1])
    assert refused["code"] == 1100
    assert "data is one vector: send a list of vectors" in refused["message"]
