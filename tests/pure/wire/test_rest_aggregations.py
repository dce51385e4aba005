"""Search aggregations by REST: the levels that a body asks for, and the buckets of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from fake_front import FakeFront
from msgspec import structs
from rest_client import RestClient, rest_front

from elanus.core.buckets import BestHits, BucketLevel, BucketMetric, BucketOrder, HitOrder, buckets_of
from elanus.proxy.api import Search, SearchResult

LARGE = 2**53 + 1
FIELDS = [
    {"fieldName": "id", "dataType": "Int64", "isPrimary": True},
    {"fieldName": "kind", "dataType": "Int64"},
    {"fieldName": "brand", "dataType": "VarChar", "elementTypeParams": {"max_length": "9"}},
    {"fieldName": "vector", "dataType": "FloatVector", "elementTypeParams": {"dim": "2"}},
]
ROWS = [
    {"id": 1, "kind": LARGE, "brand": "x", "vector": [1.0, 0.0]},
    {"id": 2, "kind": LARGE, "brand": "y", "vector": [0.9, 0.0]},
    {"id": 3, "kind": 7, "brand": "x", "vector": [0.8, 0.0]},
]
ASKED: dict[str, Any] = {
    "collectionName": "goods",
    "data": [[1.0, 0.0]],
    "outputFields": ["kind", "brand"],
    "searchAggregation": {
        "fields": ["kind"],
        "size": 2,
        "searchSize": 3,
        "metrics": {"most": {"op": "max", "fieldName": "kind"}},
        "order": [{"key": "_key", "direction": "asc"}],
        "topHits": {"size": 1, "sort": [{"fieldName": "brand", "direction": "desc", "nullFirst": True}]},
        "subAggregation": {"fields": ["brand"]},
    },
}
LEVELS = (
    BucketLevel(
        ("kind",),
        2,
        3,
        (BucketMetric("most", "max", "kind"),),
        (BucketOrder("_key", False),),
        BestHits(1, (HitOrder("brand", True, True),)),
    ),
    BucketLevel(("brand",), 1, 1),
)


@pytest.fixture
def client(front: FakeFront, monkeypatch: pytest.MonkeyPatch) -> RestClient:
    """A front that makes buckets of the hits that it finds."""
    found = front.search

    def search(request: Search) -> SearchResult:
        hits = found(structs.replace(request, limit=10))
        buckets = buckets_of(request.levels, hits.offsets, hits.scores, hits.fields, larger_is_better=False)
        return structs.replace(hits, levels=request.levels, buckets=buckets)

    monkeypatch.setattr(front, "search", search)
    made = RestClient(rest_front(front))
    index = {"fieldName": "vector", "indexName": "v", "indexType": "FLAT", "metricType": "L2"}
    made.data("collections/create", collectionName="goods", schema={"fields": FIELDS}, indexParams=[index])
    made.data("entities/insert", collectionName="goods", data=ROWS)
    return made


def test_buckets_have_keys_metrics_hits_and_buckets(client: RestClient, front: FakeFront) -> None:
    answer = client.post("entities/search", **ASKED)
    assert front.searches[-1].levels == LEVELS
    assert (answer["code"], answer["aggTopks"], "topks" in answer) == (0, [2], False)
    ((small, large),) = [found["buckets"] for found in answer["data"]]
    assert small["key"] == [{"fieldName": "kind", "value": 7}]
    assert (small["count"], small["metrics"], len(small["hits"])) == (1, {"most": 7}, 1)
    assert large["key"] == [{"fieldName": "kind", "value": str(LARGE)}]
    assert (large["count"], large["metrics"]) == (2, {"most": str(LARGE)})
    (hit,) = large["hits"]
    assert (hit["id"], hit["kind"], hit["brand"], hit["distance"]) == (
        2,
        str(LARGE),
        "y",
        pytest.approx(0.01),
    )
    (below,) = large["subGroups"]
    assert (below["key"], below["count"]) == ([{"fieldName": "brand", "value": "x"}], 1)
    assert (below["hits"], below["subGroups"]) == ([], [])


def test_integers_of_buckets_are_as_the_client_asks(client: RestClient) -> None:
    answer = client.post("entities/search", {"accept-type-allow-int64": "true"}, **ASKED)
    bucket = answer["data"][0]["buckets"][1]
    assert (bucket["key"][0]["value"], bucket["metrics"]["most"], bucket["hits"][0]["kind"]) == (LARGE,) * 3


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"orderByFields": ["kind:asc"]},
            "orderByFields and searchAggregation cannot be used simultaneously",
        ),
        (
            {"groupingField": "kind"},
            "groupingField/groupSize/strictGroupSize and searchAggregation cannot be",
        ),
        ({"groupSize": 2}, "groupingField/groupSize/strictGroupSize and searchAggregation cannot be"),
        ({"offset": 1}, "offset is not supported with search_aggregation"),
    ],
)
def test_what_contradicts_an_aggregation_is_refused(
    client: RestClient, more: dict[str, Any], text: str
) -> None:
    answer = client.post("entities/search", **ASKED, **more)
    assert (answer["code"], text in answer["message"]) == (1100, True), answer


@pytest.mark.parametrize("depth", [5, 200])
def test_levels_are_limited(client: RestClient, depth: int) -> None:
    level: dict[str, Any] = {"fields": ["brand"]}
    for _ in range(depth - 1):
        level = {"fields": ["brand"], "subAggregation": level}
    answer = client.post("entities/search", **{**ASKED, "searchAggregation": level})
    assert (answer["code"], "nesting exceeds max 4 levels" in answer["message"]) == (1100, True), answer
