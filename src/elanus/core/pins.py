"""Pins: snapshots of collections whose files must stay while they are read, and for how long.

A pin with a name is one of a change feed: it keeps no files, but the deletes later than its timestamp, which
are not folded into segments meanwhile.

A reader outside the system (a Spark job) cannot be asked whether it still reads. So a pin is a lease: it ends
when it is released or when it expires, whichever is first, and is never extended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elanus.core.ids import CollectionID
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp

PIN_MS_MAX = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin. ``path``: the snapshot object, which names the files that stay; "" of a change feed.

    ``expires_ms``: Unix time. ``name`` and ``ts``: of a change feed, and what it has read up to.
    """

    pin_id: int
    collection_id: CollectionID
    path: str
    expires_ms: int
    name: str = ""
    ts: Timestamp = NO_TIMESTAMP


def expired(pins: Iterable[Pin], now_ms: int) -> tuple[Pin, ...]:
    """Return the pins that have expired."""
    return tuple(pin for pin in pins if now_ms >= pin.expires_ms)


def feed_start(pins: Iterable[Pin], collection_id: CollectionID, now_ms: int) -> Timestamp:
    """Return the timestamp after which a collection's change feeds need every delete."""
    own = (pin for pin in pins if pin.name and pin.collection_id == collection_id)
    return min((pin.ts for pin in own if now_ms < pin.expires_ms), default=MAX_TIMESTAMP)
