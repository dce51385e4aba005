"""Where segments and vchannels go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InsufficientMemory, NodesNotEnough
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.placement import (
    OVERLOAD_SHARE,
    UNEVEN_SHARE,
    NodeRoom,
    Piece,
    balance,
    place,
    place_channels,
)
from elanus.core.replicas import check_enough, group_nodes

ONE, OTHER = CollectionID(1), CollectionID(2)


def piece(number: int, size_bytes: int, collection: CollectionID = ONE) -> Piece:
    return Piece(SegmentID(number), collection, size_bytes)


def node(number: int, *pieces: Piece, capacity_bytes: int = 10_000) -> NodeRoom:
    return NodeRoom(NodeID(number), capacity_bytes, sum(p.size_bytes for p in pieces), pieces)


def test_a_collection_spreads_over_all_nodes_even_where_another_one_fills_them_unevenly() -> None:
    full = [piece(n, 500, OTHER) for n in range(100, 106)]
    placed = place([piece(n, 100) for n in range(8)], [node(1, *full), node(2)])
    assert sorted(placed.values()) == [1] * 4 + [2] * 4


def test_the_node_with_more_memory_left_gets_the_odd_one() -> None:
    assert place([piece(1, 100)], [node(1, piece(9, 10, OTHER)), node(2)]) == {1: 2}


def test_a_load_that_fits_nowhere_is_refused_with_the_sums() -> None:
    megabyte = 2**20
    nodes = [node(1, capacity_bytes=10 * megabyte), node(2, capacity_bytes=10 * megabyte)]
    with pytest.raises(InsufficientMemory, match=r"needs 20\.0 MB in 4 segments, 18\.0 MB are free") as error:
        place([piece(n, 5 * megabyte) for n in range(4)], nodes)
    assert "node 1: 0.0 MB of 9.0 MB used" in error.value.message


def test_a_segment_never_goes_above_the_share_of_memory_that_may_be_filled() -> None:
    almost = int(10_000 * OVERLOAD_SHARE) - 50
    placed = place([piece(1, 100)], [node(1, piece(9, almost, OTHER)), node(2, piece(8, 5000, ONE))])
    assert placed == {1: 2}


def test_a_hundred_segments_over_four_nodes_are_even() -> None:
    sizes = [80 + (n * 37) % 60 for n in range(100)]
    placed = place([piece(n, size) for n, size in enumerate(sizes)], [node(n) for n in range(1, 5)])
    held = [sum(sizes[s] for s, owner in placed.items() if owner == n) for n in range(1, 5)]
    assert max(held) - min(held) <= 0.1 * sum(held) / 4


def test_a_node_that_joins_gets_its_share_and_then_nothing_moves() -> None:
    nodes = [node(1, *(piece(n, 100) for n in range(50))), node(2, *(piece(n, 100) for n in range(50, 100)))]
    moves = balance([*nodes, node(3)], ONE)
    moved = {m.segment_id for m in moves}
    assert len(moved) == len(moves)
    assert all(move.target == 3 for move in moves)
    assert 30 <= len(moves) <= 34
    after = [node(n.node_id, *(p for p in n.pieces if p.segment_id not in moved)) for n in nodes] + [
        node(3, *(p for n in nodes for p in n.pieces if p.segment_id in moved))
    ]
    assert balance(after, ONE) == []


def test_a_single_large_segment_does_not_wander() -> None:
    assert balance([node(1, piece(1, 5000)), node(2)], ONE) == []


def test_other_collections_segments_stay_in_a_balance() -> None:
    assert balance([node(1, *(piece(n, 100, OTHER) for n in range(20))), node(2)], ONE) == []


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=60),
    st.lists(st.integers(0, 3), min_size=60, max_size=60),
    st.integers(2, 4),
)
def test_a_balance_ends_and_never_makes_it_worse(sizes: list[int], owners: list[int], count: int) -> None:
    held: dict[int, list[Piece]] = {n: [] for n in range(count)}
    for number, size in enumerate(sizes):
        held[owners[number] % count].append(piece(number, size))
    nodes = [node(n, *pieces, capacity_bytes=10**6) for n, pieces in held.items()]

    def spread() -> int:
        sums = [sum(p.size_bytes for p in pieces) for pieces in held.values()]
        return max(sums) - min(sums)

    before = spread()
    for move in balance(nodes, ONE):
        moved = next(p for p in held[move.source] if p.segment_id == move.segment_id)
        held[move.source].remove(moved)
        held[move.target].append(moved)
    assert spread() <= before
    largest = max(sizes)
    assert spread() <= max(UNEVEN_SHARE * sum(sizes) / count, largest)


def test_vchannels_stay_with_a_node_that_lives_and_spread_over_the_rest() -> None:
    current = {"a": NodeID(1), "b": NodeID(9)}
    placed = place_channels(["a", "b", "c"], current, {NodeID(1): 0, NodeID(2): 5})
    assert placed == {"a": 1, "b": 2, "c": 1} or placed == {"a": 1, "b": 2, "c": 2}
    assert placed["a"] == 1


def test_without_a_node_no_vchannel_can_be_followed() -> None:
    with pytest.raises(NodesNotEnough, match="no query node is alive"):
        place_channels(["a"], {}, {})


def test_replicas_share_no_node_and_nodes_stay() -> None:
    nodes = [NodeID(n) for n in (1, 2, 3)]
    first = group_nodes(nodes, 2, {})
    assert first == {0: (1, 3), 1: (2,)}
    assert group_nodes([*nodes, NodeID(4)], 2, first) == {0: (1, 3), 1: (2, 4)}


def test_a_replica_that_lost_its_nodes_gets_one_of_the_largest() -> None:
    assert group_nodes([NodeID(1), NodeID(3)], 2, {0: [NodeID(1), NodeID(3)], 1: [NodeID(2)]}) == {
        0: (1,),
        1: (3,),
    }


def test_more_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(
        NodesNotEnough, match="3 replicas need as many query nodes, 1 are alive in resource group g"
    ):
        check_enough(1, 3, "g")


def test_a_replica_waits_for_a_node_while_the_others_go_on() -> None:
    assert group_nodes([NodeID(1)], 2, {0: [NodeID(1)], 1: [NodeID(2)]}) == {0: (1,), 1: ()}
