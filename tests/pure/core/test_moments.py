"""Moments: what is accepted as one, how answers show them, and what an interval adds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.grouping import grouping_fields
from elanus.core.ids import FieldID
from elanus.core.moments import (
    IN_UTC,
    Interval,
    InvalidMoment,
    TimeFormat,
    check_timezone,
    format_moment,
    parse_interval,
    parse_moment,
    parse_moments,
    time_format,
    with_offsets,
)
from elanus.core.ordering import order_places, parse_order
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

NEW_YEAR_TEXT = "2025-01-01T00:00:00Z"
NEW_YEAR = 1_735_689_600_000_000


@pytest.mark.parametrize(
    "text",
    [
        NEW_YEAR_TEXT,
        "2025-01-01T00:00:00+00:00",
        "2025-01-01T08:00:00+08:00",
        "2025-01-01 08:00:00+08",
        "2025-01-01 00:00:00Z",
        "2025-01-01T00:00:00.000000999Z",
        "2024-12-31T12:00:00-12:00",
        "2025-01-01T14:00:00+14:00",
    ],
)
def test_one_moment_in_many_texts(text: str) -> None:
    assert parse_moment(text) == NEW_YEAR
    assert parse_moment(text, "Asia/Tokyo") == NEW_YEAR, "an offset counts more than a zone"
    assert parse_moments(pa.array([text])).to_pylist() == [NEW_YEAR]


@pytest.mark.parametrize("text", ["2025-01-01T09:00:00", "2025-01-01 09:00:00", "2025-01-01 09:00:00.000"])
def test_a_text_without_an_offset_is_a_local_time(text: str) -> None:
    assert parse_moment(text, "Asia/Tokyo") == NEW_YEAR
    assert parse_moments(pa.array([text, NEW_YEAR_TEXT]), "Asia/Tokyo").to_pylist() == [NEW_YEAR] * 2
    assert parse_moment(text) == NEW_YEAR + 9 * 3_600_000_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", "Does not match any known format"),
        ("2025-01-01", "Does not match any known format"),
        ("2025-04-31T00:00:00Z", "Does not match any known format"),
        ("2025-01-01T24:00:00Z", "Does not match any known format"),
        ("2025-01-01T00:00:00+08", "Does not match any known format"),
        ("2025-01-01t00:00:00z", "Does not match any known format"),
        ("0000-01-01T00:00:00Z", "Does not match any known format"),
        ("9999-12-31T23:59:59-01:00", "Does not match any known format"),
        ("2025-01-01T00:00:00+15:00", r"UTC offset hour 15 is out of the valid range \[-12, 14\]"),
        ("2025-01-01T00:00:00-13:00", r"UTC offset hour -13 is out of the valid range \[-12, 14\]"),
    ],
)
def test_what_is_no_moment(text: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        parse_moment(text)
    with pytest.raises(InvalidMoment, match=why) as caught:
        parse_moments(pa.array([NEW_YEAR_TEXT, text, "later"]))
    assert caught.value.row == 1
    assert f"got invalid timestamptz string '{text}'" in str(caught.value)


def test_texts_of_moments() -> None:
    assert format_moment(NEW_YEAR) == NEW_YEAR_TEXT
    assert format_moment(NEW_YEAR + 120_000) == "2025-01-01T00:00:00.12Z"
    assert format_moment(NEW_YEAR, "Asia/Shanghai") == "2025-01-01T08:00:00+08:00"
    assert format_moment(NEW_YEAR, "America/St_Johns") == "2024-12-31T20:30:00-03:30"
    last = parse_moment("9999-12-31T23:59:59.999999Z")
    assert format_moment(last, "Asia/Tokyo") == "9999-12-31T23:59:59.999999Z", "the calendar ends there"
    column = pa.array([NEW_YEAR, None])
    assert IN_UTC.texts(column).to_pylist() == [NEW_YEAR_TEXT, None]
    parts = time_format("Asia/Shanghai", "year, hour microsecond")
    assert parts == TimeFormat("Asia/Shanghai", ("year", "hour", "microsecond"))
    assert parts.lists(column).to_pylist() == [[2025, 8, 0], None]
    assert time_format("UTC", "") == IN_UTC
    with pytest.raises(InvalidParameter, match="century: time_fields are year, month"):
        time_format("UTC", "year,century")


@pytest.mark.parametrize("name", ["", "Mars/Base", "Asia", "../UTC", "+08:00"])
def test_zones_that_do_not_exist(name: str) -> None:
    with pytest.raises(InvalidParameter, match="unknown or invalid IANA Time Zone ID"):
        check_timezone({"timezone": name})


def test_intervals() -> None:
    assert parse_interval("P1Y2M3DT4H5M6.5S") == Interval(
        14, ((3 * 24 + 4) * 60 + 5) * 60_000_000 + 6_500_000
    )
    assert parse_interval("P2W") == Interval(0, 14 * 86_400_000_000)
    assert parse_interval("P0D") == Interval(0, 0)
    with pytest.raises(ValueError, match="longer than 9999 years"):
        parse_interval("P99999Y")
    for text in ("", "P", "PT", "P1DT", "1D", "P-1D", "P1.5D", "P9999999999D"):
        with pytest.raises(ValueError, match="invalid interval string"):
            parse_interval(text)

    def added(text: str, interval: str) -> str:
        (later,) = parse_interval(interval).after(np.array([parse_moment(text)])).tolist()
        return format_moment(later)

    assert added(NEW_YEAR_TEXT, "P1M") == "2025-02-01T00:00:00Z"
    assert added("2025-01-31T10:00:00Z", "P1M") == "2025-03-03T10:00:00Z", "February has no day 31"
    assert added("1960-03-15T10:00:00Z", "P1Y") == "1961-03-15T10:00:00Z"
    assert (-parse_interval("P1M")).after(np.array([NEW_YEAR])).tolist() == [
        parse_moment("2024-12-01T00:00:00Z")
    ]


def test_local_times_in_a_filter() -> None:
    filter_ = """t > ISO '2025-01-01T09:00:00' and name == "ISO '2025-01-01T09:00:00'" and iso == 3"""
    assert with_offsets(filter_, "Asia/Tokyo") == filter_.replace(
        "> ISO '2025-01-01T09:00:00'", f"> ISO '{NEW_YEAR_TEXT}'"
    )
    for kept in (f"t > ISO '{NEW_YEAR_TEXT}'", "t > ISO 'soon'", "t > ISO '2025-04-31T00:00:00'", "a == 1"):
        assert with_offsets(kept, "Asia/Tokyo") == kept
    assert with_offsets(filter_, "UTC") == filter_


def test_moments_are_ordered_and_grouped() -> None:
    of = CollectionSchema("c", (FieldSchema(FieldID(1), "t", DataType.TIMESTAMPTZ, nullable=True),))
    order = parse_order("t:desc", of)
    column = pa.array([NEW_YEAR, None, NEW_YEAR + 1])
    assert order_places({"t": column}, order).tolist() == [1, 2, 0]
    assert [field.name for field in grouping_fields(of, ("t",))] == ["t"]
