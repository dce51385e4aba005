"""Function chains in JSON to their messages. Checks and texts of the JSON are those of the reference.

`elanus.proxy.wire.function_chains` checks what a chain may do, for all clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.wire.stubs import schema_pb2

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_LEVELS_MAX = 32
"""The nesting of a parameter's value."""


def chain_messages(chains: Sequence[bodies.Chain], where: str = "functionChains") -> list[Any]:
    """Return ``FunctionChain`` messages. ``where``: they are in the body. Raises `InvalidParameter`."""
    messages = []
    for number, chain in enumerate(chains):
        with _inside(f"{where}[{number}]"):
            messages.append(_chain(chain))
    return messages


def _chain(body: bodies.Chain) -> Any:
    stage = body.stage.strip()
    number_of_stage = dict(schema_pb2.FunctionChainStage.items()).get(stage)
    if not number_of_stage:
        raise InvalidParameter(f"unsupported function chain stage: {stage}")
    message = schema_pb2.FunctionChain(name=body.name.strip(), stage=number_of_stage)
    for number, operation in enumerate(body.ops):
        with _inside(f"ops[{number}]"):
            _add_operation(message.ops.add(), operation)
    return message


def _add_operation(message: Any, body: bodies.ChainOperation) -> None:
    message.op = _named(body.op, "op name")
    with _inside("params"):
        _set_members(message.params, body.params, "param")
    if body.expr is not None:
        with _inside("expr"):
            _add_expression(message.expr, body.expr)
    message.inputs.extend(name.strip() for name in body.inputs)
    message.outputs.extend(name.strip() for name in body.outputs)


def _add_expression(message: Any, body: bodies.ChainExpression) -> None:
    message.name = _named(body.name, "expr name")
    for number, arg in enumerate(body.args):
        with _inside(f"args[{number}]"):
            if (arg.column is None) == (arg.literal is None):
                raise InvalidParameter("exactly one of column or literal is required")
            if arg.column is not None:
                message.args.add().column.name = _named(arg.column, "column name")
                continue
            with _inside("literal"):
                _set_value(message.args.add().literal, arg.literal)
    with _inside("params"):
        _set_members(message.params, body.params, "param")


def _set_members(target: Any, values: Mapping[str, Any], what: str, level: int = 0) -> None:
    """``what``: of what kind the members are, for errors. ``level``: how deep they are in a value."""
    for name, value in values.items():
        key = _named(name, f"{what} name")
        with _inside(f'{what} "{name}"'):
            _set_value(target[key], value, level)


def _set_value(target: Any, value: Any, level: int = 0) -> None:
    """Whole numbers are integers, as the reference reads them."""
    if level > _LEVELS_MAX:
        raise InvalidParameter(f"a value is nested too deeply: at most {_LEVELS_MAX} levels are read")
    if value is None:
        raise InvalidParameter("function param value is nil")
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, int | float):
        if value == value // 1 and _INT64_MIN <= value <= _INT64_MAX:
            target.int64_value = int(value)
        else:
            target.double_value = value
    elif isinstance(value, list):
        target.array_value.SetInParent()
        for number, item in enumerate(value):
            with _inside(f"array[{number}]"):
                _set_value(target.array_value.values.add(), item, level + 1)
    else:
        target.object_value.SetInParent()
        _set_members(target.object_value.fields, value, "object field", level + 1)


def _named(name: str, what: str) -> str:
    """Return the name without spaces around it. Raises `InvalidParameter` if there is none."""
    if not name.strip():
        raise InvalidParameter(f"{what} is empty")
    return name.strip()


@contextmanager
def _inside(where: str) -> Iterator[None]:
    """Say in errors where in the body they are."""
    try:
        yield
    except InvalidParameter as error:
        raise InvalidParameter(f"{where}: {error.message}") from error
