"""The status that a query node reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from elanus.api.querynode import QueryNodeStatus, SegmentServing
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID, IndexID, NodeID
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.growing import GrowingSegment
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.serving import ChannelServing

_USED_KEPT_S = 1.0
_NO_INDEX = IndexID(0)


class UsedMemory:
    """The memory that all copies of segments take, for statuses of single collections.

    Adding it up costs as much as there are segments. So it is done once in a while, and what has been loaded
    since is added to it. ``time_s``: a monotonic clock.
    """

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._used_bytes = 0
        self._until_s = float("-inf")

    def add(self, loaded_bytes: int) -> None:
        self._used_bytes += loaded_bytes

    def of(self, collections: Mapping[CollectionID, LoadedCollection]) -> int:
        now_s = self._time_s()
        if now_s >= self._until_s:
            self._used_bytes = sum(
                segment.memory_bytes for c in collections.values() for segment in _copies(c)
            ) + _cached_bytes(collections)
            self._until_s = now_s + _USED_KEPT_S
        return self._used_bytes


def collection_status(
    node_id: NodeID,
    collections: Mapping[CollectionID, LoadedCollection],
    collection_id: CollectionID,
    serving: Mapping[CollectionID, ChannelServing],
    used: UsedMemory,
    growing_bytes: int,
    leading: int,
) -> QueryNodeStatus:
    """Return the node's current state as far as it concerns one collection. For the loop thread.

    ``leading``: the number of vchannels that the node leads.
    """
    known = collections.get(collection_id)
    own = {} if known is None else {collection_id: known}
    channel = serving.get(collection_id)
    return replace(
        node_status(node_id, own, {} if channel is None else {collection_id: channel}, growing_bytes),
        used_bytes=used.of(collections),
        positions={},
        leads_elsewhere=leading - (0 if known is None else known.leading),
    )


def node_status(
    node_id: NodeID,
    collections: Mapping[CollectionID, LoadedCollection],
    serving: Mapping[CollectionID, ChannelServing],
    growing_bytes: int,
) -> QueryNodeStatus:
    """Return the node's current state. For the loop thread."""
    segments = tuple(segment for c in collections.values() for segment in _segments(c))
    staged = sum(s.memory_bytes for c in collections.values() for s in c.staged.values())
    channels = [channel for c in collections.values() for channel in c.channels.values()]
    return QueryNodeStatus(
        node_id=node_id,
        service_times={
            channel.vchannel: channel.tick for channel in channels if channel.follower is not None
        },
        segments=segments,
        used_bytes=staged + _cached_bytes(collections) + sum(segment.memory_bytes for segment in segments),
        growing_bytes=growing_bytes,
        versions={collection_id: c.version for collection_id, c in collections.items()},
        loaded={collection_id: tuple(c.staged) for collection_id, c in collections.items() if c.staged},
        late_messages=sum(c.follower.late_messages for c in channels if c.follower is not None),
        failures={c.vchannel: c.failure for c in channels if c.failure is not None},
        query_channels=_followed(serving),
        refused={c: channel.refused for c, channel in serving.items() if channel.refused},
        positions=_positions(channels),
        leads=tuple(vchannel for c in collections.values() for vchannel in _leads(c)),
    )


def _followed(serving: Mapping[CollectionID, ChannelServing]) -> dict[CollectionID, str]:
    return {c: channel.channel for c, channel in serving.items() if not channel.lost}


def _cached_bytes(collections: Mapping[CollectionID, LoadedCollection]) -> int:
    return sum(
        block.cached_bytes for c in collections.values() for s in c.snapshot.segments for block in s.blocks
    )


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


def _segments(collection: LoadedCollection) -> Iterator[SegmentServing]:
    snapshot = collection.snapshot
    served = {segment.segment_id: segment for segment in snapshot.segments}
    for sealed in collection.serving.values():
        if sealed.segment_id in served:
            yield SegmentServing(
                segment_id=sealed.segment_id,
                collection_id=collection.collection_id,
                partition_id=sealed.partition_id,
                vchannel=sealed.vchannel,
                rows=sealed.rows,
                sealed=True,
                memory_bytes=sealed.memory_bytes,
                index_id=sealed.index_ids[0] if sealed.index_ids else _NO_INDEX,
                index_ids=sealed.index_ids,
                visible=served[sealed.segment_id].visible_from <= snapshot.service_ts,
            )
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
                    index_id=_NO_INDEX,
                )
