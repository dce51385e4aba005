"""``text_match``, ``text_match_fuzzy`` and ``phrase_match``: rows, analyzers and errors."""

from __future__ import annotations

import functools
import gc
import itertools

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidFilter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.expr import ColumnData, compile_filter, text_conditions
from elanus.text import match, near_words
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
        ("text_match_fuzzy(text, 'fux', max_edit_distance=0)", []),
        ("text_match_fuzzy(text, 'fox', max_edit_distance=0)", [6]),
        ("text_match_fuzzy(text, 'fux', max_edit_distance=1)", [6]),
        ("Text_Match_Fuzzy(text, 'ofx', MAX_EDIT_DISTANCE = 1)", [6]),
        ("text_match_fuzzy(text, 'fooxx', max_edit_distance=1)", []),
        ("text_match_fuzzy(text, 'fooxx', max_edit_distance=2)", [6]),
        ("text_match_fuzzy(text, 'fux modle', max_edit_distance=1)", [1, 6]),
        ("text_match_fuzzy(text, '', max_edit_distance=2)", []),
        ("not text_match_fuzzy(text, 'machina', max_edit_distance=1)", [5, 6]),
        ("id > 2 and text_match_fuzzy(text, 'machina', max_edit_distance=1)", [3, 7]),
    ],
)
def test_rows(text: str, expected: list[int]) -> None:
    assert rows(text) == expected
    again = compile_filter(compile_filter(text, SCHEMA).explain(), SCHEMA)
    texts = pa.array(TEXTS, pa.string())
    assert np.flatnonzero(again.evaluate(columns(texts), len(texts))).tolist() == expected


def test_templates_give_the_text() -> None:
    assert rows("text_match(text, {words})", words="fox") == [6]
    assert rows("text_match_fuzzy(text, {words}, max_edit_distance=1)", words="fux") == [6]


def edits(left: str, right: str) -> int:
    """The fewest edits, written as the definition says."""

    @functools.cache
    def least(m: int, n: int) -> int:
        if not m or not n:
            return m + n
        ways = [
            least(m - 1, n) + 1,
            least(m, n - 1) + 1,
            least(m - 1, n - 1) + (left[m - 1] != right[n - 1]),
        ]
        if m > 1 and n > 1 and left[m - 2 : m] == right[n - 2 : n][::-1]:
            ways.append(least(m - 2, n - 2) + 1)
        return min(ways)

    return least(len(left), len(right))


def test_near_words_are_those_within_the_edits() -> None:
    words = ["".join(letters) for n in range(5) for letters in itertools.product("aéb", repeat=n)]
    vocabulary = pa.array(words, pa.string())
    for word in ("", "a", "ab", "bé", "abb", "baéa", "abébaa", "z" * 9):
        for most in (1, 2):
            expected = [other for other in words if edits(word, other) <= most]
            assert near_words(vocabulary, word, most).to_pylist() == expected


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
        ("text_match_fuzzy(text, 'a')", "mismatched input '\\)' expecting ','"),
        ("text_match_fuzzy(text, 'a', 1)", "takes a field and a text"),
        ("text_match_fuzzy(text, 'a', slop=1)", "expected max_edit_distance, got slop"),
        ("text_match_fuzzy(text, 'a', max_edit_distance=3)", r"should be in \[0, 2\], got 3"),
        ("text_match_fuzzy(text, 'a', max_edit_distance=-1)", r"should be in \[0, 2\], got -1"),
        ("text_match_fuzzy(text, 'a', max_edit_distance=1.5)", "expecting IntegerConstant"),
        (
            "text_match_fuzzy(text, 1, max_edit_distance=1)",
            "text_match_fuzzy query should be a string literal or template variable",
        ),
        ("text_match_fuzzy(id, 'a', max_edit_distance=1)", "on non-string is unsupported"),
    ],
)
def test_errors(text: str, what: str) -> None:
    with pytest.raises(InvalidFilter, match=what):
        compile_filter(text, SCHEMA)


def test_a_field_that_does_not_enable_match() -> None:
    with pytest.raises(InvalidFilter, match='field "text" does not enable match'):
        compile_filter("text_match(text, 'a')", schema_of({"enable_analyzer": "true"}))


def test_the_rest_of_a_filter_has_the_analyzer_of_its_own_collection() -> None:
    """Also while another collection's, which has fields of the same names and ids, is in use."""
    text = 'id > 0 and text_match(text, "run")'
    texts = pa.array(["he runs", "they run"])
    _, english = compile_filter(text, SCHEMA).split_by_key()
    standard = schema_of({"enable_analyzer": "true", "enable_match": "true"})
    _, rest = compile_filter(text, standard).split_by_key()
    assert rest.evaluate(columns(texts), 2).tolist() == [False, True]
    assert english.evaluate(columns(texts), 2).tolist() == [True, True]
    assert compile_filter(text, schema_of(dict(MATCHED))).split_by_key()[1] is english


def test_of_long_texts_in_filters_few_are_kept_with_their_tokens() -> None:
    before = text_conditions._short_words.cache_info().currsize
    for number in range(20):
        assert rows(f'text_match(text, "{"fox " * 300}{number}")') == [6]
    assert text_conditions._long_words.cache_info().currsize == 8
    assert text_conditions._short_words.cache_info().currsize == before
