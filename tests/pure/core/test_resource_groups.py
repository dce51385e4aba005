"""Which resource group each query node and replica belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import (
    InvalidParameter,
    NodesNotEnough,
    ResourceGroupAlreadyExists,
    ResourceGroupLimitReached,
    ResourceGroupNotFound,
)
from elanus.core.group_config import GroupConfig
from elanus.core.group_nodes import reconcile, settle
from elanus.core.ids import CollectionID, NodeID
from elanus.core.limits import RESOURCE_GROUPS_MAX
from elanus.core.resource_groups import (
    DEFAULT_RESOURCE_GROUP,
    NO_GROUPS,
    Groups,
    PlacedReplica,
    ResourceGroup,
    census,
    check_droppable,
    check_same_groups,
    created,
    find,
    nodes_of_replicas,
    outbound,
    spread,
    transfer_nodes,
    transfer_replicas,
)

DEFAULT = DEFAULT_RESOURCE_GROUP
ONE, OTHER = CollectionID(1), CollectionID(2)


def ids(*numbers: int) -> tuple[NodeID, ...]:
    return tuple(map(NodeID, numbers))


def groups(default: tuple[int, ...] = (), **made: tuple[int, tuple[int, ...]]) -> Groups:
    """``made``: capacity and nodes, by name."""
    found = {name: ResourceGroup(name, capacity, ids(*nodes)) for name, (capacity, nodes) in made.items()}
    return {DEFAULT: ResourceGroup(DEFAULT, 1_000_000, ids(*default)), **found}


def nodes(of: Groups) -> dict[str, tuple[int, ...]]:
    return {name: group.nodes for name, group in of.items()}


def replica(collection: CollectionID, group: str, *at: int, number: int = 0) -> PlacedReplica:
    return PlacedReplica(collection, number, group, ids(*at))


# nodes come and go


def test_without_other_groups_every_node_is_in_the_default_one() -> None:
    assert nodes(settle(NO_GROUPS, ids(2, 1))) == {DEFAULT: (1, 2)}


def test_a_new_node_goes_to_a_group_below_its_capacity_then_to_the_default_one() -> None:
    before = groups((1,), a=(2, (2,)), b=(1, ()))
    assert nodes(settle(before, ids(1, 2, 3))) == {DEFAULT: (1,), "a": (2, 3), "b": ()}
    assert nodes(settle(before, ids(1, 2, 3, 4, 5))) == {DEFAULT: (1, 3), "a": (2, 5), "b": (4,)}


def test_a_lost_node_leaves_and_the_capacity_stays() -> None:
    after = settle(groups((1,), a=(2, (2, 3))), ids(1, 3))
    assert (after["a"].capacity, nodes(after)) == (2, {DEFAULT: (1,), "a": (3,)})


def test_what_a_group_lacks_is_taken_from_the_default_one() -> None:
    assert nodes(reconcile(groups((1, 4), a=(2, (2,))))) == {DEFAULT: (1,), "a": (2, 4)}
    assert nodes(reconcile(groups((), a=(2, (2,))))) == {DEFAULT: (), "a": (2,)}


@given(st.data())
def test_every_node_is_in_one_group_and_none_holds_more_than_its_capacity(data: st.DataObject) -> None:
    state: Groups = {**NO_GROUPS, **{name: ResourceGroup(name) for name in "ab"}}
    for _ in range(data.draw(st.integers(1, 8))):
        alive = data.draw(st.frozensets(st.integers(1, 6)))
        state = settle(state, ids(*alive))
        kept = settle(state, ids(*alive))
        assert kept == state, "who stays alive stays where it is"
        source, target = data.draw(st.permutations(sorted(state)))[:2]
        if len(state[source].nodes) > 1:
            state = transfer_nodes(state, source, target, 1, [])
        state = reconcile(state)
        placed = [n for group in state.values() for n in group.nodes]
        assert sorted(placed) == sorted(alive)
        assert all(len(group.nodes) <= group.capacity for group in state.values())


# what clients ask


def test_a_group_is_made_once_and_not_without_end() -> None:
    assert created(NO_GROUPS, "a") == ResourceGroup("a", 0, ())
    known = groups(a=(0, ()), b=(1, ()))
    assert created(known, "a") is created(known, "a", GroupConfig()) is known["a"]
    for name, config in (("a", GroupConfig(0, 1)), ("b", None), (DEFAULT, None)):
        with pytest.raises(ResourceGroupAlreadyExists, match=rf"resource group already exist\[rg={name}\]"):
            created(known, name, config)
    full = {str(n): ResourceGroup(str(n)) for n in range(RESOURCE_GROUPS_MAX)}
    with pytest.raises(ResourceGroupLimitReached, match="reach limit 1024"):
        created(full, "a")
    with pytest.raises(ResourceGroupNotFound, match=r"resource group not found\[rg=a\]"):
        find(NO_GROUPS, "a")


def test_a_group_is_dropped_only_when_nothing_is_in_it() -> None:
    check_droppable(NO_GROUPS, ResourceGroup("a"), [replica(ONE, "b", 1)])
    with pytest.raises(InvalidParameter, match="delete default rg is not permitted"):
        check_droppable(NO_GROUPS, NO_GROUPS[DEFAULT], [])
    with pytest.raises(InvalidParameter, match=r"some replicas still loaded in resource group\[a\]"):
        check_droppable(NO_GROUPS, ResourceGroup("a"), [replica(ONE, "a", 1)])
    with pytest.raises(InvalidParameter, match="delete non-empty rg is not permitted"):
        check_droppable(NO_GROUPS, ResourceGroup("a", 1), [])


def test_a_transfer_moves_nodes_and_capacity_but_never_the_default_groups() -> None:
    there = transfer_nodes(groups((1, 2, 3), a=(0, ())), DEFAULT, "a", 2, [])
    assert nodes(there) == {DEFAULT: (1,), "a": (2, 3)}
    assert (there[DEFAULT].capacity, there["a"].capacity) == (1_000_000, 2)
    back = transfer_nodes(there, "a", DEFAULT, 1, [])
    assert (nodes(back), back["a"].capacity) == ({DEFAULT: (1, 3), "a": (2,)}, 1)


@pytest.mark.parametrize(
    ("source", "target", "count", "error", "text"),
    [
        ("x", "a", 1, InvalidParameter, "source resource group not found"),
        ("a", "x", 1, InvalidParameter, "target resource group not found"),
        ("a", "a", 1, InvalidParameter, "should not be the same"),
        ("a", "b", 0, InvalidParameter, "invalid NumNode 0"),
        ("a", "b", -1, InvalidParameter, "invalid NumNode -1"),
        ("a", "b", 1, InvalidParameter, "collection 1 loaded for both"),
        ("a", DEFAULT, 2, NodesNotEnough, r"not enough\[rg=a\]\[currentNodeNum=1\]\[expectedNodeNum=2\]"),
    ],
)
def test_transfers_that_are_refused(
    source: str, target: str, count: int, error: type[Exception], text: str
) -> None:
    loaded = [replica(ONE, "a", 1), replica(ONE, "b", 2), replica(OTHER, DEFAULT, 3)]
    with pytest.raises(error, match=text):
        transfer_nodes(groups((3,), a=(1, (1,)), b=(1, (2,))), source, target, count, loaded)


def test_a_census_counts_replicas_and_the_nodes_that_work_for_another_group() -> None:
    state = groups((1,), a=(2, (2, 3)))
    loaded = [replica(ONE, "a", 2, 1), replica(ONE, "a", 3), replica(OTHER, DEFAULT, 1, 3)]
    counted = census(state["a"], loaded)
    assert (counted.loaded, counted.outgoing, counted.incoming) == ({ONE: 2}, {ONE: 1}, {OTHER: 1})
    assert [outbound(state, r) for r in loaded] == [{DEFAULT: 1}, {}, {"a": 1}]


# replicas


def test_replicas_go_into_one_group_or_into_one_each() -> None:
    state = groups(a=(0, ()), b=(0, ()))
    assert spread(state, [], 2) == (DEFAULT, DEFAULT)
    assert spread(state, ["a"], 2) == ("a", "a")
    assert spread(state, ["a", "b"], 2) == ("a", "b")


@pytest.mark.parametrize(
    ("asked", "replicas", "error", "text"),
    [
        (["a", "b"], 3, InvalidParameter, "can only be 0, 1 or same as replica number"),
        (["a", "b"], 1, InvalidParameter, "can only be 0, 1 or same as replica number"),
        (["a", DEFAULT], 2, InvalidParameter, "can't use default resource group and other"),
        (["x"], 1, ResourceGroupNotFound, r"\[rg=x\]"),
    ],
)
def test_loads_that_are_refused(asked: list[str], replicas: int, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        spread(groups(a=(0, ()), b=(0, ())), asked, replicas)


def test_what_is_loaded_stays_in_its_groups() -> None:
    check_same_groups([], ("a", "b"))
    check_same_groups(["b"], ("a", "b"))
    with pytest.raises(InvalidParameter, match="should use collection's resource group"):
        check_same_groups(["b"], ("a", "a"))


def test_a_transfer_of_replicas_takes_the_first_of_them() -> None:
    state = groups(a=(0, ()), b=(0, ()), c=(0, ()))
    assert transfer_replicas(state, ("a", "b", "a"), "a", "c", 1) == ("c", "b", "a")
    assert transfer_replicas(state, (DEFAULT, DEFAULT), DEFAULT, "a", 2) == ("a", "a")


@pytest.mark.parametrize(
    ("of_replica", "source", "target", "count", "error", "text"),
    [
        (("a",), "x", "b", 1, ResourceGroupNotFound, r"the source resource group\[x\] doesn't exist"),
        (("a",), "a", "x", 1, ResourceGroupNotFound, r"the target resource group\[x\] doesn't exist"),
        (("a",), "a", "b", 0, InvalidParameter, "invalid NumReplica 0"),
        (("a",), "a", "b", 2, InvalidParameter, r"only found \[1\] replicas in source resource group\[a\]"),
        (("a", "b"), "a", "b", 1, InvalidParameter, r"found \[1\] replicas of same collection in target"),
        (("a", "a"), "a", DEFAULT, 1, InvalidParameter, "try to transfer 1 replicas from/to but 2"),
    ],
)
def test_transfers_of_replicas_that_are_refused(
    of_replica: tuple[str, ...], source: str, target: str, count: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        transfer_replicas(groups(a=(0, ()), b=(0, ())), of_replica, source, target, count)


def test_each_group_shares_its_nodes_out_among_its_replicas() -> None:
    state = groups((9,), a=(3, (1, 2, 3)), b=(1, (4,)))
    current = {0: ids(4), 1: ids(3), 2: ids(9)}
    assert nodes_of_replicas(state, ("a", "a", "b"), current) == {0: (1, 2), 1: (3,), 2: (4,)}


def test_replicas_of_a_group_without_nodes_stay_where_they_are_alive() -> None:
    state = groups((1, 2), a=(1, ()))
    assert nodes_of_replicas(state, ("a",), {0: ids(2, 7)}) == {0: (2,)}
