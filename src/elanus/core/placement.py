"""Placement of segments and vchannels: which query node holds what, and what moves to restore the balance.

Two quantities are kept even: the bytes on each node, so that none runs out of memory, and the bytes of each
collection, so that one collection's searches use every node. A segment is placed on the node with the fewest
bytes of its collection, among those with room; a segment moves if that brings the extremes closer. Nothing
moves for a difference of less than a tenth of the average, so that balancing terminates.

Pure. Not here: replicas (`elanus.core.replicas`), and when to balance (querycoord).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elanus.core.errors import InsufficientMemory, NodesNotEnough
from elanus.core.ids import CollectionID, NodeID, SegmentID

OVERLOAD_SHARE = 0.9
"""The share of a node's memory that segments may fill (reference: overloaded threshold)."""
UNEVEN_SHARE = 0.1
"""The share of a collection's average bytes per node below which a spread counts as even."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment to be placed; ``size_bytes``: the memory it will take."""

    segment_id: SegmentID
    collection_id: CollectionID
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A query node and its room.

    ``used_bytes``: everything that it holds. ``pieces``: the segments that it holds, which `balance` needs;
    ``held_bytes``: the bytes of each collection that it holds and that are not listed there.
    """

    node_id: NodeID
    capacity_bytes: int
    used_bytes: int
    pieces: tuple[Piece, ...] = ()
    held_bytes: Mapping[CollectionID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    segment_id: SegmentID
    source: NodeID
    target: NodeID


@dataclass(slots=True)
class _Node:
    """Bookkeeping while a plan is made."""

    node_id: NodeID
    limit_bytes: int
    used_bytes: int
    collections: dict[CollectionID, int] = field(default_factory=dict)

    def of(self, collection_id: CollectionID) -> int:
        return self.collections.get(collection_id, 0)

    def take(self, piece: Piece) -> None:
        self.used_bytes += piece.size_bytes
        self.collections[piece.collection_id] = self.of(piece.collection_id) + piece.size_bytes

    def give(self, piece: Piece) -> None:
        self.used_bytes -= piece.size_bytes
        self.collections[piece.collection_id] -= piece.size_bytes

    def fits(self, piece: Piece) -> bool:
        return self.used_bytes + piece.size_bytes <= self.limit_bytes


def place(pieces: Iterable[Piece], nodes: Sequence[NodeRoom], where: str = "") -> dict[SegmentID, NodeID]:
    """Return a node for each piece: largest first, each where its collection has least and there is room.

    Raises `InsufficientMemory`, with the sums, if one fits nowhere; ``where`` describes these nodes in the
    message, as in "in resource group x". Equal input gives equal output.
    """
    rooms = [_room(node) for node in sorted(nodes, key=lambda n: n.node_id)]
    wanted = sorted(pieces, key=lambda p: (-p.size_bytes, p.segment_id))
    if len(rooms) == 1 and rooms[0].used_bytes + sum(p.size_bytes for p in wanted) <= rooms[0].limit_bytes:
        return dict.fromkeys((piece.segment_id for piece in wanted), rooms[0].node_id)
    placed: dict[SegmentID, NodeID] = {}
    for piece in wanted:
        fitting = [room for room in rooms if room.fits(piece)]
        if not fitting:
            raise InsufficientMemory(_refusal(wanted, nodes, where))
        best = min(fitting, key=lambda r: (r.of(piece.collection_id), r.used_bytes, r.node_id))
        best.take(piece)
        placed[piece.segment_id] = best.node_id
    return placed


def _refusal(pieces: Sequence[Piece], nodes: Sequence[NodeRoom], where: str) -> str:
    needed = sum(piece.size_bytes for piece in pieces)
    rooms = "; ".join(
        f"node {n.node_id}: {_mb(n.used_bytes)} of {_mb(int(n.capacity_bytes * OVERLOAD_SHARE))} used"
        for n in sorted(nodes, key=lambda n: n.node_id)
    )
    free = sum(max(0, int(n.capacity_bytes * OVERLOAD_SHARE) - n.used_bytes) for n in nodes)
    place = f" {where}" if where else ""
    return (
        f"the load needs {_mb(needed)} in {len(pieces)} segments, {_mb(free)} are free{place} "
        f"({rooms or 'no node'}): release a collection, add query nodes, or raise querynode.memory_mb"
    )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MB"


def _room(node: NodeRoom) -> _Node:
    limit_bytes = int(node.capacity_bytes * OVERLOAD_SHARE)
    room = _Node(node.node_id, limit_bytes, node.used_bytes, dict(node.held_bytes))
    for piece in node.pieces:
        room.collections[piece.collection_id] = room.of(piece.collection_id) + piece.size_bytes
    return room


def balance(nodes: Sequence[NodeRoom], collection_id: CollectionID) -> list[Move]:
    """Return the moves that make one collection's bytes even over the nodes; none if they are even enough.

    Each move takes a segment from the node with most bytes to the one with least: the largest segment that
    brings the two closer. No segment moves twice.
    """
    rooms = {node.node_id: _room(node) for node in nodes}
    held = {n.node_id: [p for p in n.pieces if p.collection_id == collection_id] for n in nodes}
    if len(rooms) < 2:
        return []
    average = sum(room.of(collection_id) for room in rooms.values()) / len(rooms)
    moves: list[Move] = []
    while True:
        order = sorted(rooms.values(), key=lambda r: (r.of(collection_id), r.node_id))
        least, most = order[0], order[-1]
        gap = most.of(collection_id) - least.of(collection_id)
        if gap <= UNEVEN_SHARE * average:
            return moves
        helping = [p for p in held[most.node_id] if p.size_bytes < gap and least.fits(p)]
        if not helping:
            return moves
        piece = min(helping, key=lambda p: (abs(gap - 2 * p.size_bytes), p.segment_id))
        held[most.node_id].remove(piece)
        most.give(piece)
        least.take(piece)
        moves.append(Move(piece.segment_id, most.node_id, least.node_id))


def place_channels(
    vchannels: Sequence[str], current: Mapping[str, NodeID], nodes: Mapping[NodeID, int]
) -> dict[str, NodeID]:
    """Return a node for each vchannel: its current one, if that still exists, else the one with fewest.

    ``nodes``: how many vchannels of other collections each node follows. Raises `NodesNotEnough` if there
    are no nodes.
    """
    if not nodes:
        raise NodesNotEnough(
            "nodes not enough: no query node is alive to follow the collection's vchannels: start one"
        )
    load = dict(nodes)
    placed: dict[str, NodeID] = {}
    for vchannel in vchannels:
        node_id = current.get(vchannel)
        if node_id in load:
            placed[vchannel] = node_id
            load[node_id] += 1
    for vchannel in vchannels:
        if vchannel not in placed:
            own = {n: sum(1 for p in placed.values() if p == n) for n in load}
            node_id = min(load, key=lambda n: (own[n], load[n], n))
            placed[vchannel] = node_id
            load[node_id] += 1
    return placed
