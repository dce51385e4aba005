"""Time-to-live: how long rows of a collection live, and which of them have expired.

A row expires when it has been there for the collection's time-to-live, or when the collection is truncated.
Reads as of a moment do not see the
rows that had expired by then; compaction removes them later (`elanus.core.compaction`).
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms

TTL_PROPERTY = "collection.ttl.seconds"
TTL_FIELD_PROPERTY = "ttl_field"
_TTL_MAX_S = 100 * 366 * 86_400


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
        seconds = _TTL_MAX_S + 1
    if not -1 <= seconds <= _TTL_MAX_S:
        raise InvalidParameter(
            f"collection TTL is out of range, expect [-1, {_TTL_MAX_S}], got {text}: give {TTL_PROPERTY} as "
            "a whole number of seconds; 0 for rows that do not expire"
        )
    return seconds if seconds > 0 else None


def refuse_ttl_field(properties: Mapping[str, str]) -> None:
    """Raises `NotSupported` for rows that are to expire by a field of their own."""
    if TTL_FIELD_PROPERTY in properties:
        raise NotSupported(
            f"the property {TTL_FIELD_PROPERTY}={properties[TTL_FIELD_PROPERTY]} is not supported by this "
            f"release: use {TTL_PROPERTY}, or delete rows by a filter"
        )


def expired_until(ttl_s: int | None, read_ts: Timestamp, truncated: Timestamp = NO_TIMESTAMP) -> Timestamp:
    """Return the timestamp up to which rows have expired for a read as of ``read_ts``; 0: none have.

    ``ttl_s``: the collection's time-to-live; None: its rows do not expire by time. ``truncated``: up to then
    all rows expired at once, at that moment.
    """
    by_time = NO_TIMESTAMP if ttl_s is None else minus_ms(read_ts, ttl_s * 1000)
    return max(by_time, truncated) if truncated <= read_ts else by_time
