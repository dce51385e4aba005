"""The text of a filter, and the errors that point into it.

An error says what is wrong, in the reference's words where it has any (clients match on them), then where,
then what to do about it::

    cannot parse expression: prise > 3, error: field prise not exist: invalid parameter
    at position 0: did you mean 'price'?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.core.errors import InvalidFilter

SHOWN_MAX_CHARS = 256
"""Error messages show at most this much of a filter, which may hold megabytes of primary keys."""


class Span(Protocol):
    """Anything that covers the characters ``start`` up to ``end`` of a filter."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Source:
    text: str

    def of(self, span: Span) -> str:
        """The source text of a node, shortened for a message."""
        return shorten(self.text[span.start : span.end])

    def error(self, what: str, position: int, remedy: str = "") -> InvalidFilter:
        """The error that says ``what`` is wrong at a character offset."""
        return _located(f"cannot parse expression: {shorten(self.text)}, error: {what}", position, remedy)

    def not_boolean(self, data_type: str, position: int, remedy: str) -> InvalidFilter:
        """The error for a filter that is a value of some type, not a condition."""
        what = f"predicate is not a boolean expression: {shorten(self.text)}, data type: {data_type}"
        return _located(what, position, remedy)


def _located(what: str, position: int, remedy: str) -> InvalidFilter:
    message = f"{what}: invalid parameter at position {position}"
    return InvalidFilter(f"{message}: {remedy}" if remedy else message, position)


def shorten(text: str) -> str:
    """The text, or its beginning followed by an ellipsis."""
    return text if len(text) <= SHOWN_MAX_CHARS else f"{text[:SHOWN_MAX_CHARS]}…"
