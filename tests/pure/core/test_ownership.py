"""Which data node owns which vchannel: one owner a pchannel, sticky, even, and moved as little as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.channels import pchannel_of
from elanus.core.ids import NO_NODE, NodeID
from elanus.core.ownership import in_place, least_busy, owners

A, B, C = NodeID(1), NodeID(2), NodeID(3)
NODES = st.integers(1, 6).map(NodeID)


def vchannels(*sizes: int) -> list[str]:
    """Those of pchannels with that many each."""
    return [f"dml_{p}_{400 + n}v0" for p, size in enumerate(sizes) for n in range(size)]


@st.composite
def ownerships(draw: st.DrawFn) -> dict[str, NodeID]:
    """Any state that records may be in, one that the rules would not have made too."""
    names = vchannels(*draw(st.lists(st.integers(1, 5), max_size=8)))
    owner = st.one_of(st.just(NO_NODE), NODES)
    return {name: draw(owner) for name in names}


def load(owned: dict[str, NodeID], nodes: set[NodeID]) -> Counter[NodeID]:
    return Counter({n: sum(1 for o in owned.values() if o == n) for n in nodes})


@given(ownerships(), st.sets(NODES, min_size=1), st.booleans())
def test_every_vchannel_has_a_live_owner_and_a_pchannel_has_one(
    current: dict[str, NodeID], live: set[NodeID], balanced: bool
) -> None:
    owned = owners(current, live, live, balanced=balanced)
    assert owned.keys() == current.keys()
    assert set(owned.values()) <= live
    for pchannel in {pchannel_of(v) for v in owned}:
        assert len({o for v, o in owned.items() if pchannel_of(v) == pchannel}) == 1


@given(ownerships(), st.sets(NODES, min_size=1))
def test_what_is_decided_stays(current: dict[str, NodeID], live: set[NodeID]) -> None:
    owned = owners(current, live, live, balanced=True)
    assert owners(owned, live, live, balanced=True) == owned
    assert owners(owned, live, live, balanced=False) == owned


@given(ownerships(), st.sets(NODES, min_size=1))
def test_no_move_of_a_pchannel_would_make_two_nodes_more_even(
    current: dict[str, NodeID], live: set[NodeID]
) -> None:
    owned = owners(current, live, live, balanced=True)
    sizes = Counter(pchannel_of(v) for v in owned)
    loads = load(owned, live)
    for vchannel, owner in owned.items():
        assert loads[owner] - min(loads.values()) <= sizes[pchannel_of(vchannel)]


@given(ownerships(), st.sets(NODES, min_size=1))
def test_unbalanced_nobody_loses_a_pchannel(current: dict[str, NodeID], live: set[NodeID]) -> None:
    whole = owners(current, live, live, balanced=False)
    for pchannel in {pchannel_of(v) for v in current}:
        had = Counter(o for v, o in current.items() if pchannel_of(v) == pchannel and o in live)
        (has,) = {o for v, o in whole.items() if pchannel_of(v) == pchannel}
        assert not had or had[has] == max(had.values())


@given(st.integers(0, 40), st.sets(NODES, min_size=2))
def test_a_newcomer_gets_its_share_and_nothing_else_moves(pchannels: int, live: set[NodeID]) -> None:
    newcomer = max(live)
    others = live - {newcomer}
    before = owners(dict.fromkeys(vchannels(*[1] * pchannels), NO_NODE), others, others, balanced=True)
    after = owners(before, live, live, balanced=True)
    moved = [v for v in after if after[v] != before[v]]
    assert {after[v] for v in moved} <= {newcomer}
    assert len(moved) == pchannels // len(live)


@given(st.integers(0, 40), st.sets(NODES, min_size=2))
def test_only_what_a_lost_node_had_moves(pchannels: int, live: set[NodeID]) -> None:
    before = owners(dict.fromkeys(vchannels(*[1] * pchannels), NO_NODE), live, live, balanced=True)
    lost, left = max(live), live - {max(live)}
    after = owners(before, left, left, balanced=True)
    assert [v for v in after if after[v] != before[v]] == [v for v in sorted(before) if before[v] == lost]
    loads = load(after, left).values()
    assert max(loads) - min(loads) <= 1


def test_without_anybody_ready_all_stays() -> None:
    current = dict(zip(vchannels(1, 1, 1), (A, B, NO_NODE), strict=True))
    assert owners(current, set(), set(), balanced=True) == current
    assert owners(current, {A, B}, set(), balanced=True) == current


def test_a_node_that_lives_keeps_what_it_has_while_it_is_not_ready() -> None:
    current = dict(zip(vchannels(1, 1, 1), (A, B, C), strict=True))
    assert set(owners(current, {A, B}, {B}, balanced=True).values()) == {A, B}
    assert owners(current, {A, B}, {B}, balanced=True)[vchannels(1)[0]] == A


def test_a_new_vchannel_goes_to_the_node_that_follows_its_pchannel() -> None:
    first, second = vchannels(2)
    assert owners({first: A, second: NO_NODE}, {A, B}, {A, B}, balanced=False)[second] == A


def test_a_small_pchannel_moves_rather_than_a_large_one() -> None:
    names = vchannels(5, 2, 1)
    owned = owners(dict.fromkeys(names, A), {A, B}, {A, B}, balanced=True)
    assert load(owned, {A, B}) == {A: 5, B: 3}


def test_at_an_address_the_latest_counts() -> None:
    assert in_place({A: "x", B: "y", C: "x"}) == {B, C}
    assert in_place({}) == frozenset()


@pytest.mark.parametrize(
    ("busy", "preferred", "order"),
    [({A: 1, B: 0}, A, [B, A]), ({A: 1, B: 1}, B, [B, A]), ({B: 0, A: 0}, NO_NODE, [A, B]), ({}, A, [])],
)
def test_the_least_busy_is_asked_first(
    busy: dict[NodeID, int], preferred: NodeID, order: list[NodeID]
) -> None:
    assert least_busy(busy, preferred) == order
