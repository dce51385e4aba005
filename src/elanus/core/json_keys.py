"""Values inside JSON fields that hits are grouped or ordered by.

A value is read from the documents of the hits alone, wherever they are grouped: there are never many of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.quoted import unquoted
from elanus.core.types import DataType

JsonPath: TypeAlias = tuple[str | int, ...]
"""The keys of objects and the places in arrays that lead to a value."""

_HEAD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STEP = re.compile(r"""\[\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\d{1,18}))\s*\]""")
_ESCAPE = re.compile(r"\\(.)")
_MARK = re.compile(r"""\\.|[\[\],"']""", re.DOTALL)
_TO_ESCAPE = re.compile(r'([\\"])')
_NO_VALUE = object()
PLACE_DIGITS_MAX = 18
"""Longer numbers are no places in an array."""
_BITS = {DataType.INT8: 8, DataType.INT16: 16, DataType.INT32: 32, DataType.INT64: 64}
JSON_KEY_TYPES = {
    DataType.BOOL: pa.bool_(),
    DataType.INT8: pa.int8(),
    DataType.INT16: pa.int16(),
    DataType.INT32: pa.int32(),
    DataType.INT64: pa.int64(),
    DataType.VARCHAR: pa.string(),
}
"""The types that values may be read as, and those of the columns."""


@dataclass(frozen=True, slots=True)
class JsonKey:
    """A value inside the JSON field ``field``.

    ``name``: as the client wrote it. ``data_type``: one of `JSON_KEY_TYPES`; values of another type are null,
    or refused if ``strict``. None: the JSON text of any value.
    """

    name: str
    field: str
    path: JsonPath
    data_type: DataType | None = None
    strict: bool = False


def plain_key(text: str) -> str:
    """The key between the quotes as indexes read it: a backslash is before the character that it means."""
    return _ESCAPE.sub(r"\1", text[1:-1])


def parse_json_path(text: str, key_of: Callable[[str], str] = unquoted) -> tuple[str, JsonPath] | None:
    """Split ``my_json["a"][0]`` into the field and the path; None for a text of another form.

    ``key_of``: reads a key in its quotes, by default as filters do.
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    steps: list[str | int] = []
    place = head.end()
    while step := _STEP.match(text, place):
        quoted, number = step.groups()
        try:
            steps.append(int(number) if quoted is None else key_of(quoted))
        except ValueError:  # half a surrogate pair
            return None
        place = step.end()
    return (head.group(), tuple(steps)) if place == len(text) else None


def split_names(text: str) -> list[str]:
    """Return the names between commas, without those that are blank. A comma in brackets is part of a key,
    and so is a bracket in the key's quotes.

    It looks at each character once, whatever a client sends.
    """
    names, start, is_inside, quote = [], 0, False, ""
    for found in _MARK.finditer(text):
        mark = found.group()
        if quote:
            quote = "" if mark == quote else quote
        elif mark in ("[", "]"):
            is_inside = mark == "["
        elif mark in ('"', "'"):
            quote = mark if is_inside else ""
        elif mark == "," and not is_inside:
            names.append(text[start : found.start()])
            start = found.end()
    return [name.strip() for name in (*names, text[start:]) if name.strip()]


def plainly_spelled(text: str) -> str:
    """Return a path in a form that indexes read as filters do, where they would read this one differently."""
    parsed = parse_json_path(text)
    if parsed is None or parsed == parse_json_path(text, plain_key):
        return text
    head, steps = parsed
    return head + "".join(
        f"[{step}]" if isinstance(step, int) else '["{}"]'.format(_TO_ESCAPE.sub(r"\\\1", step))
        for step in steps
    )


def parse_json_pointer(text: str) -> JsonPath:
    """Return the path of a JSON pointer (RFC 6901), such as ``/a/0``. Raises `InvalidParameter`."""
    if not text.startswith("/"):
        raise InvalidParameter(f"json_path [{text}] is invalid, it should be a JSON pointer such as /a/b")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def place_of(step: str | int) -> int | None:
    """Return the place in an array that a step of a path names; None for a key that names none.

    Numbers that no array reaches name none: some are too long to be read.
    """
    if isinstance(step, int):
        return step
    return int(step) if step.isdecimal() and len(step) <= PLACE_DIGITS_MAX else None


def json_values(column: pa.Array, key: JsonKey) -> pa.Array:
    """Return the value of each document, null if there is none or it is null. shape (n,)

    Raises `InvalidParameter` for a value of another type, if the key is strict.
    """
    found = [None if text is None else _value(_document(text), key) for text in column.to_pylist()]
    return pa.array(found, pa.string() if key.data_type is None else JSON_KEY_TYPES[key.data_type])


def ordered_values(column: pa.Array, path: JsonPath) -> pa.Array:
    """Return the value of each document as a column whose order is that of the values. shape (n,)

    Null if there is none or it is null. Numbers, texts and bools have their own order; if values of several
    kinds, objects or arrays are among them, all are in the order of their JSON texts.
    """
    found = [None if text is None else _at(_document(text), path) for text in column.to_pylist()]
    values = [None if value is _NO_VALUE else value for value in found]
    kinds = {_kind(value) for value in values if value is not None}
    if kinds <= {float, int}:
        return _numbers(values, kinds)
    if kinds in ({str}, {bool}):
        return pa.array(values)
    return pa.array([None if value is None else _text_of(value) for value in values], pa.string())


def _kind(value: Any) -> type:
    return bool if isinstance(value, bool) else type(value)


def _numbers(values: list[Any], kinds: set[type]) -> pa.Array:
    try:
        return pa.array(values, pa.float64() if float in kinds else pa.int64())
    except (pa.ArrowInvalid, OverflowError):  # integers that do not fit
        return pa.array([None if value is None else double_of(value) for value in values], pa.float64())


def double_of(number: float) -> float:
    """Return the nearest double; an infinite one for an integer beyond all doubles."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _document(text: str) -> Any:
    """Return a decoded document. One that is nested too deeply to be read has no values, as in filters: how
    deeply depends on the stack, and was less when it was written."""
    try:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:  # numbers beyond double, NaN
            return json.loads(text)
    except RecursionError:
        return {}


def _text_of(value: Any) -> str | None:
    """Return a value as JSON text, the keys of objects in order; None if it is nested too deeply."""
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except RecursionError:
        return None


def _value(document: Any, key: JsonKey) -> Any:
    value = _at(document, key.path)
    if value is _NO_VALUE or value is None:
        return None
    if key.data_type is None:
        return _text_of(value)
    if _is_of(value, key.data_type):
        return value
    if key.strict:
        raise InvalidParameter(
            f"failed to cast json value to {key.data_type.name}, wrong json data inner type: {key.name} is "
            f"{value!r}"
        )
    return None


def _at(document: Any, path: JsonPath) -> Any:
    """Return the value that a path leads to, `_NO_VALUE` if there is none."""
    for step in path:
        document = _inside(document, step)
    return document


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(step), _NO_VALUE)
    place = place_of(step)
    if isinstance(value, list) and place is not None and place < len(value):
        return value[place]
    return _NO_VALUE


def _is_of(value: Any, data_type: DataType) -> bool:
    if data_type is DataType.BOOL:
        return isinstance(value, bool)
    if data_type is DataType.VARCHAR:
        return isinstance(value, str)
    limit = 1 << (_BITS[data_type] - 1)
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
