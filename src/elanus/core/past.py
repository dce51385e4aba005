"""Moments in the past as users write them, for clones and reads of earlier versions."""

from __future__ import annotations

import datetime

from elanus.core.errors import InvalidParameter
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, compose


def moment_of(text: str) -> Timestamp:
    """Read a moment: "" means the present, ISO 8601 (UTC unless it says otherwise), or a Milvus timestamp.

    Raises `InvalidParameter`.
    """
    if not text:
        return NO_TIMESTAMP
    if text.isascii() and text.isdigit():
        return Timestamp(int(text))
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameter(
            f"{text[:100]} is no moment: write 2026-01-31T12:00:00, with +01:00 for another time zone than "
            "UTC"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return compose(int(when.timestamp() * 1000))
