"""The field by which rows expire: which may be one, and what its values mean."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.time_to_live import NEVER_EXPIRES_US, checked_ttl_field, moment_us, moments_of_expiry
from elanus.core.timestamps import Timestamp

SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "until", DataType.TIMESTAMPTZ, nullable=True),
    ),
)


def test_a_field_of_moments_may_be_it() -> None:
    assert checked_ttl_field({"ttl_field": "until"}, SCHEMA) == "until"
    assert checked_ttl_field({"collection.ttl.seconds": "5"}, SCHEMA) == ""


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"ttl_field": "nope"}, "ttl field name nope not found in schema"),
        ({"ttl_field": "id"}, "ttl field must be timestamptz, field name = id"),
        (
            {"ttl_field": "until", "collection.ttl.seconds": "5"},
            "collection TTL and ttl field cannot be set at the same time",
        ),
    ],
)
def test_what_is_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        checked_ttl_field(properties, SCHEMA)


def test_rows_without_a_moment_never_expire() -> None:
    moments = moments_of_expiry(pa.array([5, None, 0, -7], pa.int64()))
    assert moments.tolist() == [5, *[NEVER_EXPIRES_US] * 3]
    assert moment_us(Timestamp(7 << 18 | 3)) == 7000
