"""The query nodes as querycoord sees them: which are alive, how each is reached, how all hear of a version.

Two fleets. `OneNode` is a process that serves itself: its proxy reads from the node's snapshot directly, so a
version is told by a call and switched by one assignment. `ChannelFleet` is any number of nodes behind query
channels, which carry versions in order with the reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from elanus.core.errors import ChannelLost, Unavailable
from elanus.core.ids import NodeID
from elanus.rpc.querychannel import (
    QueryChannelInfo,
    QueryChannels,
    SealedSegmentsChangeInfo,
    encode_message,
)
from elanus.rpc.querynode import QueryNodeApi, QueryNodeStatus, SealedSegmentsChange

_VERSIONS_PER_SESSION = 1 << 24
Statuses = Mapping[NodeID, QueryNodeStatus]


class Fleet(Protocol):
    def alive(self) -> tuple[NodeID, ...]: ...
    def node(self, node_id: NodeID) -> QueryNodeApi:
        """Raises `Unavailable` for a node that is not alive."""
        ...

    def version_after(self, latest: int) -> int:
        """The number of a new version; ``latest``: the highest that is known of."""
        ...

    async def open_channel(self, info: QueryChannelInfo) -> QueryChannelInfo:
        """The replica with a channel that exists: its own, or a new one where that was lost."""
        ...

    async def join(self, info: QueryChannelInfo, status: QueryNodeStatus) -> None:
        """Have the node follow the replica's channel, from the version that ``info`` tells of on."""
        ...

    async def announce(
        self, info: QueryChannelInfo, change: SealedSegmentsChangeInfo, statuses: Statuses
    ) -> QueryChannelInfo:
        """Tell the version to every node of the replica; the replica as it is after that.

        ``statuses``: what the nodes told of themselves, on which the change rests.
        """
        ...

    async def close_channel(self, info: QueryChannelInfo) -> None: ...


def after(info: QueryChannelInfo, change: SealedSegmentsChangeInfo) -> QueryChannelInfo:
    """The replica under the version that the change brings."""
    kept = {s: n for s, n in info.sealed.items() if s not in change.offline}
    sealed = {**kept, **change.online}
    moments = {**info.visible_from, **change.visible_from}
    return replace(
        info,
        version=change.version,
        sealed=sealed,
        vchannels=change.vchannels,
        visible_from={s: moment for s, moment in moments.items() if s in sealed},
    )


class OneNode:
    """The node of a process that serves itself. It has no channel."""

    def __init__(self, node_id: NodeID, node: QueryNodeApi) -> None:
        self._node_id = node_id
        self._node = node

    def alive(self) -> tuple[NodeID, ...]:
        return (self._node_id,)

    def node(self, node_id: NodeID) -> QueryNodeApi:
        assert node_id == self._node_id, f"there is no query node {node_id}"
        return self._node

    def version_after(self, latest: int) -> int:
        return latest + 1

    async def open_channel(self, info: QueryChannelInfo) -> QueryChannelInfo:
        return info

    async def join(self, info: QueryChannelInfo, status: QueryNodeStatus) -> None:
        """Nothing to follow."""

    async def announce(
        self, info: QueryChannelInfo, change: SealedSegmentsChangeInfo, statuses: Statuses
    ) -> QueryChannelInfo:
        told = SealedSegmentsChange(
            collection_id=change.collection_id,
            version=change.version,
            online=tuple(change.online),
            offline=tuple(s for s in change.offline if s not in change.online),
            elsewhere=change.replaced,
            leads=tuple(change.vchannels),
            incarnation=statuses[self._node_id].incarnation,
            visible_from=change.visible_from,
        )
        await self._node.announce(told)
        return after(info, change)

    async def close_channel(self, info: QueryChannelInfo) -> None:
        """There is none."""


class ChannelFleet:
    """``nodes``: the clients of those that are alive, as the sessions tell; looked at anew each time.

    ``querycoord``: the session this acts under. Sessions have growing ids, and each gives numbers of its own:
    what a coordinator that was replaced still writes to a channel has a smaller number than what its
    successor wrote there before, and is left out by every node. ``unique``: makes what no channel's name has
    had before, on a broker that may serve other clusters too.
    """

    def __init__(
        self,
        nodes: Callable[[], Mapping[NodeID, QueryNodeApi]],
        channels: QueryChannels,
        querycoord: NodeID,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
    ) -> None:
        self._nodes = nodes
        self._channels = channels
        self._unique = unique
        self._first_version = querycoord * _VERSIONS_PER_SESSION

    def alive(self) -> tuple[NodeID, ...]:
        return tuple(sorted(self._nodes()))

    def node(self, node_id: NodeID) -> QueryNodeApi:
        node = self._nodes().get(node_id)
        if node is None:
            raise Unavailable(f"query node {node_id} went away")
        return node

    def version_after(self, latest: int) -> int:
        return max(latest + 1, self._first_version)

    async def open_channel(self, info: QueryChannelInfo) -> QueryChannelInfo:
        """The seek position is the channel's end: only reads stand between the last version and it.

        It is a position, never "from what is kept": so a node that comes to it late, when a version behind it
        is no longer kept, is told that the channel is lost to it.
        """
        if info.channel:
            with contextlib.suppress(ChannelLost):
                return replace(info, seek_position=await self._channels.end(info.channel))
        name = f"query-{info.collection_id}-{info.replica}-{self._unique()}"
        await self._channels.create(name)
        if info.channel:  # it may be there still, on a broker's server that is away
            with contextlib.suppress(Unavailable):
                await self._channels.remove(info.channel)
        return replace(info, channel=name, seek_position=1)

    async def join(self, info: QueryChannelInfo, status: QueryNodeStatus) -> None:
        if status.query_channels.get(info.collection_id) != info.channel:
            await self.node(status.node_id).add_query_channel(info)

    async def announce(
        self, info: QueryChannelInfo, change: SealedSegmentsChangeInfo, statuses: Statuses
    ) -> QueryChannelInfo:
        position = await self._channels.publish(info.channel, encode_message(change))
        return replace(after(info, change), seek_position=position + 1)

    async def close_channel(self, info: QueryChannelInfo) -> None:
        if info.channel:
            await asyncio.shield(self._channels.remove(info.channel))
