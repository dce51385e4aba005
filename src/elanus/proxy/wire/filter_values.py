"""Values of a filter's placeholders as messages: what `parameters.filter_values` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from elanus.core.errors import InvalidParameter
from elanus.proxy.wire.stubs import schema_pb2

NESTED_MAX = 32
"""The most levels of lists in a value."""
_INT64 = range(-(2**63), 2**63)
_MEMBERS: Mapping[type, tuple[str, str]] = {
    bool: ("bool_val", "bool_data"),
    int: ("int64_val", "long_data"),
    float: ("float_val", "double_data"),
    str: ("string_val", "string_data"),
}


def template_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the messages by name. Raises `InvalidParameter` for a value that a filter cannot hold."""
    return {name: _message(name, value) for name, value in values.items()}


def _message(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return schema_pb2.TemplateValue(array_val=_array(name, value, NESTED_MAX))
    member = _MEMBERS.get(type(value))
    if member is None or not _fits(value):
        raise InvalidParameter(
            f"the value of the filter's placeholder {name} is invalid: send a boolean, a number of at most "
            "64 bits, a text or a list of these"
        )
    return schema_pb2.TemplateValue(**{member[0]: value})


def _array(name: str, values: Sequence[Any], levels: int) -> Any:
    if not levels:
        raise _too_deep(name)
    array = schema_pb2.TemplateArrayValue()
    kinds = set(map(type, values))
    if kinds == {int, float}:
        values, kinds = [float(value) for value in values], {float}
    kind = next(iter(kinds)) if len(kinds) == 1 else type(None)
    if kind in _MEMBERS and all(map(_fits, values)):
        getattr(array, _MEMBERS[kind][1]).data.extend(values)
    elif kind is list:
        array.array_data.data.extend([_array(name, inner, levels - 1) for inner in values])
    elif values:
        array.json_data.data.extend([msgspec.json.encode(value) for value in values])
    return array


def _too_deep(name: str) -> InvalidParameter:
    return InvalidParameter(
        f"the value of the filter's placeholder {name} is nested too deeply: "
        f"send lists of at most {NESTED_MAX} levels"
    )


def _fits(value: object) -> bool:
    return not isinstance(value, int) or value in _INT64
