"""Function chains on the wire: as the newest client sends them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from wire_messages import field, resolved, schema, search_request

from elanus.core.errors import ElanusError, InvalidParameter, NotSupported
from elanus.core.function_chains import Call, Chain, Chains, Limit, Map, Sort
from elanus.core.schema import DataType
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import schema_pb2

BOOKS = schema(
    field("vector", DataType.FLOAT_VECTOR, dim=4),
    field("price", DataType.FLOAT),
    field("year", DataType.INT64),
    field("brand", DataType.VARCHAR, max_length=9, nullable=True),
    field("doc", DataType.JSON),
)
L0, L1, L2 = (
    schema_pb2.FunctionChainStageL0Rerank,
    schema_pb2.FunctionChainStageL1Rerank,
    schema_pb2.FunctionChainStageL2Rerank,
)
DECAY = {"function": "exp", "origin": 2000, "scale": 10}


def value(given: Any) -> Message:
    kinds = {bool: "bool_value", int: "int64_value", float: "double_value", str: "string_value"}
    if isinstance(given, list):
        values = schema_pb2.FunctionParamArray(values=[value(item) for item in given])
        return schema_pb2.FunctionParamValue(array_value=values)
    return schema_pb2.FunctionParamValue(**{kinds[type(given)]: given})


def function(name: str, *columns: str, **params: Any) -> Message:
    args = [
        schema_pb2.FunctionChainExprArg(column=schema_pb2.FunctionChainColumnArg(name=column))
        for column in columns
    ]
    pairs = {key: value(given) for key, given in params.items()}
    return schema_pb2.FunctionChainExpr(name=name, args=args, params=pairs)


def op(kind: str, *inputs: str, **params: Any) -> Message:
    pairs = {key: value(given) for key, given in params.items()}
    return schema_pb2.FunctionChainOp(op=kind, inputs=inputs, params=pairs)


def mapped(output: str, expr: Message) -> Message:
    return schema_pb2.FunctionChainOp(op="map", expr=expr, outputs=[output])


def chain(*ops: Message, stage: Any = L2) -> Message:
    return schema_pb2.FunctionChain(stage=stage, name="by price", ops=ops)


def decode(*chains: Message, **more: Any) -> Chains | None:
    request = search_request(function_chains=chains, **more)
    return decode_search(request, resolved(BOOKS), TemplateCache()).template.chains


def test_a_chain_as_the_client_builds_it() -> None:
    combined = function("num_combine", "$score", "fresh", "price", mode="weighted", weights=[0.7, 0.2, 1])
    decoded = decode(
        chain(
            mapped("fresh", function("decay", "year", **DECAY)),
            mapped("$score", combined),
            mapped("$score", function("round_decimal", "$score", decimal=4)),
            op("sort", "$score", "$id", column="$score", desc=True, tie_break_col="$id"),
            op("limit", limit=10, offset=2),
        )
    )
    decay = {"function": "exp", "origin": 2000.0, "scale": 10.0, "offset": 0.0, "decay": 0.5}
    weighted = {"mode": "weighted", "weights": (0.7, 0.2, 1.0), "null_policy": "propagate"}
    expected = Chain(
        (
            Map("fresh", Call("decay", ("year",), decay)),
            Map("$score", Call("num_combine", ("$score", "fresh", "price"), weighted)),
            Map("$score", Call("round_decimal", ("$score",), {"decimal": 4.0})),
            Sort("$score", descending=True, tie_break="$id"),
            Limit(10, 2),
        ),
        ("year", "price"),
    )
    assert decoded == Chains(proxy=expected)
    assert expected.paginates
    assert decode() is None


def test_stages_have_chains_of_their_own() -> None:
    score = mapped("$score", function("num_combine", "$score", "price"))
    decoded = decode(chain(score, stage=L0), chain(score, op("limit", limit=5), stage=L1), chain(score))
    assert decoded is not None
    assert decoded.segment == decoded.proxy
    assert decoded.node is not None
    assert decoded.node.paginates


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        ({"column": "price"}, ("price",)),
        ({"column": "$score", "tie_break_col": "brand"}, ("brand",)),
        ({"column": "fresh", "tie_break_col": "price"}, ("year", "price")),
        ({"column": "$id"}, ()),
    ],
)
def test_the_columns_of_a_sort_are_read_without_being_inputs(
    params: dict[str, str], fields: tuple[str, ...]
) -> None:
    made = [mapped("fresh", function("decay", "year", **DECAY))] if params["column"] == "fresh" else []
    decoded = decode(chain(*made, op("sort", **params)))
    assert decoded is not None
    assert decoded.proxy is not None
    assert decoded.proxy.fields == fields


SCORE = mapped("$score", function("num_combine", "$score", "price"))
REFUSED: list[tuple[list[Message], type[ElanusError], str]] = [
    (
        [chain(SCORE), chain(SCORE)],
        InvalidParameter,
        "ChainStageL2Rerank appears more than once",
    ),
    ([chain()], InvalidParameter, r"function chain\[0\] must contain at least one op"),
    (
        [chain(SCORE, stage=schema_pb2.FunctionChainStagePostProcess)],
        InvalidParameter,
        r"function chain\[0\] stage FunctionChainStagePostProcess is not supported in search request",
    ),
    (
        [chain(SCORE, stage=999)],
        InvalidParameter,
        r"function chain\[0\] stage unknown FunctionChainStage 999 is not supported in search request",
    ),
    ([chain(op("merge"))], InvalidParameter, r"operator\[0\]: merge is not supported in ordinary search"),
    ([chain(op("shuffle"))], InvalidParameter, r"op\[0\]: unknown operator type: shuffle"),
    ([chain(op(""))], InvalidParameter, r"op\[0\] name is empty"),
    ([chain(op("filter"))], NotSupported, "the operator filter of a function chain is not supported"),
    ([chain(op("limit", limit=3), stage=L0)], InvalidParameter, "limit is not supported at stage L0"),
    ([chain(op("select"), stage=L1)], InvalidParameter, "select is not supported at stage L1"),
    ([chain(op("limit", limit=0))], InvalidParameter, "limit_op: limit must be positive"),
    ([chain(op("limit"))], InvalidParameter, "limit_op: limit is required"),
    ([chain(op("limit", limit="3"))], InvalidParameter, 'parameter "limit" must be an integer'),
    ([chain(op("sort"))], InvalidParameter, "sort_op: column is required"),
    ([chain(op("sort", column="nope"))], InvalidParameter, 'sort_op: column "nope" not found'),
    (
        [chain(op("sort", column="$score", tie_break_col="$seg"))],
        InvalidParameter,
        'sort_op: column "\\$seg" not found',
    ),
    ([chain(op("sort", column="doc"))], InvalidParameter, "complete JSON root input is not supported"),
    ([chain(op("sort", column="vector"))], InvalidParameter, "unsupported field type FloatVector"),
    ([chain(op("sort", "price", column="price", desc=1))], InvalidParameter, '"desc" must be a bool'),
]
CALLS: list[tuple[Message, type[ElanusError], str]] = [
    (function("decay", "nowhere", **DECAY), InvalidParameter, r'op\[0\] input "nowhere": .*not exist'),
    (function("decay", "doc", **DECAY), InvalidParameter, "complete JSON root input is not supported"),
    (function("decay", 'doc["a"]', **DECAY), InvalidParameter, "requires an explicit data_type"),
    (
        function("decay", "$seg", **DECAY),
        InvalidParameter,
        'unsupported .* system input "\\$seg"',
    ),
    (function("decay", "vector", **DECAY), InvalidParameter, "unsupported field type FloatVector"),
    (function("decay", "year"), InvalidParameter, 'decay: missing required parameter "function"'),
    (function("decay", "year", **DECAY | {"scale": 0}), InvalidParameter, "decay: scale must be > 0"),
    (function("decay", "year", **DECAY | {"offset": -1}), InvalidParameter, "decay: offset must be >= 0"),
    (function("decay", "year", **DECAY | {"decay": 1.0}), InvalidParameter, "must be 0 < decay < 1"),
    (function("decay", "year", **DECAY | {"decay": 1e-4}), InvalidParameter, "for numerical stability"),
    (function("decay", "year", **DECAY | {"function": "log"}), InvalidParameter, 'invalid function "log"'),
    (function("decay", "year", "price", **DECAY), InvalidParameter, "decay: expected 1 input column, got 2"),
    (function("num_combine", "year"), InvalidParameter, "expected at least 2 input columns, got 1"),
    (function("num_combine", "year", "price", mode="mean"), InvalidParameter, 'invalid mode "mean"'),
    (function("num_combine", "year", "price", mode="weighted"), InvalidParameter, "mode requires weights"),
    (
        function("num_combine", "year", "price", mode="weighted", weights=[1]),
        InvalidParameter,
        "weighted mode requires 2 weights, got 1",
    ),
    (
        function("num_combine", "year", "price", weights=["a"]),
        InvalidParameter,
        r'"weights"\[0\] must be',
    ),
    (function("num_combine", "year", "price", null_policy="x"), InvalidParameter, 'invalid null_policy "x"'),
    (function("round_decimal", "price", decimal=7), InvalidParameter, r"decimal must be in range \[0, 6\]"),
    (function("round_decimal", "price", decimal=1.5), InvalidParameter, "must be an integer"),
    (function("rerank_model", "brand", queries=["a"]), NotSupported, "the function rerank_model"),
    (function("xgboost", "price", model_resource="m"), NotSupported, "the function xgboost"),
    (function("sqrt", "price"), InvalidParameter, "unknown function: sqrt"),
]


@pytest.mark.parametrize(("chains", "kind", "expected"), REFUSED)
def test_a_wrong_chain_is_refused(chains: list[Message], kind: type[ElanusError], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        decode(*chains)


@pytest.mark.parametrize(("call", "kind", "expected"), CALLS)
def test_a_wrong_function_is_refused(call: Message, kind: type[ElanusError], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        decode(chain(mapped("$score", call)))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("$id", 'system output "\\$id" is not writable by L2 rerank function chain'),
        ("doc", "JSON root or path cannot be used as a function chain output"),
        ('$meta["x"]', "JSON root or path cannot be used"),
    ],
)
def test_a_wrong_output_is_refused(output: str, expected: str) -> None:
    with pytest.raises(InvalidParameter, match=expected):
        decode(chain(mapped(output, function("decay", "year", **DECAY))))


def test_a_chain_and_a_score_function_are_refused_together() -> None:
    params = [{"key": "reranker", "value": "rrf"}]
    scoring = schema_pb2.FunctionScore(functions=[{"name": "r", "type": "Rerank", "params": params}])
    with pytest.raises(InvalidParameter, match="function_score and function_chains cannot be used together"):
        decode(chain(SCORE), function_score=scoring)
