"""The query nodes as querycoord sees them: which are alive, how to reach each, how to announce a version.

There are two fleets. `OneNode` is a process that serves itself: its proxy reads from the node's snapshot
directly, so a version is announced by a call and switched by one assignment. `ChannelFleet` is any number of
nodes behind query channels, which carry versions in order with the reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from elanus.api.query_channel import (
    QueryChannelInfo,
    QueryChannels,
    SealedSegmentsChangeInfo,
    encode_message,
)
from elanus.api.querynode import QueryNodeApi, QueryNodePulse, QueryNodeStatus, SealedSegmentsChange
from elanus.core.errors import ChannelLost, ElanusError, Unavailable
from elanus.core.ids import NodeID

Answer = TypeVar("Answer")
_VERSIONS_PER_SESSION = 1 << 24
Statuses = Mapping[NodeID, QueryNodeStatus]
Pulses = Mapping[NodeID, QueryNodeStatus | QueryNodePulse]
"""The nodes' pulses, or their statuses: both name the versions that are served."""


class Fleet(Protocol):
    def alive(self) -> tuple[NodeID, ...]: ...
    def node(self, node_id: NodeID) -> QueryNodeApi:
        """Raises `Unavailable` for a node that is not alive."""
        ...

    def labels(self) -> Mapping[NodeID, Mapping[str, str]]:
        """Return the labels of the nodes that have any. They do not change while a node is alive."""
        ...

    def version_after(self, latest: int) -> int:
        """Return the number for a new version. ``latest``: the highest known version number."""
        ...

    async def open_channel(self, info: QueryChannelInfo) -> QueryChannelInfo:
        """Return the replica with a channel that exists: its own, or a new one if that was lost."""
        ...

    async def join(self, info: QueryChannelInfo, status: QueryNodeStatus) -> None:
        """Have the node follow the replica's channel, starting from the version in ``info``."""
        ...

    async def announce(
        self, info: QueryChannelInfo, change: SealedSegmentsChangeInfo, statuses: Statuses
    ) -> QueryChannelInfo:
        """Announce the version to every node of the replica, and return the replica under that version.

        ``statuses``: the node statuses on which the change is based.
        """
        ...

    async def close_channel(self, info: QueryChannelInfo) -> None: ...


def after(info: QueryChannelInfo, change: SealedSegmentsChangeInfo) -> QueryChannelInfo:
    """Return the replica under the version that the change introduces."""
    kept = {s: n for s, n in info.sealed.items() if s not in change.offline}
    sealed = {**kept, **change.online}
    moments = {**info.visible_from, **change.visible_from}
    return replace(
        info,
        version=change.version,
        sealed=sealed,
        vchannels=change.vchannels,
        visible_from={s: moment for s, moment in moments.items() if s in sealed},
        missing=change.missing,
        deletes=change.deletes,
    )


async def ask_all(fleet: Fleet, ask: Callable[[QueryNodeApi], Awaitable[Answer]]) -> dict[NodeID, Answer]:
    """Ask all nodes at the same time; return the answer of each that gives one.

    The others are left to their sessions to expire. Raises `Unavailable` if there are nodes and none of them
    answers.
    """
    nodes = fleet.alive()
    answers = await asyncio.gather(*(ask(fleet.node(n)) for n in nodes), return_exceptions=True)
    found: dict[NodeID, Answer] = {}
    for node_id, answer in zip(nodes, answers, strict=True):
        if not isinstance(answer, BaseException):
            found[node_id] = answer
        elif not isinstance(answer, ElanusError):
            raise answer
    if nodes and not found:
        raise Unavailable(f"none of the query nodes answers: {', '.join(map(str, nodes))}; retry")
    return found


class OneNode:
    """The node of a process that serves itself. It has no query channel."""

    def __init__(self, node_id: NodeID, node: QueryNodeApi) -> None:
        self._node_id = node_id
        self._node = node

    def alive(self) -> tuple[NodeID, ...]:
        return (self._node_id,)

    def node(self, node_id: NodeID) -> QueryNodeApi:
        assert node_id == self._node_id, f"there is no query node {node_id}"
        return self._node

    def labels(self) -> Mapping[NodeID, Mapping[str, str]]:
        return {}

    def version_after(self, latest: int) -> int:
        return latest + 1

    async def open_channel(self, info: QueryChannelInfo) -> QueryChannelInfo:
        return info

    async def join(self, info: QueryChannelInfo, status: QueryNodeStatus) -> None:
        """Do nothing: there is no channel to follow."""

    async def announce(
        self, info: QueryChannelInfo, change: SealedSegmentsChangeInfo, statuses: Statuses
    ) -> QueryChannelInfo:
        announcement = SealedSegmentsChange(
            collection_id=change.collection_id,
            version=change.version,
            online=tuple(change.online),
            offline=tuple(s for s in change.offline if s not in change.online),
            elsewhere=change.replaced,
            leads=tuple(change.vchannels),
            incarnation=statuses[self._node_id].incarnation,
            visible_from=change.visible_from,
            missing=change.missing,
            deletes=change.deletes,
        )
        await self._node.announce(announcement)
        return after(info, change)

    async def close_channel(self, info: QueryChannelInfo) -> None:
        """Do nothing: there is no channel."""


class ChannelFleet:
    """Any number of nodes behind query channels.

    ``nodes``: returns the clients of the nodes with a live session; called afresh each time.

    ``querycoord``: the id of the session under which this coordinator acts. Session ids increase, and each
    session has its own range of version numbers. If a replaced coordinator still writes to a channel, its
    version number is below those that its successor already wrote there, and every node ignores it.

    ``unique``: returns a part of a channel name that was never used before, on a broker that may serve other
    clusters too.
    """

    def __init__(
        self,
        nodes: Callable[[], Mapping[NodeID, QueryNodeApi]],
        channels: QueryChannels,
        querycoord: NodeID,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
        labels: Callable[[], Mapping[NodeID, Mapping[str, str]]] = dict,
    ) -> None:
        self._nodes = nodes
        self._channels = channels
        self._unique = unique
        self._labels = labels
        self._first_version = querycoord * _VERSIONS_PER_SESSION

    def alive(self) -> tuple[NodeID, ...]:
        return tuple(sorted(self._nodes()))

    def node(self, node_id: NodeID) -> QueryNodeApi:
        node = self._nodes().get(node_id)
        if node is None:
            raise Unavailable(f"query node {node_id} went away")
        return node

    def labels(self) -> Mapping[NodeID, Mapping[str, str]]:
        return self._labels()

    def version_after(self, latest: int) -> int:
        return max(latest + 1, self._first_version)

    async def open_channel(self, info: QueryChannelInfo) -> QueryChannelInfo:
        """The seek position is the end of the channel: only reads are between the last version and it.

        It is an explicit position, never "from the oldest retained message". A node that arrives late, when a
        version after that position is no longer retained, therefore gets `ChannelLost`.
        """
        if info.channel:
            with contextlib.suppress(ChannelLost):
                return replace(info, seek_position=await self._channels.end(info.channel))
        name = f"query-{info.collection_id}-{info.replica}-{self._unique()}"
        await self._channels.create(name)
        if info.channel:  # the old channel may still exist, on a broker server that is unavailable
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
