"""Values of Arrow types that have no counterpart here: taken as they are meant, or refused by row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_import_malformed import imported

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.row_faults import Fault, Problem
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.pipeline import import_csv
from elanus.pipeline.import_place import Place

KEY = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)


def of(tmp_path: Path, field: FieldSchema, values: pa.Array) -> list[object]:
    pq.write_table(pa.table({"id": np.arange(len(values)), "x": values}), tmp_path / "a.parquet")
    rows = imported(tmp_path, {}, None, CollectionSchema("docs", (KEY, field)), ["a.parquet"])
    return [row["x"] for row in rows]


def field(data_type: DataType, **of_it: object) -> FieldSchema:
    return FieldSchema(FieldID(101), "x", data_type, nullable=True, **of_it)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "decimal", [pa.decimal32(9, 0), pa.decimal64(18, 0), pa.decimal128(18, 0), pa.decimal256(18, 0)]
)
def test_decimals_of_every_width_are_integers(tmp_path: Path, decimal: pa.DataType) -> None:
    numbers = [Decimal(5), None, Decimal(-999_999_999)]
    assert of(tmp_path, field(DataType.INT64), pa.array(numbers, decimal)) == [5, None, -999_999_999]
    lists = field(DataType.ARRAY, element_type=DataType.INT64, max_capacity=4)
    assert of(tmp_path, lists, pa.array([numbers[::2], None], pa.list_(decimal))) == [[5, -999_999_999], None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_are_microseconds(tmp_path: Path, unit: str) -> None:
    moment = dt.datetime(1969, 12, 31, 23, 59, 58)
    stored = of(tmp_path, field(DataType.TIMESTAMPTZ), pa.array([moment, None], pa.timestamp(unit)))
    assert stored == [-2_000_000, None]


@pytest.mark.parametrize(
    ("unit", "number"),
    [("us", 2**62), ("us", -(2**62)), ("ms", 2**61), ("ms", -(2**61)), ("ms", 253_402_300_800_000)],
)
def test_a_timestamp_beyond_the_calendar_is_refused(tmp_path: Path, unit: str, number: int) -> None:
    """No answer could show it; in milliseconds it would overflow and become another moment."""
    values = pa.array([0, number], pa.timestamp(unit))
    with pytest.raises(
        InvalidParameter, match=rf"row 1: field x holds no moment: {number} {unit} .* 1 to 9999"
    ):
        of(tmp_path, field(DataType.TIMESTAMPTZ), values)


def test_the_first_and_last_moments_of_the_calendar_are_taken(tmp_path: Path) -> None:
    ends = [dt.datetime.min, dt.datetime.max]
    for unit in ("ms", "us"):
        values = pa.array([end.replace(microsecond=0) for end in ends], pa.timestamp(unit))
        assert (
            of(tmp_path, field(DataType.TIMESTAMPTZ), values)
            == values.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        )


def test_a_csv_file_with_a_million_columns_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_csv, "COLUMNS_MAX", 3)
    schema = CollectionSchema("docs", (KEY,))
    with pytest.raises(InvalidParameter, match=r"a\.csv has 4 columns, at most 3 .* separator ','"):
        imported(tmp_path, {"a.csv": b'id,"a\nb",c,d\n1,2,3,4\n'}, None, schema)


def test_a_document_that_is_too_long_is_named_by_its_row(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (KEY, field(DataType.JSON)))
    content = b'{"id":1,"x":1}\n{"id":2,"x":"' + b"a" * 70_000 + b'"}\n'
    with pytest.raises(InvalidParameter, match=r"^a\.jsonl, .*json field \(x\) exceeds .* in row 1$"):
        imported(tmp_path, {"a.jsonl": content}, None, schema)
    with pytest.raises(InvalidParameter, match=r"in row 1, counted from row 7$"):
        raise Place("a.jsonl", 1, 0, lambda: 7).refusal(
            Fault(field(DataType.JSON), Problem.DOCUMENT, 0, detail="too long, in row 1")
        )
