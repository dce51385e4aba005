"""Error messages for syntax errors: what the parser stopped at, and what to write instead."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from elanus.core.errors import InvalidFilter
from elanus.expr.source import Source, shorten

if TYPE_CHECKING:
    import lark

_OPERATORS = ("in", "like", "is", "and", "or", "not in")
_OPERATOR_DUE = "an operator such as ==, <, in, like, and, or is due"
_OPERAND_DUE = "a field, a value or '(' is due"
_STEPS = {"INTEGER", "STRING", "RAW_STRING", "NAME"}
_STEP_DUE = "an index (0, 1, …) or a quoted key is due"
_FOR_CHARACTERS = {
    "=": "write '==' to compare",
    "`": "put text in double or single quotes",
    "{": "a value passed with the filter is written {name}",
    '"': "the text is not closed by a double quote",
    "'": "the text is not closed by a single quote",
}


def unreadable(source: Source, problem: lark.UnexpectedCharacters) -> InvalidFilter:
    """The error for a character that begins no token of the language."""
    position: int = vars(problem)["pos_in_stream"]  # lark's annotation says that it is always None
    character = source.text[position]
    remedy = _FOR_CHARACTERS.get(character, "field names are made of letters, digits and _; text is quoted")
    return _invalid(source, position, f"unexpected {character!r}: {remedy}")


def misplaced(source: Source, problem: lark.UnexpectedToken) -> InvalidFilter:
    """The error for a word that is not allowed at its position."""
    due = _due(problem.expected or set())
    if problem.token.type == "$END":
        due = "an operator or a closing bracket is due" if due == _OPERATOR_DUE else due
        return _invalid(source, len(source.text), f"the expression ends too early: {due}")
    word, position = str(problem.token), problem.token.start_pos or 0
    if problem.token.type == "NOT":
        remedy = "write 'a not in [..]', or 'not (..)' around a condition"
        return source.error("not can only apply on boolean", position, remedy)
    if problem.token.type == "COMPARE":
        before = source.text[:position]
        due = "write '!=' for inequality" if before.endswith("<") else due
        due = "join further comparisons with 'and'" if due == _OPERATOR_DUE else due
    elif due == _OPERATOR_DUE:
        close = difflib.get_close_matches(word.lower(), _OPERATORS, n=1)
        due = f"did you mean {close[0]!r}?" if close else due
    return _invalid(source, position, f"unexpected {shorten(word)!r}: {due}")


def unquoted(source: Source, position: int) -> InvalidFilter:
    """The error for a word in the brackets of a path into something else than a struct array."""
    word = source.text[position:].partition("]")[0].strip()
    return _invalid(source, position, f"unexpected {shorten(word)!r}: {_STEP_DUE}")


def _due(expected: set[str]) -> str:
    if expected <= _STEPS:
        return _STEP_DUE
    if "NAME" in expected:
        return _OPERAND_DUE
    if expected == {"RSQB"}:
        return "']' is due"
    return _OPERATOR_DUE


def _invalid(source: Source, position: int, remedy: str) -> InvalidFilter:
    return source.error(f"invalid expression: {shorten(source.text)}", position, remedy)
