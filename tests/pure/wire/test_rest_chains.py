"""Function chains by REST: a body asks for what a gRPC client would, and is checked as that is."""

from __future__ import annotations

from typing import Any

import pytest
from fake_front import FakeFront
from rest_client import RestClient, rest_front

from elanus.core.function_chains import COMBINE, NULL_POLICIES, SCORE, Call, Chain, Limit, Map, Sort
from elanus.proxy.rest.chains import chain_message
from elanus.proxy.rest.entity_bodies import Chain as ChainBody
from elanus.proxy.rest.entity_bodies import ChainArgument, ChainExpression, ChainOp

FIELDS = [
    {"fieldName": "id", "dataType": "Int64", "isPrimary": True},
    {"fieldName": "ts", "dataType": "Int64"},
    {"fieldName": "vector", "dataType": "FloatVector", "elementTypeParams": {"dim": "2"}},
]
MAP = {
    "op": "map",
    "outputs": [SCORE],
    "expr": {
        "name": "num_combine",
        "args": [{"column": SCORE}, {"column": "ts"}],
        "params": {"mode": "weighted", "weights": [1, 10.5]},
    },
}
SORT = {"op": "sort", "inputs": [SCORE], "params": {"column": SCORE, "desc": True}}
LIMIT = {"op": "limit", "params": {"limit": 2}}
L2 = "FunctionChainStageL2Rerank"


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else {}


@pytest.fixture
def client(front: FakeFront) -> RestClient:
    made = RestClient(rest_front(front))
    index = {"fieldName": "vector", "indexName": "v", "indexType": "FLAT", "metricType": "L2"}
    made.data("collections/create", collectionName="c", schema={"fields": FIELDS}, indexParams=[index])
    made.data("entities/insert", collectionName="c", data=[{"id": 1, "ts": 2, "vector": [0.0, 1.0]}])
    return made


def search(client: RestClient, *chains: dict[str, Any]) -> dict[str, Any]:
    return client.post("entities/search", collectionName="c", data=[[0.0, 0.0]], functionChains=list(chains))


def test_a_chain_is_the_one_of_grpc(client: RestClient, front: FakeFront) -> None:
    assert search(client, {"name": "mine", "stage": L2, "ops": [MAP, SORT, LIMIT]})["code"] == 0
    found = front.searches[-1].chains
    assert found is not None
    assert (found.segment, found.node) == (None, None)
    params = {"mode": "weighted", "weights": (1.0, 10.5), "null_policy": NULL_POLICIES[0]}
    operations = (Map(SCORE, Call(COMBINE, (SCORE, "ts"), params)), Sort(SCORE, True), Limit(2))
    assert found.proxy == Chain(operations, ("ts",))


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        ({"stage": "L2", "ops": [LIMIT]}, "the stage [L2] does not exist"),
        ({"stage": L2}, "must contain at least one op"),
        ({"stage": L2, "ops": [{"op": "limit", "params": {"limit": 0}}]}, "limit must be positive"),
        ({"stage": L2, "ops": [{**MAP, "outputs": ["$id"]}]}, "$id"),
        (
            {"stage": L2, "ops": [{**MAP, "expr": {"name": "num_combine", "args": [{}]}}]},
            "either a column or a literal",
        ),
        (
            {"stage": L2, "ops": [{**MAP, "expr": {"name": "num_combine", "args": [{"literal": 1}]}}]},
            "args must be columns, got a literal",
        ),
        ({"stage": L2, "ops": [{"op": "limit", "params": {"limit": [None]}}]}, "the parameter limit is null"),
        ({"stage": L2, "ops": [{"op": "limit", "params": {"limit": nested(500)}}]}, "more than 16 levels"),
    ],
)
def test_what_is_wrong_is_said(client: RestClient, chain: dict[str, Any], text: str) -> None:
    answer = search(client, chain)
    assert (answer["code"], text in answer["message"]) == (1100, True), answer


def test_values_of_all_kinds_are_sent() -> None:
    params = {"b": True, "i": -(2**63), "l": 2**64, "f": 0.5, "s": "x", "a": [1, [2.5]], "o": {"k": False}}
    op = ChainOp(op="map", expr=ChainExpression(name="f", args=[ChainArgument(literal="y")], params=params))
    (sent,) = chain_message(ChainBody(stage=L2, ops=[op])).ops
    found = {name: value.WhichOneof("value") for name, value in sent.expr.params.items()}
    assert found == {
        "b": "bool_value",
        "i": "int64_value",
        "l": "double_value",
        "f": "double_value",
        "s": "string_value",
        "a": "array_value",
        "o": "object_value",
    }
    assert sent.expr.params["a"].array_value.values[1].array_value.values[0].double_value == 2.5
    assert not sent.expr.params["o"].object_value.fields["k"].bool_value
    assert sent.expr.args[0].literal.string_value == "y"
