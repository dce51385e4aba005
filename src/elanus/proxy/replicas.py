"""Which query nodes a proxy's reads need: the replicas as querycoord told of them, and who went away since.

With every version a replica's nodes may be others, and nobody tells a proxy. So what it was told is taken as
old when an answer comes under a later version, and as nothing when a node has gone away: that may have been
in a version that the proxy has not heard of, and reads would wait for it in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

from elanus.core.errors import ChannelLost, Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.rpc.querychannel import QueryChannelInfo
from elanus.rpc.querycoord import QueryCoordApi

_LOST_KEPT = 1024
"""Of the nodes that went away those that had joined last: a channel that names an older one is long gone."""


@dataclass(frozen=True, slots=True)
class Replica:
    """As querycoord told of it. ``nodes``: those that its version names. ``lost``: the nodes that had gone
    away before it was asked for."""

    info: QueryChannelInfo
    nodes: frozenset[NodeID]
    lost: frozenset[NodeID]


class Replicas:
    """Of all collections that are read. `ask` and `lose` are the event loop's, the rest is any thread's."""

    def __init__(self, querycoord: QueryCoordApi) -> None:
        self._querycoord = querycoord
        self._told: dict[CollectionID, tuple[Replica, ...]] = {}
        self.lost: frozenset[NodeID] = frozenset()

    def known(self, collection_id: CollectionID) -> tuple[Replica, ...] | None:
        return self._told.get(collection_id)

    async def ask(self, collection_id: CollectionID) -> tuple[Replica, ...]:
        """Ask querycoord anew. Raises `CollectionNotLoaded`, and what a call may raise."""
        lost = self.lost  # before: who is lost meanwhile may be in the answer, or in one just before it
        told = await self._querycoord.query_channels(collection_id)
        replicas = tuple(
            Replica(info, frozenset({*info.sealed.values(), *info.vchannels.values()}), lost) for info in told
        )
        self._told[collection_id] = replicas
        return replicas

    def forget(self, collection_id: CollectionID) -> None:
        self._told.pop(collection_id, None)

    def lose(self, node_id: NodeID) -> None:
        """A node went away. It does not come back: one that joins again has another id."""
        self.lost = frozenset(sorted({*self.lost, node_id})[-_LOST_KEPT:])
        self._told.clear()

    def check(self, replica: Replica) -> None:
        """Raises `Unavailable` for a replica that a lost node belongs to, `ChannelLost` for one that such a
        node may have come to since it was told of: ask anew."""
        if gone := self.lost & replica.nodes:
            names = ", ".join(map(str, sorted(gone)))
            raise Unavailable(f"query node {names} went away, and is not replaced yet; retry")
        if self.lost is not replica.lost:
            raise ChannelLost("a query node that may have been needed went away; retry")

    def is_old(self, info: QueryChannelInfo, version: int) -> bool:
        """Whether that version of the replica is later than what was told of it."""
        told = self._told.get(info.collection_id, ())
        return any(r.info.channel == info.channel and r.info.version < version for r in told)
