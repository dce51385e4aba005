"""Whether a collection with automatic primary keys also takes keys that clients send.

With the property `ALLOW_INSERT_AUTO_ID` rows that are written with a key keep it, in inserts and upserts;
rows without one get an automatic key. Without the property inserts must leave the key out, and an upsert
gives a row a fresh key in place of the one that names it. Sent keys are not compared with automatic ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter

ALLOW_INSERT_AUTO_ID = "allow_insert_auto_id"


def keeps_sent_keys(properties: Mapping[str, str]) -> bool:
    """Raises `InvalidParameter` for a value that is neither true nor false."""
    text = properties.get(ALLOW_INSERT_AUTO_ID, "false")
    if text.lower() not in ("true", "false"):
        raise InvalidParameter(f"{ALLOW_INSERT_AUTO_ID} is {text!r}: give true or false")
    return text.lower() == "true"
