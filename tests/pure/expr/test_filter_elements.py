"""Conditions on the elements of struct arrays: what they are true of, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidFilter
from elanus.core.ids import FieldID
from elanus.core.lookup import Found, Lookup
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.expr import compile_filter, indexed
from elanus.expr.key_range import shape
from elanus.index import ScalarIndex, build, resolve_field_index

SECONDS = [[1, 2, 3], [], None, [2], [5, 5]]
TITLES = [["a", "b", "ab"], [], None, ["c"], ["a", "a"]]
RATINGS = [[4, 5], [], None, [1], [5, 2, 5]]


def _array(number: int, name: str, element: DataType, **more: Any) -> FieldSchema:
    return FieldSchema(FieldID(number), name, DataType.ARRAY, element_type=element, nullable=True, **more)


SCHEMA = CollectionSchema(
    "films",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        _array(102, "clips[seconds]", DataType.INT32, max_capacity=8),
        _array(103, "clips[title]", DataType.VARCHAR, max_capacity=8, max_length=16),
        FieldSchema(
            FieldID(104),
            "clips[v]",
            DataType.ARRAY_OF_VECTOR,
            element_type=DataType.FLOAT_VECTOR,
            dim=2,
            max_capacity=8,
            nullable=True,
        ),
    ),
    structs=(StructSchema(FieldID(101), "clips", nullable=True),),
)
PLAIN = CollectionSchema("films", (SCHEMA.fields[0], _array(106, "ratings", DataType.INT8, max_capacity=8)))

COLUMNS = {
    "id": pa.array(range(5)),
    "clips[seconds]": pa.array(SECONDS, SCHEMA.field("clips[seconds]").arrow_type),
    "clips[title]": pa.array(TITLES, SCHEMA.field("clips[title]").arrow_type),
}


def rows(text: str, **values: object) -> list[int]:
    chosen = compile_filter(text, SCHEMA, values)
    again = compile_filter(chosen.explain(), SCHEMA)
    assert shape(again.predicate) == shape(chosen.predicate), chosen.explain()
    found: list[int] = chosen.evaluate(COLUMNS, 5).nonzero()[0].tolist()
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("match_any(clips, $[seconds] == 2)", [0, 3]),
        ("MATCH_ALL(clips, $[seconds] > 1)", [1, 3, 4]),
        ("match_least(clips, $[seconds] > 1, threshold=2)", [0, 4]),
        ("match_least(clips, $[seconds] > 1, 2)", [0, 4]),
        ("Match_Most(clips, $[seconds] > 1, threshold=0)", [1]),
        ("match_exact(clips, $[seconds] > 1, threshold=1)", [3]),
        ("match_exact(clips, $[seconds] > 1, threshold=0)", [1]),
        ("not match_any(clips, $[seconds] == 2)", [1, 4]),
        ("element_filter(clips, $[seconds] == 2)", [0, 3]),
        ("id > 0 and element_filter(clips, $[seconds] == 2)", [3]),
        ('match_any(clips, $[seconds] < 3 and $[title] like "a%")', [0]),
        ('match_any(clips, $[seconds] == 3 && $[title] == "a")', []),
        ('match_any(clips, not ($[title] in ["a", "b"]) || $[seconds] * 2 == 10)', [0, 3, 4]),
        ("match_any(clips, 1 < $[seconds] <= 2)", [0, 3]),
        ("match_any(clips, 1 == 1)", [0, 3, 4]),
        ("id == 1 or match_any(clips, $[ seconds ] == 5)", [1, 4]),
        ("match_any(clips, 10 / ($[seconds] - 2) > 9)", [0]),  # a divisor of 0 is unknown
    ],
)
def test_rows_are_found_by_their_elements(text: str, found: Sequence[int]) -> None:
    assert rows(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("match_any(ratings, $ == 5)", [0, 4]),
        ("MATCH_ALL(ratings, $>=4)", [0, 1]),
        ("match_least(ratings, $ in [5, 2], threshold=3)", [4]),
        ("match_exact(ratings, $ > 1 and $ < 5, threshold=1)", [0, 4]),
        ("match_most(ratings, 1 < $ <= 5, 0)", [1, 3]),
        ("not match_any(ratings, $ % 2 == 0)", [1, 3]),
        ("id > 0 and match_any(ratings, $ == {r})", [4]),
    ],
)
def test_an_element_of_a_plain_array_is_the_value_itself(text: str, found: Sequence[int]) -> None:
    columns = {"id": COLUMNS["id"], "ratings": pa.array(RATINGS, PLAIN.field("ratings").arrow_type)}
    chosen = compile_filter(text, PLAIN, {"r": 5})
    again = compile_filter(chosen.explain(), PLAIN)
    assert shape(again.predicate) == shape(chosen.predicate), chosen.explain()
    assert chosen.evaluate(columns, 5).nonzero()[0].tolist() == found
    assert "ratings" in chosen.field_names
    built = build(
        resolve_field_index({"index_type": "INVERTED"}, PLAIN.field("ratings")), columns["ratings"], 1
    )
    assert isinstance(built, ScalarIndex)
    assert chosen.evaluate(columns, 5, {("ratings", ()): built}).nonzero()[0].tolist() == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("match_any(ratings, $[stars] == 5)", "ratings is no struct array: its elements have no field stars"),
        (
            "match_any(ratings, id == 5)",
            r"field id cannot be used .* of ratings: .*element is written \$",
        ),
        ("match_any(ratings, $ == 'a')", "comparisons between Int8 and VarChar are not supported"),
        ("match_any(id, $ == 5)", "struct array field id not exist"),
        ("element_filter(ratings, $ == 5)", "struct array field ratings not exist"),
        ("$ == 5", r"\$ can only be used inside element_filter or a MATCH function"),
    ],
)
def test_what_is_refused_of_a_plain_array(text: str, why: str) -> None:
    with pytest.raises(InvalidFilter, match=why):
        compile_filter(text, PLAIN)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_struct_array_has_a_length_and_is_null_or_not(*, dynamic: bool) -> None:
    meta = FieldSchema(FieldID(105), "$meta", DataType.JSON, is_dynamic=True)
    of = replace(SCHEMA, fields=(*SCHEMA.fields, meta), enable_dynamic=True) if dynamic else SCHEMA
    for text, found in (
        ("clips is null", [2]),
        ("clips is not null", [0, 1, 3, 4]),
        ("array_length(clips) == 1", [3]),
        ("not array_length(clips) > 0", [1]),
    ):
        assert compile_filter(text, of).evaluate(COLUMNS, 5).nonzero()[0].tolist() == found
    for text in ("clips == 1", "clips > 'a'", "array_contains(clips, 1)", "clips in [1]", "id == clips"):
        with pytest.raises(InvalidFilter, match="struct array field clips cannot be used as a value"):
            compile_filter(text, of)
    with pytest.raises(InvalidFilter, match=r'field clips\["nowhere"\]\[0\] not exist'):
        compile_filter('clips["nowhere"][0] == 1', of)


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [
        ("array_contains(clips[title], 'a')", "array_contains(clips['title'], 'a')"),
        ("array_contains_any(clips[ seconds ], [1, 5])", "array_contains_any(clips['seconds'], [1, 5])"),
        ("array_length(clips[title]) == 2", "array_length(clips['title']) == 2"),
        ("clips[0][seconds] == 5", "clips['seconds'][0] == 5"),
        ("1 < clips[1][seconds] <= 5", "1 < clips['seconds'][1] <= 5"),
        ("clips[2][title] like 'a%'", "clips['title'][2] like 'a%'"),
    ],
)
def test_a_field_of_a_struct_array_may_be_named_without_quotes(bare: str, quoted: str) -> None:
    assert rows(bare) == rows(quoted) != []


def test_other_names_in_brackets_have_quotes() -> None:
    for text in ("clips[0][0][title] == 1", "clips['title'][seconds] == 1", "id[title] == 1", "x[y] == 1"):
        with pytest.raises(InvalidFilter, match=r"an index \(0, 1, …\) or a quoted key is due"):
            compile_filter(text, SCHEMA)
    with pytest.raises(InvalidFilter, match=r"field clips\[0\]\[nowhere\] not exist"):
        compile_filter("clips[0][nowhere] == 1", SCHEMA)


def test_values_may_come_from_templates() -> None:
    chosen = compile_filter(
        "match_least(clips, $[seconds] in {s}, threshold={n})", SCHEMA, {"s": [5], "n": 2}
    )
    assert chosen.evaluate(COLUMNS, 5).nonzero()[0].tolist() == [4]


def test_all_conditions_hold_of_one_element() -> None:
    """Row 0 has an element of 3 seconds, and one with the title b, but none with both."""
    assert rows('match_any(clips, $[seconds] == 3) and match_any(clips, $[title] == "b")') == [0]
    assert rows('match_any(clips, $[seconds] == 3 and $[title] == "b")') == []


def test_an_element_filter_chooses_elements() -> None:
    chosen = compile_filter("id < 4 and element_filter(clips, $[seconds] > 1)", SCHEMA)
    assert chosen.restricts_elements("clips[v]")
    assert not chosen.restricts_elements("other[v]")
    assert not compile_filter("match_any(clips, $[seconds] > 1)", SCHEMA).restricts_elements("clips[v]")
    flags = chosen.chosen_elements(COLUMNS, 5).tolist()
    assert flags == [False, True, True, True, True, True]
    assert chosen.field_names == {"id", "clips[seconds]"}


def test_a_selection_of_rows_is_enough() -> None:
    """As a filter of keys is evaluated: on columns taken for a few rows."""
    chosen = compile_filter("match_all(clips, $[seconds] == 5)", SCHEMA)
    few = {name: column.take(pa.array([4, 0, 2])) for name, column in COLUMNS.items()}
    assert chosen.evaluate(few, 3).tolist() == [True, False, False]


class _Asked:
    """An index of arrays that counts its answers."""

    rows_share_max = 1.0
    has_bits = False

    def __init__(self, index: ScalarIndex) -> None:
        self._index = index
        self.title, self.estimate, self.found = index.title, index.estimate, 0
        self.finds_quickly = index.finds_quickly

    def find(self, lookup: Lookup) -> Found | None:
        self.found += 1
        return self._index.find(lookup)


@pytest.mark.parametrize("kind", ["INVERTED", "STL_SORT", "BITMAP"])
@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("match_any(clips, $[seconds] == 77)", True),
        ("element_filter(clips, $[seconds] in [77, 78] and $[title] > 't')", True),
        ("match_least(clips, $[title] > 't' and $[seconds] == 77, threshold=2)", True),
        ("match_exact(clips, $[seconds] == 77, threshold=2)", True),
        ("match_exact(clips, $[seconds] == 77, threshold=0)", False),
        ("match_most(clips, $[seconds] == 77, threshold=1)", False),
        ("match_all(clips, $[seconds] == 77)", False),
        ("not match_any(clips, $[seconds] == 77)", False),
        ("match_any(clips, $[seconds] == 77 or $[title] == 't1')", False),
        ("match_any(clips, $[seconds] != 77)", False),
        ("match_any(clips, $[seconds] > 77)", False),
    ],
)
def test_an_index_finds_rows_with_an_element(
    kind: str, text: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index changes no answer, and is asked where few rows have such an element."""
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", -1)
    many = 400
    seconds = [[n, (n * 7) % 400][: n % 4] for n in range(many)]
    titles = [[f"t{v % 3}" for v in of] for of in seconds]
    columns = {
        "id": pa.array(range(many)),
        "clips[seconds]": pa.array(seconds, SCHEMA.field("clips[seconds]").arrow_type),
        "clips[title]": pa.array(titles, SCHEMA.field("clips[title]").arrow_type),
    }
    field = SCHEMA.field("clips[seconds]")
    built = build(resolve_field_index({"index_type": kind}, field), columns[field.name], 1)
    assert isinstance(built, ScalarIndex)
    index = _Asked(built)
    chosen = compile_filter(text, SCHEMA)
    scanned = chosen.evaluate(columns, many)
    assert np.array_equal(chosen.evaluate(columns, many, {(field.name, ()): index}), scanned)
    assert (index.found > 0) == asked


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("match_any(films, $[seconds] == 1)", "struct array field films not exist"),
        ("match_any(id, $[seconds] == 1)", "struct array field id not exist"),
        ("match_any(clips, $[minutes] == 1)", "field minutes not exist in struct array field clips"),
        ("match_any(clips, $ == 1)", "an element of the struct array clips is no single value"),
        ("match_any(clips, $[v] == 1)", "vector field v of clips cannot be used"),
        ("match_any(clips, id == 1)", "field id cannot be used inside a condition on elements"),
        ("match_any(clips, $[seconds])", "predicate is not a boolean expression"),
        ("match_any(clips)", "takes a struct array and a condition, but got 1 arguments"),
        ("match_any(clips, $[seconds] == 1, threshold=1)", "match_any takes no threshold"),
        ("match_least(clips, $[seconds] == 1)", "match_least needs a threshold"),
        ("match_least(clips, $[seconds] == 1, threshold=0)", "integer of at least 1: threshold=0"),
        ("match_most(clips, $[seconds] == 1, threshold=-1)", "integer of at least 0"),
        ("match_most(clips, $[seconds] == 1, threshold=1.5)", "integer of at least 0"),
        ("match_exact(clips, $[seconds] == 1, count=1)", "match_exact has no option count"),
        ("match_any(clips, match_any(clips, $[seconds] == 1))", "function match_any cannot be used"),
        ("match_any(clips, array_length($[title]) == 1)", "array_length"),
        ("match_any(clips, $[title] is null)", "null tests are not supported on fields of elements"),
        ("match_any(clips, random_sample(0.5))", "function random_sample cannot be used"),
        ("$[seconds] == 1", r"\$\[seconds\] can only be used inside element_filter or a MATCH function"),
        ("not element_filter(clips, $[seconds] == 1)", "cannot be used in unary expression"),
        ("id == 1 or element_filter(clips, $[seconds] == 1)", "cannot be used in logical or expression"),
        ("element_filter(clips, $[seconds] == 1) and id == 1", "can only be the last expression"),
        (
            "element_filter(clips, $[seconds] == 1) and element_filter(clips, $[seconds] == 2)",
            "can only be the last expression",
        ),
        ('clips["v"] == 1', "not supported"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFilter, match=why):
        compile_filter(text, SCHEMA)
