"""Text in quotes, as filters and paths into JSON have it: with C's escapes.

A backslash before any other character stays in the text, so that ``like "100\\%"`` reaches the pattern as it
was written.
"""

from __future__ import annotations

import re

_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:([0-7]{{1,3}})|x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|(.))", re.DOTALL)
_ESCAPED = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "?": "?", "/": "/",
}  # fmt: skip


def unquoted(text: str) -> str:
    """The characters between the quotes, escapes resolved. Raises `ValueError` for half a surrogate pair."""
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    decoded = _ESCAPE.sub(_unescape, inner)
    # Characters beyond the basic plane may be written as the two halves of UTF-16.
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16")


def _unescape(match: re.Match[str]) -> str:
    octal, *hexadecimal, letter = match.groups()
    if letter is not None:
        return _ESCAPED.get(letter, "\\" + letter)
    return chr(int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16))
