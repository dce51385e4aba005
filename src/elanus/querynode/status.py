"""The status that a query node reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from elanus.api.querynode import QueryNodeStatus, SegmentServing
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID, IndexID, NodeID
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.loaded_collection import LoadedCollection

_NO_INDEX = IndexID(0)


def node_status(
    node_id: NodeID,
    collections: Mapping[CollectionID, LoadedCollection],
    query_channels: Mapping[CollectionID, str],
    growing_bytes: int,
) -> QueryNodeStatus:
    """Return the node's current state. For the loop thread."""
    segments = tuple(segment for c in collections.values() for segment in _segments(c))
    staged = sum(s.memory_bytes for c in collections.values() for s in c.staged.values())
    cached = sum(
        block.cached_bytes for c in collections.values() for s in c.snapshot.segments for block in s.blocks
    )
    channels = [channel for c in collections.values() for channel in c.channels.values()]
    return QueryNodeStatus(
        node_id=node_id,
        service_times={
            channel.vchannel: channel.tick for channel in channels if channel.follower is not None
        },
        segments=segments,
        used_bytes=staged + cached + sum(segment.memory_bytes for segment in segments),
        growing_bytes=growing_bytes,
        versions={collection_id: c.snapshot.version for collection_id, c in collections.items()},
        loaded={collection_id: tuple(c.staged) for collection_id, c in collections.items() if c.staged},
        late_messages=sum(c.follower.late_messages for c in channels if c.follower is not None),
        failures={c.vchannel: c.failure for c in channels if c.failure is not None},
        query_channels=query_channels,
        positions=_positions(channels),
        leads=tuple(v for c in collections.values() for v in c.leads if c.channels[v].follower is not None),
    )


def _positions(channels: Iterable[FollowedVchannel]) -> dict[str, int]:
    found: dict[str, int] = {}
    for channel in channels:
        pchannel = pchannel_of(channel.vchannel)
        for follower in channel.followers():
            if follower.failure is None:
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
