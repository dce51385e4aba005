"""Time-to-live: how long rows of a collection live, and which of them have expired.

A row expires when it has been there for the collection's time-to-live, when the collection is truncated, or
at the moment in a field of its own (`elanus.core.schema.CollectionSchema.ttl_field`). Reads as of a moment do
not see the rows that had expired by then; compaction removes them later (`elanus.core.compaction`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.schema import CollectionSchema, DataType
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms, physical_ms

TTL_PROPERTY = "collection.ttl.seconds"
TTL_FIELD_PROPERTY = "ttl_field"
NEVER_EXPIRES_US = 2**63 - 1
_TTL_MAX_S = 3_155_760_000
"""A hundred years of 365.25 days."""


def time_to_live_s(properties: Mapping[str, str]) -> int | None:
    """Return the collection's time-to-live; None: its rows do not expire (no such property, or not above 0).

    Raises `InvalidParameter` for a value that is not a whole number of seconds.
    """
    text = properties.get(TTL_PROPERTY)
    if text is None:
        return None
    try:
        seconds = int(text)
    except ValueError:
        raise InvalidParameter(
            "collection ttl property value not valid, parse error: "
            f"collection TTL is not a valid positive integer: {TTL_PROPERTY} is {text!r}; "
            "give a whole number of seconds, or 0 for rows that do not expire"
        ) from None
    if not -1 <= seconds <= _TTL_MAX_S:
        raise InvalidParameter(
            f"collection TTL is out of range, expect [-1, {_TTL_MAX_S}], got {text}: give {TTL_PROPERTY} as "
            "a whole number of seconds; 0 for rows that do not expire"
        )
    return seconds if seconds > 0 else None


def checked_ttl_field(properties: Mapping[str, str], schema: CollectionSchema) -> str:
    """Return the field that says when a row expires; "": the rows have none. Raises `InvalidParameter`."""
    name = properties.get(TTL_FIELD_PROPERTY)
    if name is None:
        return ""
    field = schema.by_name.get(name)
    if field is None:
        raise InvalidParameter(f"ttl field name {name} not found in schema")
    if field.data_type is not DataType.TIMESTAMPTZ:
        raise InvalidParameter(f"ttl field must be timestamptz, field name = {name}")
    if TTL_PROPERTY in properties:
        raise InvalidParameter("collection TTL and ttl field cannot be set at the same time")
    return name


def check_ttl_change(properties: Mapping[str, str], kept: Mapping[str, str]) -> None:
    """Refuse a change that sets one of the two kinds of expiry while the other is set.

    ``kept``: the earlier properties that the change does not delete. Raises `InvalidParameter`.
    """
    if TTL_PROPERTY in properties and TTL_FIELD_PROPERTY in properties:
        raise InvalidParameter("collection TTL and ttl field cannot be set at the same time")
    if TTL_PROPERTY in properties and TTL_FIELD_PROPERTY in kept:
        raise InvalidParameter(
            "ttl field is already exists, cannot be set collection TTL: "
            f"drop the property {TTL_FIELD_PROPERTY} first"
        )
    if TTL_FIELD_PROPERTY in properties and TTL_PROPERTY in kept:
        raise InvalidParameter(
            f"collection TTL is already set, cannot be set ttl field: drop the property {TTL_PROPERTY} first"
        )


def moments_of_expiry(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return when rows expire, in microseconds since 1970, by a column of moments. shape (n,)

    Rows with a null, or a moment that is not after 1970, never expire.
    """
    moments = pc.fill_null(column, NEVER_EXPIRES_US).to_numpy(zero_copy_only=False)
    return np.where(moments > 0, moments, NEVER_EXPIRES_US)


def moment_us(ts: Timestamp) -> int:
    """Return the moment of a timestamp, in microseconds since 1970."""
    return physical_ms(ts) * 1000


def expired_until(ttl_s: int | None, read_ts: Timestamp, truncated: Timestamp = NO_TIMESTAMP) -> Timestamp:
    """Return the timestamp up to which rows have expired for a read as of ``read_ts``; 0: none have.

    ``ttl_s``: the collection's time-to-live; None: its rows do not expire by time. ``truncated``: up to then
    all rows expired at once, at that moment.
    """
    by_time = NO_TIMESTAMP if ttl_s is None else minus_ms(read_ts, ttl_s * 1000)
    return max(by_time, truncated) if truncated <= read_ts else by_time
