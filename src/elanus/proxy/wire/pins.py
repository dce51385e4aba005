"""The place of a pin, for the guard: a request that releases one has only its id."""

from __future__ import annotations

from typing import TypeAlias

from elanus.proxy.api.snapshots import SnapshotVerbs

Place: TypeAlias = tuple[str, tuple[str, ...]]
"""A database, and names of collections in it; without names, all of them."""


def place_of_pin(verbs: SnapshotVerbs, pin_id: int) -> Place | None:
    """Return where the collection of a pin is: everywhere, if the collection is gone.

    None for a pin that has ended: releasing it does nothing, so the place of the request is right.
    """
    place = verbs.place_of_pin(pin_id)
    if place is None:
        return None
    database, name = place
    return database, (name,) if name else ()
