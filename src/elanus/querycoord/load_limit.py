"""The limit that a collection's property sets to the memory of a load. Checked when a load begins."""

from __future__ import annotations

from elanus.core.errors import InsufficientMemory
from elanus.core.rate_limits import LOAD_MEMORY, load_limit_bytes
from elanus.querycoord.planned_layout import pieces_of
from elanus.querycoord.target import Target

_MB = 1024 * 1024


async def check_load_limit(target: Target) -> None:
    """Raises `InsufficientMemory` when a replica of the sealed segments needs more than the limit."""
    limit_bytes = load_limit_bytes(target.collection.properties)
    if limit_bytes is None:
        return
    needed = sum(piece.size_bytes for piece in await pieces_of(target, tuple(target.segments)))
    if needed > limit_bytes:
        raise InsufficientMemory(
            f"the load of collection {target.collection.name} needs {needed / _MB:.1f} MB in "
            f"{len(target.segments)} segments, and its property {LOAD_MEMORY} allows "
            f"{limit_bytes / _MB:g} MB: load fewer partitions or fields, or raise the property"
        )
