"""The growing data of the query nodes, from their latest statuses: for back-pressure and for sealing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from elanus.api.querynode import QueryNodeStatus
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID


def growing_memory(statuses: Iterable[QueryNodeStatus]) -> tuple[GrowingMemory, ...]:
    """Return the growing data of each node that has any."""
    return tuple(
        GrowingMemory(
            status.growing_bytes, {s.segment_id: s.memory_bytes for s in status.segments if not s.sealed}
        )
        for status in statuses
        if status.growing_bytes
    )


def growing_collections(statuses: Iterable[QueryNodeStatus]) -> Mapping[CollectionID, int]:
    """Return the bytes of growing rows by collection, on the node that has the most growing data."""
    fullest = max(statuses, key=lambda status: status.growing_bytes, default=None)
    found: Counter[CollectionID] = Counter()
    for segment in fullest.segments if fullest is not None else ():
        if not segment.sealed:
            found[segment.collection_id] += segment.memory_bytes
    return dict(found)
