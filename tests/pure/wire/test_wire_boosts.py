"""Boosts: their filters are read as the filter of their search is, and their seeds as numbers of 64 bits."""

from __future__ import annotations

import json

import pytest
from google.protobuf.message import Message
from wire_messages import field, pairs, resolved, schema, search_request

from elanus.core.schema import DataType
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import schema_pb2

EVENTS = schema(field("vector", DataType.FLOAT_VECTOR, dim=4), field("t", DataType.TIMESTAMPTZ))
SINCE = "t > ISO '2025-01-01T00:00:00'"


def boost(text: str, **more: str) -> Message:
    params = pairs({"reranker": "boost", "weight": 2, "filter": text, **more})
    return schema_pb2.FunctionSchema(name="b", type=schema_pb2.Rerank, params=params)


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "UTC", None])
def test_local_times_in_boosts_are_in_the_zone_of_the_search(zone: str | None) -> None:
    request = search_request(
        params={"timezone": zone},
        dsl=SINCE,
        function_score=schema_pb2.FunctionScore(functions=[boost(SINCE), boost("")]),
    )
    asked = decode_search(request, resolved(EVENTS), TemplateCache()).template
    assert asked.boosts is not None
    assert [boosted.filter for boosted in asked.boosts.functions] == [asked.filter, ""]
    assert "2024-12-31T16" in asked.filter if zone == "Asia/Shanghai" else "2025-01-01T00" in asked.filter


@pytest.mark.parametrize(("seed", "kept"), [(2**64 + 7, 7), (10**30, 10**30 % 2**64), (-1, 2**64 - 1)])
def test_a_seed_of_any_size_is_the_number_that_it_counts_as(seed: int, kept: int) -> None:
    chance = json.dumps({"seed": seed})
    scoring = schema_pb2.FunctionScore(functions=[boost("", random_score=chance)])
    asked = decode_search(search_request(function_score=scoring), resolved(EVENTS), TemplateCache()).template
    assert asked.boosts is not None
    assert [boosted.seed for boosted in asked.boosts.functions] == [kept]
