"""Highlights: which words are tagged, and what the fragments around them are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.highlights import Highlighting, fragments, merged
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.text import Highlight, check_highlighted, highlights

ANALYZED = {"enable_analyzer": "true", "analyzer_params": '{"type": "english"}'}
SEVERAL = (
    '{"analyzers": {"default": {"type": "standard"}, "english": {"type": "english"}}, "by_field": "language"}'
)
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=999, params=ANALYZED),
        FieldSchema(
            FieldID(102),
            "other",
            DataType.VARCHAR,
            max_length=999,
            nullable=True,
            params={"enable_analyzer": "true", "multi_analyzer_params": SEVERAL},
        ),
        FieldSchema(FieldID(103), "language", DataType.VARCHAR, max_length=9),
        FieldSchema(FieldID(104), "words", DataType.SPARSE_FLOAT_VECTOR),
    ),
)


def of_text(*texts: str | None, name: str = "text", per_query: int = 0, **given: Any) -> list[list[str]]:
    how = {key: given.pop(key) for key in list(given) if key not in ("searched", "texts")}
    asked = Highlight(Highlighting(**how), **given)
    columns = {name: pa.array(texts, pa.string()), "language": pa.array(["english", "?"][: len(texts)])}
    offsets = np.arange(0, len(texts) + 1, per_query or len(texts))
    return highlights(SCHEMA, asked, offsets, columns)[name]


def test_spans_that_touch_or_overlap_are_one() -> None:
    assert merged([(7, 9), (0, 2), (2, 4), (3, 3), (8, 12)]) == [(0, 4), (7, 12)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, ["<em>aa</em> bb cc <em>aa</em> dd"]),
        ({"size": 3}, ["<em>aa</em> ", "<em>aa</em> "]),
        ({"size": 1}, ["<em>aa</em>", "<em>aa</em>"]),
        ({"size": 5, "offset": 4}, ["<em>aa</em> bb", " cc <em>aa</em>"]),
        ({"size": 9}, ["<em>aa</em> bb cc <em>aa</em>"]),  # a match at the end extends the fragment
        ({"size": 3, "fragments_max": 1}, ["<em>aa</em> "]),
        ({"fragments_max": 0}, []),
        ({"pre_tags": ("1", "2"), "post_tags": ("!",)}, ["1aa! bb cc 2aa! dd"]),
    ],
)
def test_fragments(how: dict[str, Any], expected: list[str]) -> None:
    assert fragments("aa bb cc aa dd", [(0, 2), (9, 11)], Highlighting(**how)) == expected


def test_the_words_of_each_query_are_tagged_in_its_hits() -> None:
    found = of_text(
        "Foxes run", "foxes RUNNING", searched="text", texts=("fox", "runs"), of_search=True, per_query=1
    )
    assert found == [["<em>Foxes</em> run"], ["<em>RUNNING</em>"]]


def test_the_words_of_queries_are_tagged_too() -> None:
    found = of_text(
        "red foxes run", searched="text", texts=("fox",), queries=(("text", "red"), ("text", "x"))
    )
    assert found == [["<em>red</em> <em>foxes</em> run"]]
    assert of_text("nothing here", "", queries=(("text", "fox"),)) == [[], []]


def test_places_are_counted_in_characters() -> None:
    assert of_text("größe Äpfel und Öl 🍏 foxes", queries=(("text", "fox"),), offset=2, size=4) == [
        ["🍏 <em>foxes</em>"]
    ]


def test_each_row_has_its_analyzer_and_null_has_no_fragments() -> None:
    found = of_text("foxes", "foxes", name="other", queries=(("other", "fox"),))
    assert found == [["<em>foxes</em>"], []]
    assert of_text(None, name="other", queries=(("other", "fox"),)) == [[]]
    asked = Highlight(Highlighting(queries=(("other", "a"), ("text", "a"))), "text")
    assert (asked.fields, asked.columns(SCHEMA)) == (("text", "other"), ("text", "other", "language"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", "highlight field not found in schema: nothing"),
        ("language", "needs enable_analyzer"),
        ("words", "needs enable_analyzer"),
    ],
)
def test_fields_that_cannot_be_highlighted(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_highlighted(SCHEMA, name)
