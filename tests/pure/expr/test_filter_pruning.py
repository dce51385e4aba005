"""Pruning: what bounds rule out, and what they cannot."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from filter_schemas import DYNAMIC

from elanus.core.errors import Internal
from elanus.expr import compile_filter

STATS = {
    "id": (10, 20),
    "tiny": (5, 5),
    "price": (-1.5, 2.5),
    "color": ("green", "red"),
    "flag": (True, True),
}

RULED_OUT = [
    "id < 10",
    "id > 20",
    "id == 9",
    "id == 15 and id == 21",
    "20 < id",
    "tiny != 5",
    "not (tiny == 5)",
    "tiny not in [4, 5]",
    "id in [1, 2, 30]",
    "id in []",
    "25 < id <= 30",
    "id < tiny",
    "tiny >= id",
    "price == 3",
    "price in [3, -2]",
    "color == 'blue'",
    "color > 'red'",
    "color in ['a', 'z']",
    "color like 'blue%'",
    "color like 's%'",
    "flag == false",
    "not (id >= 10)",
    "id < 10 or price > 3",
    "id < 10 and anything == 1",
    "1 == 2",
]
MAY_MATCH = [
    "",
    "id == 10",
    "id == 20",
    "id >= 20",
    "id != 10",
    "tiny == 5",
    "tiny in [4, 5]",
    "tiny not in [4, 6]",
    "id not in []",
    "id not in [10]",
    "id in [1, 15]",
    "id > tiny",
    "price == 2.5",
    "color == 'orange'",
    "color like 'gr%'",
    "color like 're%'",
    "color like 'h%'",
    "color like '%e%'",
    "not (color like 'g%')",
    "id < 10 or id == 15",
    "id % 2 == 7",
    "id + 1 > 1000",
    "id is null",
    "id is not null",
    "score == 1",
    "meta['a'] == 1",
    "anything == 1",
    "json_contains(meta['l'], 1)",
    "score > id",
]


@pytest.mark.parametrize("text", RULED_OUT)
def test_bounds_rule_out(text: str) -> None:
    assert not compile_filter(text, DYNAMIC).may_match(STATS)


@pytest.mark.parametrize("text", MAY_MATCH)
def test_bounds_cannot_rule_out(text: str) -> None:
    assert compile_filter(text, DYNAMIC).may_match(STATS)


def test_bounds_that_are_not_known_rule_out_nothing() -> None:
    for stats in ({}, {"id": (None, None)}, {"id": (None, 20)}, {"id": (math.nan, math.nan)}):
        assert compile_filter("id < 10 and id > 30", DYNAMIC).may_match(stats)


def test_a_pattern_that_all_rows_begin_with_leaves_none_for_its_negation() -> None:
    bound = compile_filter("not (color like 're%')", DYNAMIC)
    assert not bound.may_match({"color": ("rea", "red")})
    assert bound.may_match({"color": ("rea", "rum")})


def test_a_rounded_literal_is_compared_with_rounded_bounds() -> None:
    stored = pa.array([0.1], pa.float32())[0].as_py()
    assert compile_filter("score == 0.1", DYNAMIC).may_match({"score": (stored, stored)})


def test_a_column_that_is_missing_or_too_short_is_an_internal_error() -> None:
    bound = compile_filter("id > 1 and tiny > 1", DYNAMIC)
    with pytest.raises(Internal, match="needs column tiny"):
        bound.evaluate({"id": pa.array([5])}, 1)
    with pytest.raises(Internal, match="column tiny has 2 rows where the filter expects 1"):
        bound.evaluate({"id": pa.array([5]), "tiny": pa.array([5, 6], pa.int8())}, 1)
