"""The growing data of the query nodes, from their latest pulses: for back-pressure and for sealing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from elanus.api.querynode import QueryNodePulse
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID


def growing_memory(pulses: Iterable[QueryNodePulse]) -> tuple[GrowingMemory, ...]:
    """Return the growing data of each node that has any."""
    return tuple(
        GrowingMemory(pulse.growing_bytes, {s.segment_id: s.memory_bytes for s in pulse.growing})
        for pulse in pulses
        if pulse.growing_bytes
    )


def growing_collections(pulses: Iterable[QueryNodePulse]) -> Mapping[CollectionID, int]:
    """Return the bytes of growing rows by collection, on the node that has the most growing data."""
    fullest = max(pulses, key=lambda pulse: pulse.growing_bytes, default=None)
    found: Counter[CollectionID] = Counter()
    for segment in fullest.growing if fullest is not None else ():
        found[segment.collection_id] += segment.memory_bytes
    return dict(found)
