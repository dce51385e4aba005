"""Numbers at which kernels and comparisons part: signed zeros, NaN, infinities, the ends of 64 bits."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from fuzz_rows import SCHEMA

from elanus.expr import compile_filter

LARGE = -(2**63)
COLUMNS = {
    "large": pa.array([LARGE, -1, 0, 2**63 - 1, None]),
    "price": pa.array([-0.0, math.nan, math.inf, -1.5, None]),
    "score": pa.array([0.0, math.nan, -math.inf, 0.5, None], pa.float32()),
    "doubles": pa.array([[-0.0], [math.nan, 0.0], [], [1.0], None], pa.list_(pa.float64())),
    "meta": pa.array(['{"a": -0.0}', '{"a": 0}', '{"a": [-0.0, 1]}', "{}", None]),
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # zeros are equal, however they are looked up
        ("price == 0", [0]),
        ("price in [0]", [0]),
        ("price in [-0.0, 7]", [0]),
        ("price not in [0.0]", [1, 2, 3]),
        ("score in [-0.0]", [0]),
        ("array_contains(doubles, 0)", [0, 1]),
        ("array_contains_all(doubles, [0.0, -0.0])", [0, 1]),
        ("doubles == [0.0]", [0]),
        ("meta['a'] in [0]", [0, 1]),
        ("json_contains(meta['a'], 0)", [2]),
        # NaN is a value that is neither less nor greater than any, nor equal
        ("price != 1", [0, 1, 2, 3]),
        ("price < 1", [0, 3]),
        ("price >= 1", [2]),
        ("not (price < 1)", [1, 2]),
        ("not (price >= 1)", [0, 1, 3]),
        ("not (1 > price or price >= 2)", [1]),
        ("not (price < score)", [0, 1, 2]),
        ("price is not null", [0, 1, 2, 3]),
        ("price in {nan}", []),
        ("meta['a'] == {number}", []),
        ("meta['a'] != {number}", [0, 1]),
        # infinities
        ("price > 1e308", [2]),
        ("price == 1e999", [2]),
        ("score < -1e300", []),
        # 64 bits
        ("large == -9223372036854775808", [0]),
        ("large / -1 == -9223372036854775808", [0]),
        ("large % -1 == 0", [0, 1, 2, 3]),
        ("-large < 0", [0, 3]),
        ("large + 1 < 0", [0, 3]),
        ("large << 63 < 0", [1, 3]),
        ("large >> 63 == -1", [0, 1]),
        ("~large == -1", [2]),
    ],
)
def test_a_filter_finds(text: str, found: list[int]) -> None:
    values = {"nan": [math.nan, 7.0], "number": math.nan}
    bound = compile_filter(text, SCHEMA, values)
    assert bound.evaluate(COLUMNS, 5).nonzero()[0].tolist() == found


def test_bounds_that_leave_out_nan_do_not_rule_it_out() -> None:
    for text in ("price != 5", "price not in [5]", "not (price < 6)", "not (price > 4)"):
        assert compile_filter(text, SCHEMA).may_match({"price": (5.0, 5.0)}), text
    assert not compile_filter("large != 5", SCHEMA).may_match({"large": (5, 5)})
    assert not compile_filter("price > 5", SCHEMA).may_match({"price": (5.0, 5.0)})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x7FFFFFFFFFFFFFFF", 2**63 - 1),
        ("-0x8000000000000000", LARGE),
        ("0b11", 3),
        ("017", 15),
        ("1 - 2 - 3", -4),
        ("7 / 2 * 2", 6),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 & 3 | 8 ^ 1", 11),
        ("1 << 2 + 1", 8),
        ("~5", -6),
        ("-9 >> 1", -5),
    ],
)
def test_constants_are_computed(text: str, value: int) -> None:
    assert compile_filter(f"large == {text}", SCHEMA).explain() == f"large == {value}"


def test_bounds_are_compared_as_values_are() -> None:
    whole, near = {"large": pa.array([2**53 + 1])}, {"price": pa.array([2.0**53])}
    stats = {"large": (2**53 + 1, 2**53 + 1), "price": (2.0**53, 2.0**53)}
    for text in ("large == price", "large <= price", "price >= large"):
        bound = compile_filter(text, SCHEMA)
        assert bound.evaluate(whole | near, 1).tolist() == [True]
        assert bound.may_match(stats), text
    assert not compile_filter("large < price", SCHEMA).may_match(stats)


@pytest.mark.parametrize(
    "text",
    [
        "meta['a'] in [{huge}]",
        "json_contains_any(meta['a'], [{huge}])",
        "array_contains_any(doubles, [{huge}])",
        "doubles == [{huge}]",
    ],
)
def test_an_integer_beyond_all_doubles_is_sought_in_vain(text: str) -> None:
    bound = compile_filter(text.format(huge="7" * 400), SCHEMA)
    assert not bound.evaluate(COLUMNS, 5).any()
