"""Finds the loaded collections that their query nodes do not serve as they should.

A restarted node has lost its state and does not report that; a node may lose a query channel, or fail to
follow a vchannel. So the nodes' pulses are compared with those of the look before. Only collections of which
something has changed are examined, and those that were not served then: a look costs what has changed, and
not what is loaded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from elanus.api.querynode import QueryNodePulse
from elanus.core.channels import collection_of
from elanus.core.ids import CollectionID, NodeID
from elanus.core.resource_groups import Groups
from elanus.querycoord.loader import CollectionLoader


class ServedWatch:
    """``loaders``: those of the loaded collections."""

    def __init__(self, loaders: Mapping[CollectionID, CollectionLoader]) -> None:
        self._loaders = loaders
        self._before: Mapping[NodeID, QueryNodePulse] = {}
        self._groups: Groups = {}
        self._due: set[CollectionID] = set()
        self._unserved: set[CollectionID] = set()

    def reconciled(self, collection_id: CollectionID) -> None:
        """Note that what a collection should serve may have changed."""
        self._due.add(collection_id)

    def check(self, pulses: Mapping[NodeID, QueryNodePulse], groups: Groups) -> None:
        """Wake the loaders of collections that are not served, or whose nodes are not those of their
        groups."""
        others = pulses.keys() != self._before.keys()
        concerned = self._due | self._unserved | self._changed(pulses)
        if others or groups != self._groups:
            concerned = set(self._loaders)
        self._before, self._groups, self._due = pulses, groups, set()
        was_unserved, self._unserved = self._unserved, set()
        for collection_id in sorted(concerned):
            loader = self._loaders.get(collection_id)
            if loader is None or (loader.is_served(pulses) and loader.is_grouped(pulses)):
                continue
            self._unserved.add(collection_id)
            if others or collection_id not in was_unserved:
                loader.wake()
            else:
                loader.reconcile_again()

    def _changed(self, pulses: Mapping[NodeID, QueryNodePulse]) -> set[CollectionID]:
        """Return the collections of which a node serves another version, follows another channel, or has
        begun or ceased to fail."""
        found: set[CollectionID] = set()
        for node_id, pulse in pulses.items():
            before = self._before.get(node_id)
            if before is not None:
                found |= _differing(pulse.versions, before.versions)
                found |= _differing(pulse.query_channels, before.query_channels)
                failed = pulse.failures.keys() ^ before.failures.keys()
                found |= {collection_of(vchannel) for vchannel in failed}
        return found


def _differing(
    now: Mapping[CollectionID, Hashable], then: Mapping[CollectionID, Hashable]
) -> set[CollectionID]:
    """Return the keys with other values. Nearly always there are none, and often the mappings are one."""
    return set() if now is then or now == then else {key for key, _ in now.items() ^ then.items()}
