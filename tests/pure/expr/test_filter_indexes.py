"""With any indexes, a filter finds exactly the rows that it finds without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from filter_array_oracle import ARRAY_FILTERS
from filter_oracle import FILTERS, ROWS, STEADY, Expr, Row
from filter_schemas import DYNAMIC
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed_columns import CASTS, JSON_PATHS, KINDS, indexes_of
from test_filter_properties import columns_of, expected, packed

from elanus.expr import compile_filter, indexed
from elanus.index import ScalarIndex

pytestmark = pytest.mark.slow

_FILTERS = st.one_of(FILTERS, ARRAY_FILTERS)
_KINDS = st.fixed_dictionaries({name: st.sampled_from(kinds) for name, kinds in KINDS.items()})
_CASTS = st.dictionaries(st.sampled_from(sorted(JSON_PATHS)), st.sampled_from(CASTS))


@pytest.fixture(scope="module", autouse=True)
def always_indexed() -> Iterator[None]:
    """Uses an index whenever it has an answer, for any number of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed, "SCAN_COST_MIN", -1)
        patch.setattr(indexed, "SPARSE_SHARE_MAX", 10.0)
        patch.setattr(ScalarIndex, "rows_share_max", 10.0)
        yield


@settings(STEADY, max_examples=300)
@given(_FILTERS, st.lists(ROWS, max_size=12), _KINDS, _CASTS, st.integers(0, 12))
def test_indexes_change_no_answer(
    expr: Expr, rows: list[Row], kinds: dict[str, str], casts: dict[str, str], cut: int
) -> None:
    bound, columns = compile_filter(expr.text, DYNAMIC), columns_of(rows)
    needed = {name: column for name, column in columns.items() if name in bound.field_names}
    indexes = indexes_of(needed, kinds, casts)
    assert bound.evaluate(columns, len(rows), indexes).tolist() == expected(expr, rows)
    assert bound.evaluate(packed(columns, cut), len(rows), indexes).tolist() == expected(expr, rows)
    assert bound.explain_indexes(columns, len(rows), indexes)


@settings(STEADY, max_examples=30)
@given(st.lists(_FILTERS, min_size=5, max_size=5), st.lists(ROWS, max_size=12), _KINDS, _CASTS)
def test_indexes_from_files_change_no_answer(
    tmp_path_factory: pytest.TempPathFactory,
    exprs: list[Expr],
    rows: list[Row],
    kinds: dict[str, str],
    casts: dict[str, str],
) -> None:
    columns = columns_of(rows)
    directory: Path = tmp_path_factory.mktemp("indexes")
    indexes = indexes_of(columns, kinds, casts, directory)
    for expr in exprs:
        found = compile_filter(expr.text, DYNAMIC).evaluate(columns, len(rows), indexes)
        assert found.tolist() == expected(expr, rows)


SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, None, 5e-324]


@pytest.mark.parametrize("name", ["price", "score"])
@pytest.mark.parametrize("kind", ["STL_SORT", "INVERTED", "AUTOINDEX"])
@pytest.mark.parametrize(
    "template",
    [*(f"F {sign} {{x}}" for sign in ("==", "!=", "<", "<=", ">", ">=")), "F in {l}", "F not in {l}"],
)
def test_special_numbers(name: str, kind: str, template: str) -> None:
    rows: list[Row] = [{field.name: None for field in DYNAMIC.scalar_fields} | {"$meta": {}} for _ in SPECIAL]
    for row, value in zip(rows, SPECIAL, strict=True):
        row[name] = value
        row["id"] = 1
    columns = columns_of(rows)
    indexes = indexes_of(columns, {name: kind}, {})
    for number in (0.0, -0.0, 1.5, float("inf"), -float("inf")):
        values = {"x": number, "l": [number, 1.5]}
        bound = compile_filter(template.replace("F", name), DYNAMIC, values)
        scanned = bound.evaluate(columns, len(rows))
        assert np.array_equal(bound.evaluate(columns, len(rows), indexes), scanned), values
