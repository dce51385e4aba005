"""Reading JSON columns: every kind of document, once per path, and only the rows that matter."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from filter_oracle import STEADY
from filter_schemas import PLAIN
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import Internal, InvalidFilter
from elanus.expr import JsonColumn, compile_filter, jsonpath
from elanus.expr.jsonpath import json_values

_keys = st.sampled_from(["a", "b", "0", "1", "", 'q"', "\\", "é", "\n"])
_documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=6,
)
_paths = st.lists(st.one_of(_keys, st.integers(0, 2)), max_size=3).map(tuple)


def look_up(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and str(step) in ("0", "1", "2") and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


@STEADY
@given(st.lists(_documents, max_size=5), _paths)
def test_a_path_leads_where_the_document_says(documents: list[Any], path: tuple[str | int, ...]) -> None:
    values = json_values(pa.array([json.dumps(document) for document in documents], pa.string()), path)
    wanted = [look_up(document, path) for document in documents]
    assert values.present.to_pylist() == [value is not None for value in wanted]
    for column, kind in [(values.strings, str), (values.booleans, bool), (values.lists, list)]:
        found = (
            [None] * len(wanted)
            if column is None
            else pa.array(column).to_pylist()
            if kind is not list
            else column
        )
        assert list(found) == [value if type(value) is kind else None for value in wanted]
    for row, value in enumerate(wanted):
        held = [
            None if column is None else column[row].as_py() for column in (values.integers, values.floats)
        ]
        is_whole = type(value) is int and -(2**63) <= value < 2**63
        assert held[0] == (value if is_whole else None)
        assert held[1] == (float(value) if type(value) in (int, float) and not is_whole else None)


def find(text: str, documents: list[str | None]) -> list[int]:
    mask = compile_filter(text, PLAIN).evaluate({"meta": pa.array(documents, pa.string())}, len(documents))
    return [int(row) for row in mask.nonzero()[0]]


def test_integers_beyond_doubles_are_distinguished() -> None:
    documents = [f'{{"n": {2**53 + offset}}}' for offset in (0, 1, 2)]
    assert find(f"meta['n'] == {2**53 + 1}", documents) == [1]
    assert find(f"meta['n'] in [{2**53}, {2**53 + 2}]", documents) == [0, 2]


def test_whole_and_floating_values_are_one_kind_of_number() -> None:
    documents = ['{"n": 2}', '{"n": 2.0}', '{"n": 2.5}', '{"n": "2"}', '{"n": true}']
    assert find("meta['n'] == 2", documents) == [0, 1]
    assert find("meta['n'] in [2.0, 7]", documents) == [0, 1]
    assert find("meta['n'] > 2", documents) == [2]
    assert find("meta['n'] / 2 == 1", documents) == [0, 1]
    assert find("meta['n'] * 2 == 5", documents) == [2]


def test_division_is_whole_in_the_rows_that_are() -> None:
    assert find("meta['n'] / 2 == 3", ['{"n": 7}', '{"n": 7.0}', '{"n": 6.0}']) == [0, 2]


def test_a_whole_quotient_stays_whole_in_further_arithmetic() -> None:
    assert find("meta['n'] / 2 + 0.5 == 3.5", ['{"n": 7}', '{"n": 7.0}', '{"n": 6.0}']) == [0, 2]


def test_the_whole_document_may_be_a_value() -> None:
    documents = ["5", '"x"', "null", None, "[1, 2]", "{}"]
    assert find("meta == 5", documents) == [0]
    assert find("meta like 'x%'", documents) == [1]
    assert find("meta == [1, 2]", documents) == [4]
    assert find("json_contains(meta, 2)", documents) == [4]
    assert find("meta is null", documents) == [3]
    assert find("meta != 6", documents) == [0]


def test_true_is_not_one_in_lists_either() -> None:
    documents = ['{"l": [1]}', '{"l": [true]}', '{"l": [[1]]}', '{"l": [[true]]}']
    assert find("json_contains(meta['l'], 1)", documents) == [0]
    assert find("json_contains(meta['l'], true)", documents) == [1]
    assert find("json_contains(meta['l'], [1])", documents) == [2]
    assert find("meta['l'] == [true]", documents) == [1]


def test_numbers_beyond_doubles_and_deep_documents_do_not_spoil_their_neighbors() -> None:
    deep = "[" * 50_000 + "]" * 50_000
    documents = ['{"n": 1e400}', '{"n": 1}', f'{{"n": {deep}}}', '{"n": NaN}', f'{{"n": {"9" * 5000}}}']
    assert find("meta['n'] == 1", documents) == [1]
    assert find("meta['n'] > 1", documents) == [0, 4]


@pytest.mark.parametrize("text", ["oops", "", '{"n": 1}, {"n": 2}', '{"n": '])
def test_a_row_that_is_not_json_is_an_internal_error(text: str) -> None:
    with pytest.raises(Internal, match="which is not JSON"):
        find("meta['n'] == 1", ['{"n": 1}', text])


def test_a_json_column_decodes_each_path_once(monkeypatch: pytest.MonkeyPatch) -> None:
    column = JsonColumn(pa.array(['{"a": 1, "b": "x"}', '{"a": 2}']))
    decoded = []
    monkeypatch.setattr(
        jsonpath, "json_values", lambda texts, path: decoded.append(path) or json_values(texts, path)
    )
    for text in ("meta['a'] == 1", "meta['a'] > 1 or meta['b'] == 'x'", "meta['a'] is null"):
        compile_filter(text, PLAIN).evaluate({"meta": column}, 2)
    assert decoded == [("a",), ("b",)]


def test_a_json_column_keeps_a_bounded_number_of_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonpath, "KEPT_PATHS_MAX", 2)
    column = JsonColumn(pa.array(['{"a": 1}']))
    first = column.values(("a",))
    assert column.values(("a",)) is first
    for key in ("b", "c"):
        column.values((key,))
    assert column.values(("a",)) is not first


def test_a_filter_decodes_each_path_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    read = jsonpath._read_block
    monkeypatch.setattr(
        jsonpath, "_read_block", lambda texts, path: decoded.append(path) or read(texts, path)
    )
    find("meta['a'] > 1 and meta['a'] < 3 and meta['b'] == 1", ['{"a": 2, "b": 1}'])
    assert decoded == [("a",), ("b",)]


def test_dynamic_rows_that_a_cheaper_condition_excludes_are_not_decoded() -> None:
    rows = 10_000
    ids = pa.array(range(rows))
    documents = ["not json"] * rows
    documents[7] = '{"a": 1}'
    documents[9] = '{"a": 2}'
    bound = compile_filter("meta['a'] == 2 and id in [7, 9]", PLAIN)
    mask = bound.evaluate({"id": ids, "meta": pa.array(documents)}, rows)
    assert mask.nonzero()[0].tolist() == [9]
    either = compile_filter("meta['a'] == 2 or id not in [7, 9]", PLAIN)
    assert (~either.evaluate({"id": ids, "meta": pa.array(documents)}, rows)).nonzero()[0].tolist() == [7]


_LONG = "1" * 5_000


@pytest.mark.parametrize("path", [("l", _LONG), ("l", "0" * 5_000), ("o", _LONG)])
def test_a_key_of_more_digits_than_a_place_has_is_a_key_of_objects_only(path: tuple[str, ...]) -> None:
    column = pa.array([json.dumps({"l": [7], "o": {_LONG: 7}})])
    quoted = "".join(f'["{step}"]' for step in path)
    bound = compile_filter(f"meta{quoted} == 7", PLAIN)
    assert bound.evaluate({"meta": column}, 1).tolist() == [path[0] == "o"]


@pytest.mark.parametrize(
    ("place", "why"), [(_LONG, "no array is that long"), ("0x1", "decimal digits"), ("0b1", "decimal digits")]
)
def test_a_place_that_is_no_decimal_number_or_too_long_is_refused(place: str, why: str) -> None:
    for field in ('meta["l"]', "meta", "longs"):
        with pytest.raises(InvalidFilter, match=why):
            compile_filter(f"{field}[{place}] == 7", PLAIN)
