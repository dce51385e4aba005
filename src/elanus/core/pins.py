"""Pins: snapshots of collections whose files must stay, and for how long.

A reader outside the system (a Spark job) cannot be asked whether it still reads. So its pin is a lease: it
ends when it is released or when it expires, whichever is first, and is never extended. A *named snapshot* is
a pin with a name, and has no end unless it is given one. Several pins may be on one snapshot: its object goes
with the last of them. The pin of a *change feed* keeps no files, but the deletes later than its timestamp,
which are not folded into segments meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elanus.core.ids import CollectionID
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp

NEVER = 0
"""The expiry of a pin that only its release ends."""
PIN_MS_MAX = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin. ``path``: the snapshot object, which names the files that stay; "" of a change feed.

    ``expires_ms``: Unix time, or `NEVER`. ``name``: of a named snapshot, "" otherwise; it is unique within
    the collection. ``read_ts``: the moment that the snapshot shows, or up to which a feed has been read.
    ``clones``: it is held for a clone that is being made, and is not expired before that. ``feed``: the name
    of a change feed, "" otherwise. ``received``: the key of a restore whose files are being
    written, "" otherwise.
    """

    pin_id: int
    collection_id: CollectionID
    path: str
    expires_ms: int
    name: str = ""
    description: str = ""
    read_ts: Timestamp = NO_TIMESTAMP
    clones: bool = False
    feed: str = ""
    received: str = ""


def restore_key(database: str, collection: str, key: str = "") -> str:
    """Return what names a restore (`Pin.received`).

    It begins with the place: no other one can take over what is received, by an id that is easy to guess.
    """
    return f"{database}/{collection}/{key}"


def restored_place(received: str) -> tuple[str, str]:
    """Return the database and the collection that a restore is for, from its `restore_key`."""
    database, collection, _ = received.split("/", 2)
    return database, collection


def expired(pins: Iterable[Pin], now_ms: int) -> tuple[Pin, ...]:
    """Return the pins that have expired."""
    return tuple(pin for pin in pins if pin.expires_ms != NEVER and now_ms >= pin.expires_ms)


def feed_start(pins: Iterable[Pin], collection_id: CollectionID, now_ms: int) -> Timestamp:
    """Return the timestamp after which a collection's change feeds need every delete."""
    own = (pin for pin in pins if pin.feed and pin.collection_id == collection_id)
    return min((pin.read_ts for pin in own if now_ms < pin.expires_ms), default=MAX_TIMESTAMP)
