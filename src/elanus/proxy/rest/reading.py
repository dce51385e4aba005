"""A request's body to its struct.

The body is parsed by orjson, and converted by `msgspec`, which knows the types. A number may be quoted, as
programs without 64-bit integers send it. A null is as if the field were left out: many clients send all of
their fields.

Rows of plain values and vectors, the bulk of what is sent, are read by `msgspec` alone
(`entity_bodies.FlatRows`), in three quarters of the time. A body that is not of that form is read as any
other, so both ways give one answer.

Parsers keep the interpreter's lock: a quarter of a second for a body of 24 MB. So the rows of large bodies
are read in pieces, between which the event loop can run. Finding where each row ends is thirty times as fast.
No endpoint accepts a body that cannot be read in short pieces, such as a row of a million members: it is
refused before it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
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
_ITEM_CHECKED_BYTES = 1 << 20
_ITEM_MAX_BYTES = 16 << 20
"""One row: 64 texts of 64 kB are four megabytes."""
_ITEM_NUMBERS_MAX = 2_000_000
_MEMBERS_MAX = 100_000
"""Members of one row, or of one object that is large: a JSON value of 64 kB has ten thousand."""
_BRACKETS_MAX = 8_000_000
"""Rows, vectors and what is in them: each takes an object of 64 bytes while the body is read."""
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_NULLS_MAX = 4


def parsed(body: bytes, kind: type[Body]) -> dict[str, Any]:
    """Return the JSON object of a body; no body at all is an empty one. Raises `BadFormat`."""
    if not body.strip():
        return {}
    try:
        value = _loaded(body, kind)
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
    members = _members(body, Rows)
    rows = _items(bytes(members["data"])) if "data" in members else []
    found = _FLAT_BODY(msgspec.json.encode({**members, "data": []}))
    found.data = [row for piece in _pieces(rows, len(body)) for row in _FLAT_ROWS(_checked(piece))]
    return found


def _loaded(body: bytes, kind: type[Body]) -> Any:
    """As ``orjson.loads``, in pieces if the body is large. Raises `orjson.JSONDecodeError`, `BadFormat`."""
    if len(body) < _LARGE_BYTES:
        return orjson.loads(body)
    try:
        return {name: _member(bytes(value)) for name, value in _members(body, kind).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFormat(str(error)[:_TEXT_MAX_CHARS]) from None


def _members(body: bytes, kind: type[Body]) -> dict[str, msgspec.Raw]:
    """Return the members of a large body that are the kind's; another one is only found if it is null.

    Raises `BadFormat`, and `msgspec.DecodeError` for what is no object.
    """
    nulls: tuple[str, ...] = ()
    while True:
        try:
            found = _raw_decoder(kind, nulls)(body)
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.search(str(error))
            if unknown is None:
                raise
            name = unknown[1]
            is_null = re.search(rb'"' + re.escape(name.encode()) + rb'"\s*:\s*null', body)
            if is_null is None or len(nulls) == _NULLS_MAX:
                raise BadFormat(str(error)[:_TEXT_MAX_CHARS]) from None
            nulls += (name,)
        else:
            return {
                field.encode_name: value
                for field in structs.fields(found)
                if memoryview(value := getattr(found, field.name)).nbytes and field.encode_name not in nulls
            }


@lru_cache(maxsize=256)
def _raw_decoder(kind: type[Body], nulls: tuple[str, ...]) -> Callable[[bytes], msgspec.Struct]:
    """Return what finds the members of a body. ``nulls``: further names that it may have."""
    names = {field.name: field.encode_name for field in structs.fields(kind)}
    names |= {f"null_{number}": name for number, name in enumerate(nulls)}
    raw = msgspec.defstruct(
        f"Raw{kind.__name__}",
        [(name, msgspec.Raw, msgspec.Raw(b"")) for name in names],
        rename=names,
        forbid_unknown_fields=True,
    )
    return msgspec.json.Decoder(raw).decode


def _member(text: bytes) -> Any:
    """Return a value, read in pieces if it is large."""
    if len(text) >= _LARGE_BYTES and text.startswith(b"["):
        if text.find(b"[", 1) < 0 and b"{" not in text and b'"' not in text:
            return _numbers(text[1:-1])
        return [item for piece in _pieces(_items(text), len(text)) for item in orjson.loads(_checked(piece))]
    if len(text) >= _LARGE_BYTES and text.startswith(b"{"):
        _check_members(text)
        return {name: _member(bytes(value)) for name, value in _MEMBERS(text).items()}
    return orjson.loads(text)


def _numbers(text: bytes) -> list[Any]:
    """Return the values of a list that has nothing in it with a comma."""
    found: list[Any] = []
    begin = 0
    while begin < len(text):
        end = text.find(b",", begin + _PIECE_BYTES)
        end = len(text) if end < 0 else end
        found += orjson.loads(b"[%b]" % text[begin:end])
        begin = end + 1
    return found


def _items(text: bytes) -> list[msgspec.Raw]:
    """Return the items of a list. Raises `BadFormat` if it has too many."""
    if text.count(b"{") + text.count(b"[") + text.count(b'"') // 4 > _BRACKETS_MAX:
        raise BadFormat(f"the body has more than {_BRACKETS_MAX} values: send fewer rows in one request")
    return _ITEMS(text)


def _checked(piece: bytes) -> bytes:
    """Return a piece that may be one row. Raises `BadFormat` if the row is larger than any can be."""
    if len(piece) > _ITEM_CHECKED_BYTES:
        if len(piece) > _ITEM_MAX_BYTES or piece.count(b",") > _ITEM_NUMBERS_MAX:
            raise BadFormat(f"a row or vector of the body has {len(piece)} bytes: no row can be that large")
        _check_members(piece)
    return piece


def _check_members(text: bytes) -> None:
    if text.count(b'":') > _MEMBERS_MAX:
        raise BadFormat(f"an object in the body has more than {_MEMBERS_MAX} members")


def _pieces(items: Sequence[msgspec.Raw], size_bytes: int) -> Iterator[bytes]:
    """Yield JSON arrays of some of the items, in order. ``size_bytes``: about that of all items."""
    count = max(1, len(items) * _PIECE_BYTES // size_bytes)
    for begin in range(0, len(items), count):
        some = items[begin : begin + count]
        piece = b"[%b]" % b",".join(some)
        if len(piece) > _ITEM_CHECKED_BYTES and len(some) > 1:  # larger ones than on average
            yield from _pieces(some, len(piece))
        else:
            yield piece


def _converted(body: bytes, kind: type[B]) -> B:
    sent = parsed(body, kind)
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
