"""A request's body to its struct.

The body is parsed by orjson, and converted by `msgspec`, which knows the types. A number may be quoted, as
programs without 64-bit integers send it. A null is as if the field were left out: many clients send all of
their fields.

Rows of plain values and vectors, the bulk of what is sent, are read by `msgspec` alone
(`entity_bodies.FlatRows`), in three quarters of the time. A body that is not of that form is read as any
other, so both ways give one answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
import orjson
from msgspec import structs

from elanus.proxy.rest.bodies import Body
from elanus.proxy.rest.entity_bodies import FlatRows, Rows
from elanus.proxy.rest.errors import BadFormat, MissingField

B = TypeVar("B", bound=Body)

_MISSING = re.compile(r"Object missing required field `(\w+)`")
_VALUES = frozenset({"data", "defaultValue", "exprParams", "id", "ids"})
"""Fields whose contents are values, in which a null means something."""
_TEXT_MAX_CHARS = 500
_FLAT_ROWS = msgspec.json.Decoder(FlatRows)


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; no body at all is an empty one. Raises `BadFormat`."""
    if not body.strip():
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadFormat(str(error)[:_TEXT_MAX_CHARS]) from None
    if not isinstance(value, dict):
        raise BadFormat("the body must be a JSON object")
    return value


def read(body: bytes, kind: type[B]) -> B:
    """Return the body as that struct. Raises `BadFormat` and `MissingField`."""
    found = _flat(body, kind) or _converted(body, kind)
    for attribute, name in _required(kind):
        if getattr(found, attribute) == "":
            raise MissingField(kind.__name__, name)
    return found


def _flat(body: bytes, kind: type[B]) -> B | None:
    """Return a body of flat rows; None for any other, and for one that is not valid."""
    if kind is not Rows:
        return None
    try:
        return cast(B, _FLAT_ROWS.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _converted(body: bytes, kind: type[B]) -> B:
    sent = parsed(body)
    try:
        return msgspec.convert(sent, kind, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return _forgiving(sent, kind)


def _forgiving(sent: dict[str, Any], kind: type[B]) -> B:
    try:
        return msgspec.convert(_without_nulls(sent), kind, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        if missing := _MISSING.match(text):
            raise MissingField(kind.__name__, missing[1]) from None
        raise BadFormat(text[:_TEXT_MAX_CHARS]) from None
    except RecursionError:
        raise BadFormat("the body is nested too deeply") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: member if name in _VALUES else _without_nulls(member)
            for name, member in value.items()
            if member is not None
        }
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@cache
def _required(kind: type[Body]) -> tuple[tuple[str, str], ...]:
    """The required fields: their attributes and their names in JSON."""
    return tuple((field.name, field.encode_name) for field in structs.fields(kind) if field.required)
