"""The query nodes that a proxy's reads need: the replicas as querycoord reported them, and nodes lost since.

A replica's nodes may change with every version, and a proxy is not notified. So the known replicas count as
old when an answer arrives under a later version, and as unknown when a node has gone away: that node may have
been in a version that the proxy does not know, and reads would wait for it in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querycoord import QueryCoordApi
from elanus.core.errors import ChannelLost, Unavailable
from elanus.core.ids import CollectionID, NodeID

_LOST_KEPT = 1024
"""How many lost nodes to keep, those that joined last: a channel that names an older one is long gone."""


@dataclass(frozen=True, slots=True)
class KnownReplica:
    """A replica as querycoord reported it.

    ``nodes``: the nodes of that version. ``lost``: the nodes that had gone away before querycoord was asked.
    """

    info: QueryChannelInfo
    nodes: frozenset[NodeID]
    lost: frozenset[NodeID]


class Replicas:
    """The replicas of all collections that are read.

    `ask` and `lose` must run on the event loop; the rest is safe from any thread.
    """

    def __init__(self, querycoord: QueryCoordApi) -> None:
        self._querycoord = querycoord
        self._known: dict[CollectionID, tuple[KnownReplica, ...]] = {}
        self.lost: frozenset[NodeID] = frozenset()

    def known(self, collection_id: CollectionID) -> tuple[KnownReplica, ...] | None:
        return self._known.get(collection_id)

    async def ask(self, collection_id: CollectionID) -> tuple[KnownReplica, ...]:
        """Ask querycoord again. Raises `CollectionNotLoaded`, and what a call may raise."""
        lost = self.lost  # before the call: a node lost during it may be in the answer, or in one just before
        reported = await self._querycoord.query_channels(collection_id)
        replicas = tuple(
            KnownReplica(info, frozenset({*info.sealed.values(), *info.vchannels.values()}), lost)
            for info in reported
        )
        self._known[collection_id] = replicas
        return replicas

    def forget(self, collection_id: CollectionID) -> None:
        self._known.pop(collection_id, None)

    def lose(self, node_id: NodeID) -> None:
        """A node went away. It never comes back: a node that joins again has a new id."""
        self.lost = frozenset(sorted({*self.lost, node_id})[-_LOST_KEPT:])
        self._known.clear()

    def check(self, replica: KnownReplica) -> None:
        """Raises `Unavailable` if a lost node belongs to the replica.

        Raises `ChannelLost` if a lost node may have joined it since it was reported: ask again.
        """
        if gone := self.lost & replica.nodes:
            names = ", ".join(map(str, sorted(gone)))
            raise Unavailable(f"query node {names} went away, and is not replaced yet; retry")
        if self.lost is not replica.lost:
            raise ChannelLost("a query node that may have been needed went away; retry")

    def is_old(self, info: QueryChannelInfo, version: int) -> bool:
        """Whether that version of the replica is later than the known one."""
        known = self._known.get(info.collection_id, ())
        return any(r.info.channel == info.channel and r.info.version < version for r in known)
