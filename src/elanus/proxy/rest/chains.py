"""Function chains by JSON, in the reference's form, as the messages that gRPC clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from elanus.core.errors import InvalidParameter
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.wire.stubs import schema_pb2

_INT64 = range(-(2**63), 2**63)
_DEPTH_MAX = 16
"""Of lists and objects in a parameter; a protobuf has a limit, too."""


def chain_message(chain: bodies.Chain) -> Any:
    """Return a ``FunctionChain``. Raises `InvalidParameter`."""
    stages = dict(schema_pb2.FunctionChainStage.items())
    if chain.stage not in stages:
        raise InvalidParameter(
            f"functionChains: the stage [{chain.stage[:100]}] does not exist; stages are {', '.join(stages)}"
        )
    return schema_pb2.FunctionChain(
        name=chain.name, stage=stages[chain.stage], ops=[_operation(op) for op in chain.ops]
    )


def _operation(op: bodies.ChainOp) -> Any:
    message = schema_pb2.FunctionChainOp(
        op=op.op, inputs=op.inputs, outputs=op.outputs, params=_params(op.params)
    )
    if op.expr is not None:
        arguments = [_argument(argument) for argument in op.expr.args]
        params = _params(op.expr.params)
        message.expr.CopyFrom(schema_pb2.FunctionChainExpr(name=op.expr.name, args=arguments, params=params))
    return message


def _argument(argument: bodies.ChainArgument) -> Any:
    if (argument.column is None) == (argument.literal is msgspec.UNSET):
        raise InvalidParameter("functionChains: an argument of an expr has either a column or a literal")
    if argument.column is None:
        return schema_pb2.FunctionChainExprArg(literal=_value(argument.literal, "literal"))
    return schema_pb2.FunctionChainExprArg(column=schema_pb2.FunctionChainColumnArg(name=argument.column))


def _params(params: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    return {name: _value(value, name, depth) for name, value in params.items()}


def _value(value: Any, name: str, depth: int = 0) -> Any:
    """Return a ``FunctionParamValue``. ``name``: of the parameter, for the error."""
    if depth > _DEPTH_MAX:
        raise InvalidParameter(
            f"functionChains: a parameter has more than {_DEPTH_MAX} levels of lists and objects"
        )
    kind = schema_pb2.FunctionParamValue
    match value:
        case bool():
            return kind(bool_value=value)
        case int() if value in _INT64:
            return kind(int64_value=value)
        case int() | float():
            return kind(double_value=float(value))
        case str():
            return kind(string_value=value)
        case list():
            values = [_value(item, name, depth + 1) for item in value]
            return kind(array_value=schema_pb2.FunctionParamArray(values=values))
        case dict():
            return kind(object_value=schema_pb2.FunctionParamObject(fields=_params(value, depth + 1)))
    raise InvalidParameter(
        f"functionChains: the parameter {name[:100]} is null: leave it out, or give a value"
    )
