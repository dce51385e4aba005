"""Repairs on a replica's nodes before anything new is loaded there.

The channel is repaired first because reads wait for it, while loading may take long or find no room. The
other repairs remove what would be in the way: a follower that has failed, and copies that no version will
name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querynode import QueryNodeStatus
from elanus.core import catalog
from elanus.core.ids import NodeID, SegmentID
from elanus.querycoord.fleet import Fleet, Statuses


async def repaired_channel(info: QueryChannelInfo, fleet: Fleet, statuses: Statuses) -> QueryChannelInfo:
    """Return the replica, moved to a new channel if its own was lost, with its serving nodes joined to it.

    A node that serves no version is not asked to take the version in force: it has not loaded what that
    version names yet. Raises what the broker and the nodes raise.
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
    """Have nodes give up the vchannels that they cannot follow any more, to start afresh with these alone.

    Returns the updated statuses.
    """
    updated = dict(statuses)
    for node_id, status in statuses.items():
        failed = [vchannel for vchannel in collection.vchannels if vchannel in status.failures]
        for vchannel in failed:
            await fleet.node(node_id).give_up_vchannel(collection.collection_id, vchannel)
        if failed:
            updated[node_id] = await fleet.node(node_id).status(collection.collection_id)
    return updated


async def without_strays(
    info: QueryChannelInfo,
    fleet: Fleet,
    statuses: Statuses,
    wanted: Collection[SegmentID],
    places: Mapping[SegmentID, NodeID],
) -> dict[NodeID, QueryNodeStatus]:
    """Unload copies that were loaded for a version that was never announced. Returns the updated statuses.

    This happens when another load failed, and before the next reconciliation compaction moved the rows
    elsewhere or the segment was placed on another node. ``wanted``: the segments to serve. ``places``: the
    node planned for each. Copies named by the version in force are also kept: a slow node may not have
    reached that version yet.
    """
    updated = dict(statuses)
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
            updated[node_id] = await node.status(info.collection_id)
    return updated
