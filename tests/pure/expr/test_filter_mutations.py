"""Damaged filters are refused with a position in them, or mean something: nothing else is ever raised."""

from __future__ import annotations

from random import Random

from fuzz_generator import Generator
from fuzz_rows import SCHEMA

from elanus.core.errors import InvalidFilter
from elanus.expr import compile_filter

DAMAGED = 3000
_PIECES = (
    "(", ")", "[", "]", "{", "}", "'", '"', "\\", ",", ".", "-", "~", "!", "=", "<", ">", "&", "|", "^", "%",
    "*", "$meta", "null", "not ", " in ", " is ", " like ", "=~", "r'", "0x", "1e999", "9" * 30, "true",
    "exists ", "random_sample(0.5)", "{low}", "{list}", "\x00", "\n", "é", "😀", "\ud800", "longs", "meta",
    "[0]", " and ",
)  # fmt: skip
VALUES = {"low": 1, "list": [1, "a", [True]]}


def damaged(random: Random, text: str) -> str:
    for _ in range(random.randrange(1, 4)):
        first, last = sorted((random.randrange(len(text) + 1), random.randrange(len(text) + 1)))
        match random.randrange(4):
            case 0:
                text = text[:first] + random.choice(_PIECES) + text[first:]
            case 1:
                text = text[:first] + text[first + 1 :]
            case 2:
                text = text[:first] + text[last:]
            case _:
                text = text[:last] + text[first:last] + text[last:]
    return text


def test_a_damaged_filter_is_refused_or_means_something() -> None:
    refused = 0
    for seed in range(DAMAGED):
        random = Random(seed)
        text = damaged(random, Generator(random).filter(depth=2).text)
        position = refusal(text)
        refused += position is not None
        assert position is None or 0 <= position <= len(text), text
    assert 0.3 * DAMAGED < refused < 0.98 * DAMAGED


def refusal(text: str) -> int | None:
    """The position at which the filter is refused; None if it is a filter."""
    try:
        compile_filter(text, SCHEMA, VALUES).explain()
    except InvalidFilter as error:
        return error.position
    return None
