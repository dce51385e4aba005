"""Where a version of a replica places everything: each segment's node, and each vchannel's leading node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elanus.api.querynode import QueryNodeStatus
from elanus.core.ids import NodeID, SegmentID
from elanus.core.placement import NodeRoom, Piece, place, place_channels
from elanus.querycoord.handoff import Handoff
from elanus.querycoord.target import Target

_UNBOUNDED_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class Layout:
    """The intended placement: each segment's node, and the node that leads each vchannel.

    ``kept``: the segments that are served only until their successors are, each with its vchannel.
    """

    segments: Mapping[SegmentID, NodeID]
    vchannels: Mapping[str, NodeID]
    kept: Mapping[SegmentID, str]

    def nodes(self) -> set[NodeID]:
        return {*self.segments.values(), *self.vchannels.values()}

    def vchannels_by_node(self, target: Target) -> dict[NodeID, dict[str, None]]:
        """Return the vchannels that each node must follow, for their rows or for their deletes, in order."""
        found: dict[NodeID, dict[str, None]] = {}
        for vchannel, node_id in self.vchannels.items():
            found.setdefault(node_id, {})[vchannel] = None
        here = (
            (node_id, self.kept[s] if s in self.kept else target.segments[s].vchannel)
            for s, node_id in self.segments.items()
        )
        for node_id, vchannel in dict.fromkeys(here):
            found.setdefault(node_id, {})[vchannel] = None
        return found


def plan_layout(
    target: Target,
    handoff: Handoff,
    statuses: Mapping[NodeID, QueryNodeStatus],
    places: Mapping[SegmentID, NodeID],
    found: Mapping[SegmentID, NodeID],
    leads: Mapping[str, NodeID],
) -> Layout:
    """Place the target's segments and vchannels on the nodes of ``statuses``.

    ``places``: the node planned for a segment, which stays if it is among them. ``found``: the node that
    serves a segment now. ``leads``: the node that leads each vchannel now. Raises `InsufficientMemory`.
    """
    wanted = [s for s in target.segments if s not in handoff.held]
    placed = {s: places[s] for s in wanted if places.get(s) in statuses}
    coming = target.pieces(s for s in wanted if s not in placed)
    # The rooms list all that the nodes hold, and most rounds place nothing.
    rooms = [_room_with(n, status, placed, target) for n, status in statuses.items()] if coming else []
    new = place(coming, rooms)
    kept = {s: found[s] for s in handoff.kept}
    channels = {n: status.leads_elsewhere for n, status in statuses.items()}
    vchannels = place_channels(target.collection.vchannels, leads, channels)
    return Layout({**placed, **new, **kept}, vchannels, handoff.kept)


def room_of(node_id: NodeID, status: QueryNodeStatus) -> NodeRoom:
    """A node as a place for segments."""
    pieces = tuple(Piece(s.segment_id, s.collection_id, s.memory_bytes) for s in status.segments if s.sealed)
    return NodeRoom(node_id, status.capacity_bytes or _UNBOUNDED_BYTES, status.used_bytes, pieces)


def _room_with(
    node_id: NodeID, status: QueryNodeStatus, placed: Mapping[SegmentID, NodeID], target: Target
) -> NodeRoom:
    """The node as a place for segments: with what it holds, and what is about to be loaded there."""
    room = room_of(node_id, status)
    held = {piece.segment_id for piece in room.pieces}
    coming = target.pieces(s for s, at in placed.items() if at == node_id and s not in held)
    used_bytes = room.used_bytes + sum(piece.size_bytes for piece in coming)
    return replace(room, used_bytes=used_bytes, pieces=(*room.pieces, *coming))
