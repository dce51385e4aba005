"""Changes of a collection that clients send as properties.

Two names of properties stand for what a collection has anyway: its description and its consistency level.
The other properties are kept under their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace

from elanus.core.catalog import Collection
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter
from elanus.core.index_properties import MMAP_KEY
from elanus.core.limits import COLLECTION_DESCRIPTION_MAX_BYTES, PROPERTIES_MAX
from elanus.core.warmup import COLLECTION_WARMUPS

DESCRIPTION_PROPERTY = "collection.description"
CONSISTENCY_PROPERTY = "consistency_level"


def check_property_change(properties: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Check what does not depend on the collection. Raises `InvalidParameter`."""
    if properties and deleted:
        raise InvalidParameter(
            "cannot provide both DeleteKeys and ExtraParams: set or drop properties, not both"
        )
    if not properties and not deleted:
        raise InvalidParameter("no properties or delete keys provided")
    if CONSISTENCY_PROPERTY in properties:
        _consistency_level(properties[CONSISTENCY_PROPERTY])


def check_description(text: str) -> None:
    """Check a new description of a collection; one of an earlier release may be longer.

    Raises `InvalidParameter`.
    """
    if len(text.encode()) > COLLECTION_DESCRIPTION_MAX_BYTES:
        raise InvalidParameter(
            f"the length of a collection description must not exceed {COLLECTION_DESCRIPTION_MAX_BYTES} bytes"
        )


def check_property_count(properties: Sized, of: str) -> None:
    """Check the number of properties of something new. ``of``: what. Raises `InvalidParameter`."""
    if len(properties) > PROPERTIES_MAX:
        raise InvalidParameter(
            f"{of} has {len(properties)} properties, and at most {PROPERTIES_MAX} are allowed: leave some out"
        )


def changed_properties(
    known: Mapping[str, str], added: Mapping[str, str], deleted: Sequence[str]
) -> dict[str, str]:
    """Return properties of a database or a collection after a change.

    Raises `InvalidParameter` for too many. Those with more of an earlier release may change and lose some.
    """
    gone = set(deleted)  # a client may send many of either, and this runs on the event loop
    changed = {k: v for k, v in {**known, **added}.items() if k not in gone}
    if len(changed) > max(PROPERTIES_MAX, len(known)):
        raise InvalidParameter(
            f"there would be {len(changed)} properties, and at most {PROPERTIES_MAX} are allowed: "
            "drop some first"
        )
    return changed


def collection_needs_release(properties: Mapping[str, str], deleted: Sequence[str]) -> str | None:
    """Return what a loaded collection does not allow of a change, in the reference's words; None: nothing."""
    if MMAP_KEY in properties:
        return "alter mmap properties"
    if any(key in properties for key in COLLECTION_WARMUPS):
        return "alter warmup properties"
    if MMAP_KEY in deleted:
        return "delete mmap properties"
    warmup = next((key for key in deleted if key in COLLECTION_WARMUPS), None)
    return None if warmup is None else f"delete {warmup} properties"


def with_changed_properties(
    collection: Collection, properties: Mapping[str, str], deleted: Sequence[str]
) -> Collection:
    """Return the collection after a change of its properties. Raises `InvalidParameter`."""
    named = {
        name: value
        for name, value in properties.items()
        if name not in (DESCRIPTION_PROPERTY, CONSISTENCY_PROPERTY)
    }
    changed = replace(collection, properties=changed_properties(collection.properties, named, deleted))
    description = properties.get(DESCRIPTION_PROPERTY, collection.schema.description)
    if description != collection.schema.description:
        check_description(description)
        changed = replace(changed, schema=replace(collection.schema, description=description))
    if CONSISTENCY_PROPERTY in properties:
        level = _consistency_level(properties[CONSISTENCY_PROPERTY])
        changed = replace(changed, consistency_level=level)
    return changed


def _consistency_level(text: str) -> ConsistencyLevel:
    """A level is sent by its name or by its number on the wire."""
    for level in ConsistencyLevel:
        if text.upper() == level.name or text == str(level.value):
            return level
    names = ", ".join(level.name.capitalize() for level in ConsistencyLevel)
    raise InvalidParameter(f"invalid consistency level: {text}: use one of {names}")
