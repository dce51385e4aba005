"""Which values of a partition key a filter allows, and what partition key isolation asks of a filter."""

from __future__ import annotations

import pytest
from filter_schemas import PLAIN

from elanus.core.errors import InvalidFilter
from elanus.expr import compile_filter
from elanus.expr.partition_key import check_isolated


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('color == "red"', ["red"]),
        ('"red" == color', ["red"]),
        ('color in ["red", "blue"]', ["blue", "red"]),
        ('color == "red" and price > 3', ["red"]),
        ('color == "red" and color in ["red", "blue"]', ["red"]),
        ('color == "red" and color == "blue"', []),
        ('color == "red" or color == "blue"', ["blue", "red"]),
        ('(color == "red" and price > 1) or (color == "blue" and price < 1)', ["blue", "red"]),
        ('not (color != "red")', ["red"]),
        ("color in []", []),
        ('color == "red" or price > 3', None),
        ('color != "red"', None),
        ('color not in ["red"]', None),
        ('color > "red"', None),
        ('name == "red"', None),
        ('color like "r%"', None),
        ("", None),
    ],
)
def test_the_values_that_rows_can_have(text: str, values: list[str] | None) -> None:
    found = compile_filter(text, PLAIN).values_of("color")
    assert (found if found is None else sorted(found.to_pylist())) == values


@pytest.mark.parametrize(
    "text",
    [
        'color == "red"',
        'color == "red" and price > 1',
        '(name == "a" or name == "b") and color == "red"',
    ],
)
def test_one_value_of_the_key_is_isolated(text: str) -> None:
    check_isolated(compile_filter(text, PLAIN).predicate, "color")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "partition key not found in expr"),
        ("price > 1", "partition key not found in expr"),
        ('color in ["red"]', "does not support IN"),
        ('color not in ["red"]', "does not support IN"),
        ('color != "red"', "does not support NotEqual"),
        ('not (color == "red")', "does not support NotEqual"),
        ('color < "red"', "does not support LessThan"),
        ('color <= "red"', "does not support LessEqual"),
        ('color > "red"', "does not support GreaterThan"),
        ('color >= "red"', "does not support GreaterEqual"),
        ('color == "red" or price > 1', "does not support OR"),
    ],
)
def test_other_filters_are_not(text: str, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason):
        check_isolated(compile_filter(text, PLAIN).predicate, "color")
