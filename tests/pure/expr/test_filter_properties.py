"""For any filter and any rows the mask is as defined, in every form a column may take."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filter_array_oracle import ARRAY_FILTERS
from filter_oracle import FILTERS, ROWS, STEADY, Expr, Row
from filter_schemas import DYNAMIC
from hypothesis import given, settings
from hypothesis import strategies as st

from elanus.expr import JsonColumn, compile_filter, evaluate

pytestmark = pytest.mark.slow

_NAMES = [field.name for field in DYNAMIC.scalar_fields]
_ROW_LISTS = st.lists(ROWS, max_size=12)
_EXAMPLES = settings(STEADY, max_examples=100)
_FILTERS = st.one_of(FILTERS, ARRAY_FILTERS)


def columns_of(rows: list[Row]) -> dict[str, pa.Array]:
    columns = {}
    for field in DYNAMIC.scalar_fields:
        values: list[Any] = [row[field.name] for row in rows]
        if field.data_type.name == "JSON":
            values = [None if value is None else json.dumps(value) for value in values]
        columns[field.name] = pa.array(values, field.arrow_type)
    return columns


def expected(expr: Expr, rows: list[Row]) -> list[bool]:
    return [expr.answer(row) is True for row in rows]


def packed(columns: dict[str, Any], cut: int) -> dict[str, Any]:
    """The same columns in other forms: two chunks, dictionaries, JSON that stays decoded."""
    forms = dict(columns)
    for name, column in columns.items():
        encoded = column.dictionary_encode() if name in ("tiny", "color", "name", "meta") else column
        forms[name] = pa.chunked_array([encoded.slice(0, cut), encoded.slice(cut)])
    forms["$meta"] = JsonColumn(forms["$meta"])
    return forms


@pytest.fixture
def eager_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every conjunction and disjunction go on with the undecided rows alone."""
    for name in ("SELECT_ROWS_MIN", "SCATTER_COST", "TAKE_COST"):
        monkeypatch.setattr(evaluate, name, 0)


@_EXAMPLES
@given(_FILTERS, _ROW_LISTS, st.integers(0, 12))
def test_the_mask_is_the_oracles_in_whatever_form_columns_come(expr: Expr, rows: list[Row], cut: int) -> None:
    bound, columns = compile_filter(expr.text, DYNAMIC), columns_of(rows)
    mask = bound.evaluate(columns, len(rows))
    assert mask.dtype == np.bool_
    assert mask.tolist() == expected(expr, rows)
    assert bound.evaluate(packed(columns, cut), len(rows)).tolist() == expected(expr, rows)


@pytest.mark.usefixtures("eager_selection")
@_EXAMPLES
@given(_FILTERS, _ROW_LISTS, st.integers(0, 12))
def test_looking_at_undecided_rows_only_changes_nothing(expr: Expr, rows: list[Row], cut: int) -> None:
    bound, columns = compile_filter(expr.text, DYNAMIC), columns_of(rows)
    assert bound.evaluate(columns, len(rows)).tolist() == expected(expr, rows)
    assert bound.evaluate(packed(columns, cut), len(rows)).tolist() == expected(expr, rows)


@_EXAMPLES
@given(_FILTERS, _ROW_LISTS)
def test_the_other_readers_agree_with_the_mask(expr: Expr, rows: list[Row]) -> None:
    """Pruning never loses a row, the explanation means the same filter, the fields named suffice."""
    bound, columns = compile_filter(expr.text, DYNAMIC), columns_of(rows)
    matches = expected(expr, rows)

    stats = {}
    for name in ("id", "tiny", "price", "score", "color", "name", "flag"):
        values = [row[name] for row in rows if row[name] is not None]
        if values:
            stats[name] = (min(values), max(values))
    assert bound.may_match(stats) or not any(matches)

    again = compile_filter(bound.explain(), DYNAMIC)
    assert again.explain() == bound.explain()
    needed = {name: column for name, column in columns.items() if name in bound.field_names}
    assert again.evaluate(needed, len(rows)).tolist() == matches

    keys = bound.primary_keys()
    assert keys is None or matches == [row["id"] in keys.to_pylist() for row in rows]
