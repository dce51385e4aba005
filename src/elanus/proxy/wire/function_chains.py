"""The function chains of a search, as clients since 3.0 send them.

Checks, their order and their texts are those of the reference. `elanus.core.function_chains` says what chains
do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from elanus.core.errors import InvalidParameter
from elanus.core.function_chains import (
    COMBINE,
    COMBINE_MODES,
    DECAY,
    DECIMALS_MAX,
    ID,
    NULL_POLICIES,
    ROUND,
    SCORE,
    Call,
    Chain,
    Chains,
    Limit,
    Map,
    Operation,
    Param,
    Sort,
)
from elanus.core.json_keys import parse_json_path
from elanus.core.rankers import CURVES
from elanus.core.schema import CollectionSchema
from elanus.core.types import Family
from elanus.proxy.wire.requests import enum_name
from elanus.proxy.wire.stubs import schema_pb2
from elanus.proxy.wire.unsupported import unsupported

_READ = (Family.BOOL, Family.INTEGER, Family.FLOATING, Family.TEXT, Family.TIME)
_STAGES = {
    schema_pb2.FunctionChainStageL0Rerank: ("L0", ("map",)),
    schema_pb2.FunctionChainStageL1Rerank: ("L1", ("map", "sort", "limit")),
    schema_pb2.FunctionChainStageL2Rerank: ("L2", ("map", "sort", "limit")),
}
"""The stages of searches, and the operations of each."""
_MISSING = {
    "filter": "send the condition as the filter of the search",
    "select": "name the output fields in the search",
    "group_by": "group by fields in the search",
}
_NO_MODELS = "compute the scores in the client, or use num_combine and decay"
_DECAY_MIN, _DECAY_MAX = 0.001, 0.999


def function_chains(messages: Sequence[schema_pb2.FunctionChain], schema: CollectionSchema) -> Chains:
    """Raises `InvalidParameter`, and `NotSupported` for operations and functions that are missing here."""
    found: dict[str, Chain] = {}
    for number, message in enumerate(messages):
        name = enum_name(schema_pb2.FunctionChainStage, message.stage)
        if message.stage not in _STAGES:
            raise InvalidParameter(
                f"function chain[{number}] stage {name} is not supported in search request"
            )
        stage, operations = _STAGES[message.stage]
        if stage in found:
            raise InvalidParameter(f"function chain stage {name} appears more than once")
        if not message.ops:
            raise InvalidParameter(f"function chain[{number}] must contain at least one op")
        try:
            found[stage] = _chain(message.ops, schema, stage, operations)
        except InvalidParameter as error:
            raise InvalidParameter(f"function chain[{number}]: {error}") from error
    return Chains(found.get("L0"), found.get("L1"), found.get("L2"))


def _chain(
    messages: Iterable[schema_pb2.FunctionChainOp],
    schema: CollectionSchema,
    stage: str,
    allowed: tuple[str, ...],
) -> Chain:
    operations: list[Operation] = []
    fields: dict[str, None] = {}
    made: set[str] = set()
    for number, message in enumerate(messages):
        kind = message.op.strip()
        inputs = _inputs(message, number)
        if kind == "merge":
            raise InvalidParameter(
                f"function chain operator[{number}]: merge is not supported in ordinary search"
            )
        if kind in _MISSING and stage == "L2":
            raise unsupported(f"the operator {kind} of a function chain", _MISSING[kind])
        if kind not in allowed:
            known = kind in _MISSING or kind in ("map", "sort", "limit")
            said = f"operator {kind} is not supported at stage {stage}" if known else "unknown operator type"
            raise InvalidParameter(f"op[{number}]: {said}: {kind}" if kind else f"op[{number}] name is empty")
        for name in inputs:
            if name not in made and name not in (SCORE, ID):
                fields[_field(schema, name, number)] = None
        for name in message.outputs:
            _check_output(schema, name.strip(), number, stage)
            made.add(name.strip())
        try:
            operation = _operation(kind, message, inputs)
            if isinstance(operation, Sort):
                fields |= dict.fromkeys(_sorted_fields(operation, schema, made, number))
        except InvalidParameter as error:
            raise InvalidParameter(f"operator[{number}]: {error}") from error
        operations.append(operation)
    return Chain(tuple(operations), tuple(fields))


def _inputs(message: schema_pb2.FunctionChainOp, number: int) -> tuple[str, ...]:
    """Return the names of the columns that an operation reads."""
    if "$input_data_types" in message.params:
        raise unsupported("values inside JSON fields in function chains", "give the value a field of its own")
    if not message.HasField("expr"):
        names = tuple(name.strip() for name in message.inputs)
    else:
        kinds = [arg.WhichOneof("arg") for arg in message.expr.args]
        if "literal" in kinds:
            raise InvalidParameter(f"op[{number}]: {message.expr.name}: args must be columns, got a literal")
        names = tuple(arg.column.name.strip() for arg in message.expr.args)
    if "" in names:
        raise InvalidParameter(f"op[{number}]: input name is empty")
    return names


def _sorted_fields(sort: Sort, schema: CollectionSchema, made: Collection[str], number: int) -> Iterator[str]:
    """Yield the fields that a sort reads. Its parameters name them, whether its inputs do or not."""
    for name in filter(None, (sort.column, sort.tie_break)):
        if name in made or name in (SCORE, ID):
            continue
        parsed = parse_json_path(name)
        if (name if parsed is None else parsed[0]) not in schema.by_name:
            raise InvalidParameter(
                f'sort_op: column "{name}" not found: name a field, {SCORE}, {ID}, or an output of a map'
            )
        yield _field(schema, name, number)


def _field(schema: CollectionSchema, name: str, number: int) -> str:
    """Return the field that is read. Raises `InvalidParameter`."""
    where = f'op[{number}] input "{name}"'
    if name.startswith("$") and name.partition("[")[0] != "$meta":
        raise InvalidParameter(f'{where}: unsupported function chain system input "{name}"')
    parsed = parse_json_path(name)
    field = schema.by_name.get(name if parsed is None else parsed[0])
    if field is None:
        dynamic = "" if schema.dynamic_field is None else " (dynamic keys are not read by function chains)"
        raise InvalidParameter(
            f"{where}: resolve function chain input: field {name} not exist in collection schema{dynamic}"
        )
    if field.kind.family is Family.JSON:
        said = (
            "JSON path input requires an explicit data_type"
            if parsed is not None and parsed[1]
            else "complete JSON root input is not supported; specify a JSON path"
        )
        raise InvalidParameter(f"{where}: {said}")
    if field.name != name or field.kind.family not in _READ:
        raise InvalidParameter(
            f'{where}: function chain input "{name}" has unsupported field type {field.kind.name}'
        )
    return name


def _check_output(schema: CollectionSchema, name: str, number: int, stage: str) -> None:
    if not name:
        raise InvalidParameter(f"op[{number}]: output name is empty")
    where = f'op[{number}] output "{name}"'
    head = name.partition("[")[0]
    field = schema.by_name.get(head)
    if head == "$meta" or (field is not None and field.kind.family is Family.JSON):
        raise InvalidParameter(f"{where}: JSON root or path cannot be used as a function chain output")
    if name.startswith("$") and name != SCORE:
        raise InvalidParameter(
            f'{where}: system output "{name}" is not writable by {stage} rerank function chain'
        )


def _operation(kind: str, message: schema_pb2.FunctionChainOp, inputs: tuple[str, ...]) -> Operation:
    params = _Params(f"{kind}_op", message.params)
    if kind == "sort":
        column = params.text("column", "")
        if not column:
            raise InvalidParameter("sort_op: column is required")
        return Sort(column, params.boolean("desc", default=False), params.text("tie_break_col", ""))
    if kind == "limit":
        if "limit" not in message.params:
            raise InvalidParameter("limit_op: limit is required")
        limit, offset = params.integer("limit", 0), params.integer("offset", 0)
        if limit <= 0:
            raise InvalidParameter("limit_op: limit must be positive")
        if offset < 0:
            raise InvalidParameter("limit_op: offset must not be negative")
        return Limit(limit, offset)
    if not message.HasField("expr") or len(message.outputs) != 1:
        raise InvalidParameter("map_op: a function and one output are required")
    return Map(message.outputs[0].strip(), _call(message.expr, inputs))


def _call(message: schema_pb2.FunctionChainExpr, inputs: tuple[str, ...]) -> Call:
    name = message.name.strip()
    params = _Params(name, message.params)
    match name:
        case "num_combine":
            return Call(COMBINE, inputs, _combination(params, len(inputs)))
        case "decay":
            _check_one(name, inputs)
            return Call(DECAY, inputs, _decay(params))
        case "round_decimal":
            _check_one(name, inputs)
            decimals = params.integer("decimal", None)
            if not 0 <= decimals <= DECIMALS_MAX:
                raise InvalidParameter(
                    f"round_decimal: decimal must be in range [0, {DECIMALS_MAX}], got {decimals}"
                )
            return Call(ROUND, inputs, {"decimal": float(decimals)})
        case "rerank_model" | "xgboost":
            raise unsupported(f"the function {name} of function chains", _NO_MODELS)
        case "":
            raise InvalidParameter("expr name is empty")
        case _:
            raise InvalidParameter(f"unknown function: {name}")


def _check_one(name: str, inputs: tuple[str, ...]) -> None:
    if len(inputs) != 1:
        raise InvalidParameter(f"{name}: expected 1 input column, got {len(inputs)}")


def _combination(params: _Params, count: int) -> dict[str, Param]:
    mode = params.text("mode", "") or COMBINE_MODES[0]
    weights = params.numbers("weights")
    policy = params.text("null_policy", NULL_POLICIES[0])
    if mode not in COMBINE_MODES:
        raise InvalidParameter(
            f'num_combine: invalid mode "{mode}", must be one of [{", ".join(COMBINE_MODES)}]'
        )
    if mode == "weighted" and not weights:
        raise InvalidParameter("num_combine: weighted mode requires weights")
    for number, weight in enumerate(weights):
        if not math.isfinite(weight):
            raise InvalidParameter(f"num_combine: weight[{number}] must be finite, got {weight}")
    if policy not in NULL_POLICIES:
        raise InvalidParameter(
            f'num_combine: invalid null_policy "{policy}", must be one of [{", ".join(NULL_POLICIES)}]'
        )
    if count < 2:
        raise InvalidParameter(f"num_combine: expected at least 2 input columns, got {count}")
    if mode == "weighted" and len(weights) != count:
        raise InvalidParameter(f"num_combine: weighted mode requires {count} weights, got {len(weights)}")
    return {"mode": mode, "weights": weights, "null_policy": policy}


def _decay(params: _Params) -> dict[str, Param]:
    curve = params.text("function", None)
    origin, scale = params.number("origin", None), params.number("scale", None)
    offset, decay = params.number("offset", 0.0), params.number("decay", 0.5)
    if not all(map(math.isfinite, (origin, scale, offset))):
        raise InvalidParameter("decay: origin, scale and offset must be finite numbers")
    if scale <= 0:
        raise InvalidParameter(f"decay: scale must be > 0, got {scale:f}")
    if offset < 0:
        raise InvalidParameter(f"decay: offset must be >= 0, got {offset:f}")
    if not 0 < decay < 1:
        raise InvalidParameter(f"decay: decay must be 0 < decay < 1, got {decay:f}")
    if not _DECAY_MIN <= decay <= _DECAY_MAX:
        raise InvalidParameter(
            f"decay: decay must be between {_DECAY_MIN:f} and {_DECAY_MAX:f} for numerical stability, "
            f"got {decay:f}"
        )
    if curve not in CURVES:
        raise InvalidParameter(f'decay: invalid function "{curve}", must be one of [gauss, exp, linear]')
    return {"function": curve, "origin": origin, "scale": scale, "offset": offset, "decay": decay}


class _Params:
    """Typed parameters of an operation or a function, whose name is in the errors.

    A default of None: the parameter is required. Everything raises `InvalidParameter`.
    """

    def __init__(self, scope: str, values: Mapping[str, schema_pb2.FunctionParamValue]) -> None:
        self._scope = scope
        self._values = values

    def _get(self, name: str, *, required: bool) -> schema_pb2.FunctionParamValue | None:
        if name not in self._values:
            if required:
                raise InvalidParameter(f'{self._scope}: missing required parameter "{name}"')
            return None
        if self._values[name].WhichOneof("value") is None:
            raise InvalidParameter(f'{self._scope}: parameter "{name}" is unset')
        return self._values[name]

    def text(self, name: str, default: str | None) -> str:
        value = self._get(name, required=default is None)
        if value is None:
            return default or ""
        if not value.HasField("string_value"):
            raise self._wrong(name, "a string")
        return value.string_value

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self._get(name, required=False)
        if value is None:
            return default
        if not value.HasField("bool_value"):
            raise self._wrong(name, "a bool")
        return value.bool_value

    def number(self, name: str, default: float | None) -> float:
        value = self._get(name, required=default is None)
        if value is None:
            return default or 0.0
        number = _as_number(value)
        if number is None:
            raise self._wrong(name, "a number")
        return number

    def integer(self, name: str, default: int | None) -> int:
        value = self._get(name, required=default is None)
        if value is None:
            return default or 0
        if value.HasField("int64_value"):
            return value.int64_value
        number = _as_number(value)
        if number is None or not number.is_integer():
            raise self._wrong(name, "an integer")
        return int(number)

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self._get(name, required=False)
        if value is None:
            return ()
        if not value.HasField("array_value"):
            raise self._wrong(name, "a number array")
        numbers = [_as_number(item) for item in value.array_value.values]
        for place, number in enumerate(numbers):
            if number is None:
                raise InvalidParameter(f'{self._scope}: parameter "{name}"[{place}] must be a number')
        return tuple(number for number in numbers if number is not None)

    def _wrong(self, name: str, expected: str) -> InvalidParameter:
        return InvalidParameter(f'{self._scope}: parameter "{name}" must be {expected}')


def _as_number(value: schema_pb2.FunctionParamValue) -> float | None:
    match value.WhichOneof("value"):
        case "int64_value":
            return float(value.int64_value)
        case "double_value":
            return value.double_value
        case _:
            return None
