"""Where a version of a replica places everything: each segment's node, and each vchannel's leading node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elanus.api.querynode import QueryNodeStatus
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.placement import NodeRoom, Piece, place, place_channels
from elanus.querycoord.fleet import Statuses
from elanus.querycoord.handoff import Handoff
from elanus.querycoord.target import Target

_UNBOUNDED_BYTES = 2**62
_PIECES_AT_ONCE = 2000


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


async def plan_layout(
    target: Target,
    handoff: Handoff,
    statuses: Statuses,
    places: Mapping[SegmentID, NodeID],
    found: Mapping[SegmentID, NodeID],
    leads: Mapping[str, NodeID],
) -> Layout:
    """Place the target's segments and vchannels on the nodes of ``statuses``.

    ``places``: the node planned for a segment, which stays if it is among them. ``found``: the node that
    serves a segment now. ``leads``: the node that leads each vchannel now. Other tasks run
    meanwhile, none of which may change these mappings. Raises `InsufficientMemory`.
    """
    wanted = [s for s in target.segments if s not in handoff.held]
    placed = {s: places[s] for s in wanted if places.get(s) in statuses}
    coming = await pieces_of(target, [s for s in wanted if s not in placed])
    rooms = []
    for node_id, status in statuses.items() if coming else ():
        rooms.append(await _room_with(node_id, status, placed, target))
    if len(coming) > _PIECES_AT_ONCE:
        await asyncio.sleep(0)
    new = place(coming, rooms)
    kept = {s: found[s] for s in handoff.kept}
    channels = {n: status.leads_elsewhere for n, status in statuses.items()}
    vchannels = place_channels(target.collection.vchannels, leads, channels)
    return Layout({**placed, **new, **kept}, vchannels, handoff.kept)


async def pieces_of(target: Target, segment_ids: Sequence[SegmentID]) -> list[Piece]:
    """As `Target.pieces`; other tasks run meanwhile."""
    pieces: list[Piece] = []
    for first in range(0, len(segment_ids), _PIECES_AT_ONCE):
        if first:
            await asyncio.sleep(0)
        pieces += target.pieces(segment_ids[first : first + _PIECES_AT_ONCE])
    return pieces


def room_of(node_id: NodeID, status: QueryNodeStatus) -> NodeRoom:
    """Return a node as a place for segments."""
    held_bytes: dict[CollectionID, int] = {}
    for s in status.segments:
        if s.sealed:
            held_bytes[s.collection_id] = held_bytes.get(s.collection_id, 0) + s.memory_bytes
    capacity_bytes = status.capacity_bytes or _UNBOUNDED_BYTES
    return NodeRoom(node_id, capacity_bytes, status.used_bytes, held_bytes=held_bytes)


def room_with_pieces(node_id: NodeID, status: QueryNodeStatus) -> NodeRoom:
    """As `room_of`, with the segments that the node holds."""
    pieces = tuple(Piece(s.segment_id, s.collection_id, s.memory_bytes) for s in status.segments if s.sealed)
    return NodeRoom(node_id, status.capacity_bytes or _UNBOUNDED_BYTES, status.used_bytes, pieces)


async def _room_with(
    node_id: NodeID, status: QueryNodeStatus, placed: Mapping[SegmentID, NodeID], target: Target
) -> NodeRoom:
    """Return the node as a place for segments: with what it holds, and what is about to be loaded there."""
    room = room_of(node_id, status)
    held = {s.segment_id for s in status.segments if s.sealed}
    coming = await pieces_of(target, [s for s, at in placed.items() if at == node_id and s not in held])
    return replace(room, used_bytes=room.used_bytes + sum(p.size_bytes for p in coming), pieces=tuple(coming))
