"""Moves of segments to another node of their replica: to balance it, or on a client's request."""

from __future__ import annotations

from collections.abc import Iterable

from elanus.core.errors import InvalidParameter, NodeNotFound
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.placement import Piece, balance, place
from elanus.querycoord.fleet import Statuses
from elanus.querycoord.planned_layout import room_of, room_with_pieces
from elanus.querycoord.replica import Replica


def balancing_moves(
    replicas: Iterable[Replica], collection_id: CollectionID, statuses: Statuses
) -> dict[SegmentID, NodeID]:
    """Return the moves that balance the replicas' nodes better: segments, each with its new node."""
    moves: dict[SegmentID, NodeID] = {}
    for replica in replicas:
        nodes = [n for n in replica.record.nodes if n in statuses]
        if len(nodes) < 2:
            continue
        rooms = [room_with_pieces(n, statuses[n]) for n in nodes]
        moves |= {move.segment_id: move.target for move in balance(rooms, collection_id)}
    return moves


def requested_moves(
    replicas: Iterable[Replica],
    collection_id: CollectionID,
    source: NodeID,
    targets: tuple[NodeID, ...],
    segment_ids: tuple[SegmentID, ...],
    statuses: Statuses,
) -> dict[SegmentID, NodeID]:
    """Return the moves that a client requests with `QueryCoordApi.load_balance`.

    Raises `NodeNotFound`, `InvalidParameter`, and `InsufficientMemory` if the targets have no room.
    """
    replica = next((r for r in replicas if source in r.record.nodes), None)
    if replica is None:
        raise NodeNotFound(f"query node {source} serves no replica of collection {collection_id}")
    others = [n for n in replica.record.nodes if n != source and n in statuses]
    wrong = [n for n in targets if n not in others]
    if wrong or not others:
        raise NodeNotFound(
            f"segments of node {source} can go to {others or 'no other node'}, not to {wrong or 'any'}: "
            "the nodes of one replica take over from each other"
        )
    here = [s for s, n in replica.info.sealed.items() if n == source]
    strangers = [s for s in segment_ids if s not in here]
    if strangers:
        raise InvalidParameter(f"segments {strangers} are not on query node {source}")
    served = replica.serving(statuses)
    pieces = [
        Piece(s, collection_id, served[s].memory_bytes if s in served else 0) for s in segment_ids or here
    ]
    return place(pieces, [room_of(n, statuses[n]) for n in targets or others])
