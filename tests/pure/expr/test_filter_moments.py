"""Filters on moments: comparisons, lists, intervals, errors."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidFilter
from elanus.core.ids import FieldID
from elanus.core.moments import parse_moment
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.expr import compile_filter
from elanus.expr.key_range import shape

SCHEMA = CollectionSchema(
    "events",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "t", DataType.TIMESTAMPTZ, nullable=True),
        FieldSchema(FieldID(102), "u", DataType.TIMESTAMPTZ),
    ),
)
DAYS = ["2025-01-01", "2025-01-31", None, "2025-02-28", "2024-02-29"]
T = pa.array([None if day is None else parse_moment(f"{day}T00:00:00Z") for day in DAYS])
COLUMNS = {"id": pa.array(range(5)), "t": T, "u": pa.array([parse_moment("2025-01-31T00:00:00Z")] * 5)}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("t == ISO '2025-01-31T00:00:00Z'", [1]),
        ("t != ISO '2025-01-31T00:00:00Z'", [0, 3, 4]),
        ("not (t != ISO '2025-01-31T00:00:00Z')", [1]),
        ('t >= iso "2025-01-31T08:00:00+08:00"', [1, 3]),
        ("ISO '2025-01-01T00:00:00Z' < t", [1, 3]),
        ("ISO '2025-01-01T00:00:00Z' <= t < ISO '2025-02-01T00:00:00Z'", [0, 1]),
        ("t in [ISO '2025-01-01T00:00:00Z', ISO '2025-02-28T00:00:00Z']", [0, 3]),
        ("t not in [ISO '2025-01-01T00:00:00Z']", [1, 3, 4]),
        ("t is null", [2]),
        ("t < u", [0, 4]),
        ("t + INTERVAL 'P1D' == ISO '2025-02-01T00:00:00Z'", [1]),
        ("t - INTERVAL 'PT24H' > ISO '2025-01-30T00:00:00Z'", [3]),
        ("ISO '2025-01-02T00:00:00Z' == t + INTERVAL 'P1D'", [0]),
        ("t > ISO '2025-01-01T00:00:00Z' + INTERVAL 'P1M'", [3]),
        ("t + INTERVAL 'P1M' == ISO '2025-03-03T00:00:00Z'", [1]),
        ("t + INTERVAL 'P1Y' - INTERVAL 'P1D' < ISO '2025-03-01T00:00:00Z'", [4]),
        ("not (t + INTERVAL 'P1M' > ISO '2025-02-15T00:00:00Z')", [0, 4]),
        ("t + INTERVAL 'P1M' > ISO '2025-02-15T00:00:00Z' or t is null", [1, 2, 3]),
        ("t + INTERVAL 'P1Y1DT0.5S' > ISO '2026-01-15T00:00:00Z'", [1, 3]),
        ("t < ISO '9999-12-31T00:00:00Z' + INTERVAL 'P1Y'", [0, 1, 3, 4]),
        ("t + INTERVAL 'P9998Y' - INTERVAL 'P1D' < ISO '0001-01-01T00:00:00Z'", []),
        ("t - INTERVAL 'P3000000D' < ISO '0001-01-01T00:00:00Z'", [0, 1, 3, 4]),
        ("t + INTERVAL 'P3000000D' < ISO '0001-01-01T00:00:00Z'", []),
    ],
)
def test_rows_that_match(text: str, rows: list[int]) -> None:
    chosen = compile_filter(text, SCHEMA)
    assert chosen.evaluate(COLUMNS, 5).nonzero()[0].tolist() == rows
    again = compile_filter(chosen.explain(), SCHEMA)
    assert shape(again.predicate) == shape(chosen.predicate), chosen.explain()


def test_bounds_prune() -> None:
    stats = {"t": (parse_moment("2025-01-01T00:00:00Z"), parse_moment("2025-01-31T00:00:00Z"))}
    assert compile_filter("t >= ISO '2025-01-31T00:00:00Z'", SCHEMA).may_match(stats)
    assert not compile_filter("t > ISO '2025-01-31T00:00:00Z'", SCHEMA).may_match(stats)
    assert not compile_filter("t + INTERVAL 'P1D' > ISO '2025-02-02T00:00:00Z'", SCHEMA).may_match(stats)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("t > '2025-01-01T00:00:00Z'", "comparisons between Timestamptz and VarChar are not supported"),
        ("t > 5", "comparisons between Timestamptz and Int64 are not supported"),
        ("id > ISO '2025-01-01T00:00:00Z'", "comparisons between Int64 and Timestamptz are not supported"),
        ("t > ISO 'tomorrow'", "invalid timestamp string: 'tomorrow'"),
        ("t + INTERVAL '1 day' > ISO '2025-01-01T00:00:00Z'", "invalid interval string: '1 day'"),
        ("t * INTERVAL 'P1D' > ISO '2025-01-01T00:00:00Z'", "an interval cannot be used here"),
        ("id + INTERVAL 'P1D' > 5", "an interval cannot be used here"),
        ("INTERVAL 'P1D' > t", "an interval cannot be used here"),
        ("t + INTERVAL 'P1D' > u", "can only be compared with a moment"),
        ("t + INTERVAL 'P1D' in [ISO '2025-01-01T00:00:00Z']", "single field"),
        ("t + 5 > ISO '2025-01-01T00:00:00Z'", "cannot perform arithmetic"),
        ("t + INTERVAL 'P9998Y' + INTERVAL 'P9998Y' > ISO '2025-01-01T00:00:00Z'", "longer than 9999 years"),
        ("t > ISO '9999-12-31T00:00:00Z' + INTERVAL 'P1Y' + INTERVAL 'P1Y'", "timestamp out of range"),
        ("t in [1, 2]", "cannot be casted to Timestamptz"),
        ("t like 'a%'", "like operation on non-string"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(text, SCHEMA)
    assert why in str(caught.value)
