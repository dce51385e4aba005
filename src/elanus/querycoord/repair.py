"""What is put right on a replica's nodes before anything new is brought to them.

Reads wait for the first: what is to be loaded beside may take long, or find no room. The others free what
would be in the way: a following that has failed, and copies that no version will name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from elanus.core import catalog
from elanus.core.ids import NodeID, SegmentID
from elanus.querycoord.fleet import Fleet, Statuses
from elanus.rpc.querychannel import QueryChannelInfo
from elanus.rpc.querynode import QueryNodeStatus


async def mended_channel(info: QueryChannelInfo, fleet: Fleet, statuses: Statuses) -> QueryChannelInfo:
    """The replica, where its channel was lost on another one, on which the version in force is answered.

    A node that serves no version is not asked to take this one: it has yet to load what that names. Raises
    what the broker and the nodes raise.
    """
    named = sorted({*info.sealed.values(), *info.vchannels.values()})
    serving = [n for n in named if n in statuses and statuses[n].versions.get(info.collection_id)]
    if all(statuses[n].query_channels.get(info.collection_id, "") == info.channel for n in serving):
        return info
    opened = await fleet.open_channel(info)
    for node_id in serving:
        await fleet.join(opened, statuses[node_id])
    return info if opened.channel == info.channel else opened


async def without_failures(
    fleet: Fleet, statuses: Statuses, collection: catalog.Collection
) -> dict[NodeID, QueryNodeStatus]:
    """Where a vchannel's following has failed, the node begins anew with the collection."""
    mended = dict(statuses)
    for node_id, status in statuses.items():
        if any(vchannel in status.failures for vchannel in collection.vchannels):
            node = fleet.node(node_id)
            await node.release_collection(collection.collection_id)
            mended[node_id] = await node.status()
    return mended


async def without_strays(
    info: QueryChannelInfo,
    fleet: Fleet,
    statuses: Statuses,
    wanted: Collection[SegmentID],
    places: Mapping[SegmentID, NodeID],
) -> dict[NodeID, QueryNodeStatus]:
    """Nodes let go of copies that were loaded for a version which never came.

    Another load failed, and by the next look compaction had brought the rows elsewhere, or the segment had
    got another place. ``wanted``: the segments to serve; ``places``: where each was to be. Left alone is also
    what the version in force names: a slow node may not have come to that version yet.
    """
    mended = dict(statuses)
    for node_id, status in statuses.items():
        strays = [
            s
            for s in status.loaded.get(info.collection_id, ())
            if info.sealed.get(s) != node_id
            if s not in wanted or places.get(s, node_id) != node_id
        ]
        if strays:
            node = fleet.node(node_id)
            await node.unload_segments(info.collection_id, strays)
            mended[node_id] = await node.status()
    return mended
