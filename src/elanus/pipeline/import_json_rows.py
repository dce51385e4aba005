"""Which row of a JSON list does not decode: the decoder of the whole list names a byte at most."""

from __future__ import annotations

import json
import re

import msgspec

from elanus.pipeline.import_texts import MALFORMED, fault_of

_row = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
"""Finds where a value ends. It takes more than JSON, so what it finds is decoded once more."""
_NO_VALUE = (ValueError, RecursionError)
_SPACE = re.compile(r"[ \t\n\r]*")


def first_malformed(content: bytes) -> tuple[int, str] | None:
    """Return the number of the first row that is no JSON object, from 0, and why ("": it has no end).

    None if there is no such row: the content is no list of rows, or what is between them is wrong. Only for
    an error, since it is slow.
    """
    text = content.decode(errors="surrogateescape")
    at, number = _first_row(text), 0
    while text[at : at + 1] not in ("", "]"):
        row = b""
        try:
            end = _values.raw_decode(text, at)[1]
            row = text[at:end].encode(errors="surrogateescape")
            _row.decode(row)
        except MALFORMED as error:
            return number, fault_of(row, error)
        except _NO_VALUE:
            return number, ""
        at = _next(text, end)
        if text[at : at + 1] != ",":
            break
        at, number = _next(text, at + 1), number + 1
    return None


def _first_row(text: str) -> int:
    """Return where the first row begins, the end of the text if there is no list of rows."""
    at = _next(text, 0)
    if text[at : at + 1] == "{":
        try:
            at = _member(text, at, "rows")
        except _NO_VALUE:
            return len(text)
    return _next(text, at + 1) if text[at : at + 1] == "[" else len(text)


def _member(text: str, at: int, wanted: str) -> int:
    """Return where the value of a member begins, of the object at a position. Raises `ValueError`."""
    while text[at : at + 1] in ("{", ","):
        name, at = _values.raw_decode(text, _next(text, at + 1))
        at = _next(text, _next(text, at) + 1)  # behind the colon
        if name == wanted:
            return at
        at = _next(text, _values.raw_decode(text, at)[1])
    return len(text)


def _next(text: str, at: int) -> int:
    """Return where the next character is that is no space."""
    found = _SPACE.match(text, at)
    assert found is not None, "it matches nothing, too"
    return found.end()
