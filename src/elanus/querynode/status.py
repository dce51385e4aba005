"""The status that a query node reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from elanus.api.querynode import QueryNodeStatus, SegmentServing
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.growing import GrowingSegment
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.log_troubles import LogTroubles
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.sealed_servings import AT_ONCE, NO_INDEX
from elanus.querynode.serving import ChannelServing

_USED_KEPT_S = 1.0


class UsedMemory:
    """The memory that all copies of segments take, with what filters have cached in them.

    Adding it up costs as much as there are segments. So it is done once in a while for statuses of single
    collections, and what has been loaded since is added to it; other tasks run meanwhile. ``time_s``: a
    monotonic clock.
    """

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._used_bytes = 0
        self._added_bytes = 0  # since the node's start
        self._until_s = float("-inf")

    def add(self, loaded_bytes: int) -> None:
        self._used_bytes += loaded_bytes
        self._added_bytes += loaded_bytes

    async def of(self, collections: Mapping[CollectionID, LoadedCollection]) -> int:
        """Return the memory as of a short time ago."""
        now_s = self._time_s()
        if now_s >= self._until_s:
            self._until_s = now_s + _USED_KEPT_S  # others need not add it up meanwhile
            await self.now(collections)
        return self._used_bytes

    async def now(self, collections: Mapping[CollectionID, LoadedCollection]) -> int:
        """Add it up, and return it."""
        copies = [copy for c in collections.values() for copy in _copies(c)]
        added_before, used_bytes = self._added_bytes, 0
        for first in range(0, len(copies), AT_ONCE):
            if first:
                await asyncio.sleep(0)
            used_bytes += sum(map(_bytes_of, copies[first : first + AT_ONCE]))
        self._used_bytes = used_bytes + self._added_bytes - added_before
        return self._used_bytes


def collection_status(
    node_id: NodeID,
    collections: Mapping[CollectionID, LoadedCollection],
    collection_id: CollectionID,
    serving: Mapping[CollectionID, ChannelServing],
    used_bytes: int,
    growing_bytes: int,
    leading: int,
) -> QueryNodeStatus:
    """Return the node's current state as far as it concerns one collection. For the loop thread.

    ``used_bytes``: as in `UsedMemory`. ``leading``: the number of vchannels that the node leads.
    """
    known = collections.get(collection_id)
    own = {} if known is None else {collection_id: known}
    channel = serving.get(collection_id)
    serves = {} if channel is None else {collection_id: channel}
    return replace(
        node_status(node_id, own, serves, used_bytes, growing_bytes),
        positions={},
        leads_elsewhere=leading - (0 if known is None else known.leading),
    )


def node_status(
    node_id: NodeID,
    collections: Mapping[CollectionID, LoadedCollection],
    serving: Mapping[CollectionID, ChannelServing],
    used_bytes: int,
    growing_bytes: int,
) -> QueryNodeStatus:
    """Return the node's current state. For the loop thread. ``used_bytes``: as in `UsedMemory`.

    It is fast only after `prepare`.
    """
    segments = tuple(chain.from_iterable(_segments(c) for c in collections.values()))
    channels = [channel for c in collections.values() for channel in c.channels.values()]
    return QueryNodeStatus(
        node_id=node_id,
        service_times={
            channel.vchannel: channel.tick for channel in channels if channel.follower is not None
        },
        segments=segments,
        used_bytes=used_bytes,
        growing_bytes=growing_bytes,
        versions={collection_id: c.version for collection_id, c in collections.items()},
        loaded={collection_id: tuple(c.staged) for collection_id, c in collections.items() if c.staged},
        late_messages=sum(c.follower.late_messages for c in channels if c.follower is not None),
        failures={c.vchannel: c.failure for c in channels if c.failure is not None},
        unreadable_logs={c: tuple(t.texts.values()) for c, t in _troubled(collections)},
        query_channels=_followed(serving),
        refused={c: channel.refused for c, channel in serving.items() if channel.refused},
        positions=_positions(channels),
        leads=tuple(vchannel for c in collections.values() for vchannel in _leads(c)),
    )


def _troubled(
    collections: Mapping[CollectionID, LoadedCollection],
) -> Iterator[tuple[CollectionID, LogTroubles]]:
    return ((c, of.log_troubles) for c, of in collections.items() if of.log_troubles.texts)


def _followed(serving: Mapping[CollectionID, ChannelServing]) -> dict[CollectionID, str]:
    return {c: channel.channel for c, channel in serving.items() if not channel.lost}


def _bytes_of(copy: SealedSegment | GrowingSegment) -> int:
    cached_bytes = 0
    for block in copy.blocks:
        cached_bytes += block.cached_bytes
    return copy.memory_bytes + cached_bytes


def _copies(collection: LoadedCollection) -> Iterator[SealedSegment | GrowingSegment]:
    yield from collection.serving.values()
    yield from collection.staged.values()
    yield from _growing(collection)


def _growing(collection: LoadedCollection) -> Iterator[GrowingSegment]:
    for channel in collection.channels.values():
        if channel.follower is not None:
            yield from channel.follower.growing.values()


def _leads(collection: LoadedCollection) -> Iterator[str]:
    return (v for v in collection.leads if collection.channels[v].follower is not None)


def _positions(channels: Iterable[FollowedVchannel]) -> dict[str, int]:
    found: dict[str, int] = {}
    for channel in channels:
        pchannel = pchannel_of(channel.vchannel)
        for follower in channel.followers():
            if follower.needs_log:
                found[pchannel] = min(found.get(pchannel, follower.position), follower.position)
    return found


async def prepare(collections: Iterable[LoadedCollection]) -> None:
    """Prepare for a status of these collections. Other tasks run meanwhile."""
    for collection in tuple(collections):
        await collection.servings.prepare(collection.serving)


def _segments(collection: LoadedCollection) -> Iterable[SegmentServing]:
    snapshot = collection.snapshot
    sealed = collection.servings.of(snapshot.service_ts, collection.sealed_views, collection.serving)
    growing = {segment.segment_id for segment in snapshot.segments[len(sealed) :]}
    return chain(sealed, _growing_servings(collection, growing)) if growing else sealed


def _growing_servings(collection: LoadedCollection, served: set[SegmentID]) -> Iterator[SegmentServing]:
    for channel in collection.channels.values():
        for growing in channel.follower.growing.values() if channel.follower is not None else ():
            if growing.segment_id in served:
                yield SegmentServing(
                    segment_id=growing.segment_id,
                    collection_id=collection.collection_id,
                    partition_id=growing.partition_id,
                    vchannel=channel.vchannel,
                    rows=growing.rows,
                    sealed=False,
                    memory_bytes=growing.memory_bytes,
                    index_id=NO_INDEX,
                )
