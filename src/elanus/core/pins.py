"""Pins: snapshots of collections whose files must stay, and for how long.

A reader outside the system (a Spark job) cannot be asked whether it still reads. So its pin is a lease: it
ends when it is released or when it expires, whichever is first, and is never extended. A *named snapshot* is
a pin with a name, and has no end unless it is given one. Several pins may be on one snapshot: its object goes
with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

NEVER = 0
"""The expiry of a pin that only its release ends."""
PIN_MS_MAX = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin. ``path``: the snapshot object, which names the files that stay. ``expires_ms``: Unix time, or
    `NEVER`.

    ``name``: of a named snapshot, "" otherwise; it is unique within the collection. ``read_ts``: the moment
    that the snapshot shows. ``clones``: it is held for a clone that is being made, and is not expired before
    that.
    """

    pin_id: int
    collection_id: CollectionID
    path: str
    expires_ms: int
    name: str = ""
    description: str = ""
    read_ts: Timestamp = NO_TIMESTAMP
    clones: bool = False


def expired(pins: Iterable[Pin], now_ms: int) -> tuple[Pin, ...]:
    """Return the pins that have expired."""
    return tuple(pin for pin in pins if pin.expires_ms != NEVER and now_ms >= pin.expires_ms)
