"""``text_match`` and ``phrase_match``: which rows match, with the analyzers and errors of fields."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidFilter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.expr import ColumnData, compile_filter
from elanus.text import match
from elanus.text.analyzer import Analyzer

TEXTS = [
    "machine learning boosts efficiency",
    "learning machine models",
    "Machines learn; deep machine-learning",
    "machine deep learning",
    None,
    "",
    "the fox",
    "machine x y learning",
]


def schema_of(params: dict[str, str]) -> CollectionSchema:
    fields = (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=99, nullable=True, params=params),
    )
    return CollectionSchema("texts", fields)


MATCHED = {"enable_analyzer": "true", "enable_match": "true", "analyzer_params": '{"type": "english"}'}
SCHEMA = schema_of(MATCHED)


def columns(texts: pa.Array) -> dict[str, ColumnData]:
    return {"id": pa.array(np.arange(len(texts))), "text": texts}


def rows(text: str, **values: object) -> list[int]:
    texts = pa.array(TEXTS, pa.string())
    found = []
    for form in (texts, texts.dictionary_encode()):
        mask = compile_filter(text, SCHEMA, values).evaluate(columns(form), len(texts))
        found.append(np.flatnonzero(mask).tolist())
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text_match(text, 'machine')", [0, 1, 2, 3, 7]),
        ("TEXT_MATCH(text, 'FOXES efficient')", [0, 6]),
        ("text_match(text, 'the')", []),
        ("text_match(text, 'machine learning models', minimum_should_match=3)", [1]),
        ("text_match(text, 'machine machine', minimum_should_match = 2)", []),
        ("not text_match(text, 'machine')", [5, 6]),
        ("id > 2 and text_match(text, 'machine')", [3, 7]),
        ("phrase_match(text, 'machine learning')", [0, 2]),
        ("phrase_match(text, 'machine learning', 1)", [0, 2, 3]),
        ("phrase_match(text, 'machine learning', 2)", [0, 1, 2, 3, 7]),
        ("phrase_match(text, 'machines')", [0, 1, 2, 3, 7]),
        ("phrase_match(text, 'machine unknown', 9)", []),
        ("phrase_match(text, '')", []),
    ],
)
def test_rows(text: str, expected: list[int]) -> None:
    assert rows(text) == expected
    again = compile_filter(compile_filter(text, SCHEMA).explain(), SCHEMA)
    texts = pa.array(TEXTS, pa.string())
    assert np.flatnonzero(again.evaluate(columns(texts), len(texts))).tolist() == expected


def test_templates_give_the_text() -> None:
    assert rows("text_match(text, {words})", words="fox") == [6]


def test_a_column_is_analyzed_once_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzed: list[int] = []
    real = Analyzer.tokens_of
    monkeypatch.setattr(
        Analyzer, "tokens_of", lambda self, texts: analyzed.append(len(texts)) or real(self, texts)
    )
    texts = pa.array(["machine learning"] * 10_000, pa.string())
    held = columns(texts)
    for text in (
        "text_match(text, 'machine')",
        "id < 9 and text_match(text, 'fox')",
        "phrase_match(text, 'a')",
    ):
        compile_filter(text, SCHEMA).evaluate(held, len(texts))
    assert analyzed == [10_000]
    assert match.kept_bytes(texts) >= 10_000 * 2 * 8
    before = len(match._kept)
    del texts, held
    gc.collect()
    assert len(match._kept) == before - 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("text_match(text)", "takes a field and a text"),
        ("text_match(text, id)", "needs a text"),
        ("text_match(text, 'a', 1)", "takes a field and a text"),
        ("text_match(text, 'a', minimum_should_match=0)", "minimum_should_match should be >= 1, got 0"),
        ("text_match(text, 'a', minimum_should_match=1001)", "should be <= 1000, got 1001"),
        ("text_match(text, 'a', minimum_should_match='x')", "should be a const integer expression"),
        ("text_match(text, 'a', slop=2)", "has no option slop"),
        ("phrase_match(text, 'a', -1)", '"slop" should not be a negative interger. "slop" passed: -1'),
        ("phrase_match(text, 'a', 1.5)", '"slop" should be a const integer expression with "uint32" value'),
        ("phrase_match(text, 'a', 4294967296)", '"slop" exceeds the range of "uint32"'),
        ("phrase_match(text, 'a', 1, 2)", "takes a field and a text"),
    ],
)
def test_errors(text: str, what: str) -> None:
    with pytest.raises(InvalidFilter, match=what):
        compile_filter(text, SCHEMA)


def test_a_field_that_does_not_enable_match() -> None:
    with pytest.raises(InvalidFilter, match='field "text" does not enable match'):
        compile_filter("text_match(text, 'a')", schema_of({"enable_analyzer": "true"}))
