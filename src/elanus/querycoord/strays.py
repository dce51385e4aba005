"""Finds collections on query nodes that missed their release.

The node was unreachable at the time, or the coordinator stopped in the middle of the release. A look costs
what has changed since the one before: collections that appeared on a node, and those that were released.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from elanus.core.ids import CollectionID, NodeID
from elanus.querycoord.fleet import Pulses


class Strays:
    """``loaded``: the collections that are loaded; `released` is called for each that is so no more."""

    def __init__(self, loaded: Container[CollectionID]) -> None:
        self._loaded = loaded
        self._before: dict[NodeID, Mapping[CollectionID, int]] = {}
        self._released: set[CollectionID] = set()
        self._found: set[tuple[NodeID, CollectionID]] = set()

    def released(self, collection_id: CollectionID) -> None:
        self._released.add(collection_id)

    def among(self, pulses: Pulses) -> list[tuple[NodeID, CollectionID]]:
        """Return the nodes with the collections that they have, but that are not loaded.

        They are returned each time until they are gone. A node that did not answer last time is looked at as
        a whole.
        """
        for node_id, pulse in pulses.items():
            before = self._before.get(node_id, {})
            if pulse.versions is not before and pulse.versions != before:
                self._found.update((node_id, c) for c in pulse.versions.keys() - before.keys())
            self._found.update((node_id, c) for c in self._released)
        self._before = {node_id: pulse.versions for node_id, pulse in pulses.items()}
        self._released = set()
        self._found = {(n, c) for n, c in self._found if self._is_stray(n, c)}
        return sorted(self._found)

    def _is_stray(self, node_id: NodeID, collection_id: CollectionID) -> bool:
        return collection_id in self._before.get(node_id, {}) and collection_id not in self._loaded
