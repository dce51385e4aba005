"""Literals in all their spellings, and templates in their place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from filter_oracle import STEADY
from filter_schemas import DYNAMIC, PLAIN
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidFilter
from elanus.core.quoted import unquoted
from elanus.expr import compile_filter, literals


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("12", 12), ("0x1F", 31), ("0Xff", 255), ("0b101", 5), ("017", 15), ("0o17", 15), ("00", 0)],
)
def test_integers(text: str, value: int) -> None:
    assert literals.integer(text) == value
    assert compile_filter(f"id == {text}", PLAIN).explain() == f"id == {value}"
    assert compile_filter(f"id in [{text}, -{text}]", PLAIN).explain().startswith(f"id in [{value}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("0x1.8p1", 3.0),
        ("0x1p-1", 0.5),
    ],
)
def test_floats(text: str, value: float) -> None:
    assert compile_filter(f"price == {text}", PLAIN).explain() == f"price == {value}"
    assert compile_filter(f"price in [{text}]", PLAIN).explain() == f"price in [{value}]"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ('"it\'s"', "it's"),
        (r"'it\'s'", "it's"),
        (r'"say \"hi\""', 'say "hi"'),
        (r'"tab\tnewline\nbell\a"', "tab\tnewline\nbell\a"),
        (r'"\101\x41\u0041\U00000041"', "AAAA"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"back\\slash"', "back\\slash"),
        (r'"50\% \_ \d"', r"50\% \_ \d"),
        ('"é 中文"', "é 中文"),
    ],
)  # fmt: skip
def test_strings(text: str, value: str) -> None:
    assert unquoted(text) == value
    row = {"color": pa.array([value])}
    assert compile_filter(f"color == {text}", PLAIN).evaluate(row, 1).all()
    assert compile_filter(f"color in [{text}, 'x']", PLAIN).evaluate(row, 1).all()


@pytest.mark.parametrize("text", [r'"\ud83d"', r"['\ud83d']", "[08]", "08", "9" * 5000])
def test_a_literal_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidFilter, match="invalid literal") as caught:
        compile_filter(f"meta in {text}" if text[0] == "[" else f"meta == {text}", PLAIN)
    assert caught.value.position == 8


_items = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@STEADY
@given(st.lists(_items))
def test_a_list_as_python_prints_it_is_read_back(items: list[Any]) -> None:
    read = literals.literal_list(repr(items))
    assert [(type(item), item) for item in read] == [(type(item), item) for item in items]


@STEADY
@given(st.lists(_items, min_size=1), st.data())
def test_positions_in_a_list(items: list[Any], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(items) - 1))
    text = repr(items)
    position = literals.element_position(text, index)
    assert text[position:].startswith(repr(items[index]))


def test_a_list_of_a_hundred_thousand_keys() -> None:
    keys = list(range(0, 700_000, 7))
    bound = compile_filter(f"id in {keys}", PLAIN)
    assert bound.primary_keys() == pa.array(keys)
    assert bound.evaluate({"id": pa.array([7, 8])}, 2).tolist() == [True, False]


VALUES: dict[str, Any] = {
    "low": 1,
    "high": 5,
    "ids": [3, 1],
    "word": "a%",
    "yes": True,
    "half": 0.5,
    "none": [],
}


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("id == {low}", "id == 1"),
        ("{low} < id <= { high }", "(id > 1 and id <= 5)"),
        ("id in {ids}", "id in [3, 1]"),
        ("id not in {none}", "id not in []"),
        ("id in [{low}, {high} * 2]", "id in [1, 10]"),
        ("color like {word}", 'color like "a%"'),
        ("flag == {yes}", "flag == true"),
        ("price * {half} > {low}", "(price * 0.5) > 1"),
        ('json_contains_any(meta["l"], {ids})', 'json_contains_any(meta["l"], [3, 1])'),
        ('json_contains(meta["l"], {word})', 'json_contains_any(meta["l"], ["a%"])'),
        ("meta['a'] == {ids}", 'meta["a"] in [[3, 1]]'),
    ],
)
def test_templates_are_replaced_by_values(text: str, explained: str) -> None:
    assert compile_filter(text, DYNAMIC, VALUES).explain() == explained


@pytest.mark.parametrize(
    ("text", "what", "position"),
    [
        ("id == {nothing}", "the value of expression template variable name {nothing} is not found", 6),
        ("id < {word}", 'cannot cast value to Int64, value: string_val:"a%"', 0),
        ("id < {ids}", "cannot cast value to Int64, value: array_val:[3, 1]", 0),
        ("{word} == color and id == {word}", "cannot cast value to Int64", 20),
        ("id in {low}", "the value of term expression template variable {low} is not array", 6),
        ("color in {ids}", "cannot cast value to VarChar, value: int64_val:3", 9),
        ("{low} < id < {k}", "the upper value of expression template variable name {k} is not found", 13),
        ("{k} > id > {low}", "the upper value of expression template variable name {k} is not found", 0),
        ("{k} <= id < {high}", "the lower value of expression template variable name {k} is not found", 0),
        ("{high} < id < {low}", "invalid range: lowerbound is greater than upperbound", 0),
        ("color =~ {low}", "the value of regex expression template variable {low} is not string", 9),
        ("color !~ {open}", "invalid regex pattern: (: missing closing )", 9),
        ("id << {wide} == 1", "shift amount must be in range [0, 64)", 6),
        ("id < {half}", "cannot cast value to Int64, value: float_val:0.5", 0),
        ("{low} < {high}", "placeholder was not supported between two constants with operator: <", 0),
        ("exists {word}", "exists operations are only supported on single fields now", 7),
        ("id == {bad}", "the value of expression template variable {bad} has type dict", 6),
        ("color like {low}", "the value of like expression template variable {low} is not string", 11),
    ],
)
def test_templates_that_do_not_fit_are_refused(text: str, what: str, position: int) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(text, PLAIN, {**VALUES, "bad": {"a": 1}, "open": "(", "wide": 64})
    assert f"error: {what}" in caught.value.message
    assert caught.value.position == position


def test_a_template_value_is_data_and_not_text_of_the_filter() -> None:
    bound = compile_filter("color == {word}", PLAIN, {"word": '" or id > 0 or color == "'})
    assert bound.evaluate({"color": pa.array(['" or id > 0 or color == "', "x"])}, 2).tolist() == [
        True,
        False,
    ]
