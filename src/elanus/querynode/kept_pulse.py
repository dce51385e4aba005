"""The pulse of a query node, kept as the node changes.

Every second the node is asked for it, and may have loaded ten thousand collections. So the part of each
collection is computed when it has changed since the pulse before, and the positions in the log are those of
the shared readers: a vchannel that has taken in all that its reader has read needs the log from where its
reader does. Vchannels that are behind their reader keep their collection among the changed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeVar

from elanus.api.querynode import GrowingRows, QueryNodePulse
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID, NodeID
from elanus.log.dispatcher import Dispatcher
from elanus.querynode.follower import Follower
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.serving import ChannelServing

V = TypeVar("V")
Collections = Mapping[CollectionID, LoadedCollection]
Serving = Mapping[CollectionID, ChannelServing]


class KeptPulse:
    """For the loop thread. ``collections`` and ``serving``: those of the node, which change.

    Mappings that it has handed out are replaced, never changed.
    """

    def __init__(
        self,
        node_id: NodeID,
        incarnation: str,
        dispatcher: Dispatcher,
        collections: Collections,
        serving: Serving,
    ) -> None:
        self._node_id = node_id
        self._incarnation = incarnation
        self._dispatcher = dispatcher
        self._collections = collections
        self._serving = serving
        self._changed: set[CollectionID] = set()
        self._versions: Mapping[CollectionID, int] = {}
        self._channels: Mapping[CollectionID, str] = {}
        self._failures_of: dict[CollectionID, dict[str, str]] = {}
        self._failures: Mapping[str, str] = {}
        self._growing_of: dict[CollectionID, tuple[GrowingRows, ...]] = {}
        self._growing: tuple[GrowingRows, ...] = ()

    def changed(self, collection_id: CollectionID) -> None:
        """Note that the collection, or the query channel that serves it, may have changed."""
        self._changed.add(collection_id)

    def take(self, growing_bytes: int) -> QueryNodePulse:
        """Return the pulse. ``growing_bytes``: those of the node."""
        positions = self._dispatcher.seeks()
        changed, self._changed = self._changed, set()
        for collection_id in changed:
            for follower in _behind(self._collections.get(collection_id)):
                pchannel, position = pchannel_of(follower.vchannel), follower.position
                positions[pchannel] = min(positions.get(pchannel, position), position)
                self._changed.add(collection_id)
        self._update(changed)
        return QueryNodePulse(
            self._node_id,
            self._incarnation,
            growing_bytes,
            self._growing if growing_bytes else (),
            self._versions,
            self._channels,
            self._failures,
            positions,
        )

    def _update(self, changed: set[CollectionID]) -> None:
        versions, channels, failures, growing = {}, {}, {}, {}
        for collection_id in changed:
            collection, serving = self._collections.get(collection_id), self._serving.get(collection_id)
            if collection is not None:
                versions[collection_id] = collection.version
            if serving is not None and not serving.lost:
                channels[collection_id] = serving.channel
            if failed := _failures(collection):
                failures[collection_id] = failed
            if rows := tuple(_growing(collection)):
                growing[collection_id] = rows
        self._versions = _with(self._versions, versions, changed)
        self._channels = _with(self._channels, channels, changed)
        if (of := _with(self._failures_of, failures, changed)) is not self._failures_of:
            self._failures_of = dict(of)
            self._failures = {v: text for one in of.values() for v, text in one.items()}
        if (grown := _with(self._growing_of, growing, changed)) is not self._growing_of:
            self._growing_of = dict(grown)
            self._growing = tuple(chain.from_iterable(grown.values()))

    def check(self) -> None:
        """Raise `AssertionError` if a change was not noted. Looks at all collections."""
        for collection_id in (self._collections.keys() | self._versions.keys()) - self._changed:
            collection, serving = self._collections.get(collection_id), self._serving.get(collection_id)
            channel = None if serving is None or serving.lost else serving.channel
            growing = [rows.segment_id for rows in self._growing_of.get(collection_id, ())]
            kept = (
                self._versions.get(collection_id),
                self._channels.get(collection_id),
                self._failures_of.get(collection_id, {}),
                growing,
            )
            now = (
                None if collection is None else collection.version,
                channel,
                _failures(collection),
                [rows.segment_id for rows in _growing(collection)],
            )
            assert kept == now, f"LIVE1: of {collection_id} the pulse has {kept}, the node {now}"
            behind = [follower.vchannel for follower in _behind(collection)]
            assert not behind, f"DUR1: the pulse has the positions of readers, and {behind} are behind"


def _with(
    kept: Mapping[CollectionID, V], new: Mapping[CollectionID, V], changed: set[CollectionID]
) -> Mapping[CollectionID, V]:
    """Return the mapping with what is new of the changed collections; itself if that is the same."""
    if all(kept.get(collection_id) == new.get(collection_id) for collection_id in changed):
        return kept
    merged = {**kept, **new}
    for collection_id in changed - new.keys():
        merged.pop(collection_id, None)
    return merged


def _failures(collection: LoadedCollection | None) -> dict[str, str]:
    channels = () if collection is None else collection.channels.values()
    return {c.vchannel: c.failure for c in channels if c.failure is not None}


def _growing(collection: LoadedCollection | None) -> Iterator[GrowingRows]:
    if collection is not None:
        for channel in collection.channels.values():
            for one in () if channel.follower is None else channel.follower.growing.values():
                yield GrowingRows(one.segment_id, collection.collection_id, one.memory_bytes)


def _behind(collection: LoadedCollection | None) -> Iterator[Follower]:
    """Return the followers that need the log from elsewhere than their readers do."""
    for channel in () if collection is None else collection.channels.values():
        for follower in channel.followers():
            if follower.needs_log and not follower.is_at_its_reader:
                yield follower
