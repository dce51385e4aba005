"""Parsers for the texts in which clients send search and query parameters.

Every parameter arrives as a string. Each parser raises `InvalidParameter` with the name of the parameter and
its value, in the reference's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID
from elanus.core.pieces import pieces
from elanus.proxy.wire.stubs import schema_pb2
from elanus.proxy.wire.unsupported import unsupported

IGNORE_GROWING = "ignore_growing"
ITERATOR = "iterator"
COLLECTION_ID = "collection_id"
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE", ""})


def integer(params: Mapping[str, str], name: str) -> int | None:
    """Return the parameter's value; ``None`` if it is missing."""
    if name not in params:
        return None
    if not _INTEGER.fullmatch(params[name]):
        raise InvalidParameter(f"{name} [{params[name]}] is invalid")
    return int(params[name])


def is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None


def boolean(params: Mapping[str, str], name: str) -> bool:
    """Return the parameter's value; False if it is missing."""
    text = params.get(name, "")
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidParameter(f"{name} [{text}] is invalid, should be true or false")


def iterates(params: Mapping[str, str]) -> bool:
    """Whether a read is a page of an iterator."""
    return boolean(params, ITERATOR)


def expected_collection(params: Mapping[str, str]) -> CollectionID | None:
    """Return the collection that an iterator's page continues with; ``None`` if the request names none."""
    number = integer(params, COLLECTION_ID)
    return None if number is None else CollectionID(number)


def ignore_growing(params: Mapping[str, str]) -> bool:
    """Whether a read leaves out growing segments. False if the parameter is missing."""
    try:
        return boolean(params, IGNORE_GROWING)
    except InvalidParameter as error:
        raise InvalidParameter(f"parse search growing failed: {error.message}") from error


def refuse_unknown(params: Mapping[str, str], understood: frozenset[str], instead: Mapping[str, str]) -> None:
    """Raises `NotSupported` for a parameter outside ``understood``; ``instead`` holds remedies by name."""
    for name in params:
        if name not in understood:
            raise unsupported(f"the parameter {name}", instead.get(name))


def json_object(text: str, name: str) -> dict[str, Any]:
    """Return the members of a JSON object; none for an empty text."""
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidParameter(f"{name} [{text[:200]}] is not a JSON object: {error}") from error


def filter_values(template: Mapping[str, schema_pb2.TemplateValue]) -> dict[str, object]:
    """Return the values of a filter's placeholders (``expr_template_values``) by name, as Python values."""
    return {name: _template_value(name, value) for name, value in template.items()}


def _template_value(name: str, value: schema_pb2.TemplateValue) -> object:
    member = value.WhichOneof("val")
    if member == "array_val":
        return _template_array(name, value.array_val)
    if member in ("bool_val", "int64_val", "float_val", "string_val", "bytes_val"):
        return getattr(value, member)
    raise unsupported(
        f"the filter value {name} of kind {member}", "use a bool, number, string, bytes or list"
    )


def _template_array(name: str, array: schema_pb2.TemplateArrayValue) -> list[object]:
    member = array.WhichOneof("data")
    if member is None:
        return []
    values = getattr(array, member).data
    if member == "array_data":
        return [_template_array(name, inner) for inner in values]
    if member == "json_data":
        try:
            return [msgspec.json.decode(text) for text in values]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidParameter(f"the filter value {name} is no valid JSON: {error}") from error
    found: list[object] = []
    for piece in pieces(len(values)):
        found += values[piece]
    return found
