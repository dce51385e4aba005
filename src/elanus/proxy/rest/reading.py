"""A request's body to its struct.

The body is parsed by orjson, and converted by `msgspec`, which knows the types. A number may be quoted, as
programs without 64-bit integers send it. A null is as if the field were left out: many clients send all of
their fields.

Rows of plain values and vectors, the bulk of what is sent, are read by `msgspec` alone
(`entity_bodies.FlatRows`), in three quarters of the time. A body that is not of that form is read as any
other, so both ways give one answer.

Parsers keep the interpreter's lock: a quarter of a second for a body of 24 MB. So the rows of large bodies
are read in pieces, between which the event loop can run. Finding where each row ends is thirty times as fast.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
import orjson
from msgspec import structs

from elanus.proxy.rest.bodies import Body
from elanus.proxy.rest.entity_bodies import FlatRow, FlatRows, Rows
from elanus.proxy.rest.errors import BadFormat, MissingField

B = TypeVar("B", bound=Body)

_MISSING = re.compile(r"Object missing required field `(\w+)`")
_VALUES = frozenset({"data", "defaultValue", "exprParams", "id", "ids"})
"""Fields whose contents are values, in which a null means something."""
_TEXT_MAX_CHARS = 500
_FLAT_BODY = msgspec.json.Decoder(FlatRows).decode
_FLAT_ROWS = msgspec.json.Decoder(list[FlatRow]).decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_LARGE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; no body at all is an empty one. Raises `BadFormat`."""
    if not body.strip():
        return {}
    try:
        value = _loaded(body)
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
        return cast(B, _FLAT_BODY(body) if len(body) < _LARGE_BYTES else _large_flat(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _large_flat(body: bytes) -> FlatRows:
    """As `_FLAT_BODY`, in pieces."""
    members = _MEMBERS(body)
    rows = _ITEMS(members["data"]) if "data" in members else []
    found = _FLAT_BODY(msgspec.json.encode({**members, "data": []}))
    found.data = [row for piece in _pieces(rows, len(body)) for row in _FLAT_ROWS(piece)]
    return found


def _loaded(body: bytes) -> Any:
    """As ``orjson.loads``, in pieces if the body is large. Raises `orjson.JSONDecodeError`."""
    if len(body) >= _LARGE_BYTES:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {name: _member(value) for name, value in _MEMBERS(body).items()}
    return orjson.loads(body)


def _member(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    if not text.startswith(b"["):
        return orjson.loads(text)
    return [item for piece in _pieces(_ITEMS(raw), len(text)) for item in orjson.loads(piece)]


def _pieces(items: Sequence[msgspec.Raw], size_bytes: int) -> Iterator[bytes]:
    """Yield JSON arrays of some of the items, in order. ``size_bytes``: about that of all items."""
    count = max(1, len(items) * _PIECE_BYTES // size_bytes)
    for begin in range(0, len(items), count):
        yield b"[%b]" % b",".join(items[begin : begin + count])


def _converted(body: bytes, kind: type[B]) -> B:
    sent = parsed(body)
    rows = sent.get("data")
    # Converting rows would only check that they are objects, in one long call.
    if kind is Rows and isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        found = _of_kind({**sent, "data": []}, Rows)
        found.data = rows
        return cast(B, found)
    return _of_kind(sent, kind)


def _of_kind(sent: dict[str, Any], kind: type[B]) -> B:
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
