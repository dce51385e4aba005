"""Pins: snapshots of collections whose files must stay while they are read, and for how long.

A reader outside the system (a Spark job) cannot be asked whether it still reads. So a pin is a lease: it ends
when it is released or when it expires, whichever is first, and is never extended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elanus.core.ids import CollectionID

PIN_MS_MAX = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin. ``path``: the snapshot object, which names the files that stay. ``expires_ms``: Unix time."""

    pin_id: int
    collection_id: CollectionID
    path: str
    expires_ms: int


def expired(pins: Iterable[Pin], now_ms: int) -> tuple[Pin, ...]:
    """Return the pins that have expired."""
    return tuple(pin for pin in pins if now_ms >= pin.expires_ms)
