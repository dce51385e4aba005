"""Resource groups as clients declare them: what is refused, and which nodes move where."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import (
    InvalidParameter,
    ResourceGroupAlreadyExists,
    ResourceGroupIllegalConfig,
    ResourceGroupNotFound,
)
from elanus.core.group_config import GroupConfig
from elanus.core.group_nodes import reconcile, settle
from elanus.core.ids import NodeID
from elanus.core.resource_groups import (
    DEFAULT_RESOURCE_GROUP,
    NO_GROUPS,
    Groups,
    ResourceGroup,
    check_droppable,
    created,
    transfer_nodes,
    updated,
)

DEFAULT = DEFAULT_RESOURCE_GROUP
Nodes = dict[str, tuple[int, ...]]


def declared(
    made: Mapping[str, tuple[GroupConfig, tuple[int, ...]]], default: tuple[int, ...] = ()
) -> Groups:
    groups = {
        name: ResourceGroup(name, nodes=tuple(map(NodeID, nodes))).configured(config)
        for name, (config, nodes) in made.items()
    }
    return {DEFAULT: ResourceGroup(DEFAULT, 1_000_000, tuple(map(NodeID, default))), **groups}


def nodes(of: Groups) -> Nodes:
    return {name: group.nodes for name, group in of.items()}


# what is refused


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (GroupConfig(-1, 0), "node num in `requests` or `limits` should not less than 0"),
        (GroupConfig(0, -2), "node num in `requests` or `limits` should not less than 0"),
        (GroupConfig(2, 1), "limits node num should not less than requests node num"),
        (GroupConfig(1, 1, transfer_from=("a",)), "resource group in `TransferFrom` a should not be itself"),
        (GroupConfig(1, 1, transfer_to=("x",)), "resource group in `TransferTo` x not exist"),
    ],
)
def test_an_illegal_configuration_is_refused(config: GroupConfig, text: str) -> None:
    with pytest.raises(ResourceGroupIllegalConfig, match=text):
        created(NO_GROUPS, "a", config)
    with pytest.raises(ResourceGroupIllegalConfig, match=text):
        updated(declared({"a": (GroupConfig(), ())}), {"a": config})


def test_a_group_can_be_created_again_with_its_configuration() -> None:
    config = GroupConfig(1, 2, transfer_from=(DEFAULT,))
    groups = {**NO_GROUPS, "a": created(NO_GROUPS, "a", config)}
    assert (groups["a"].capacity, groups["a"].declared) == (1, config)
    assert created(groups, "a", config) is groups["a"]
    with pytest.raises(ResourceGroupAlreadyExists, match="already exist, but create with different config"):
        created(groups, "a", GroupConfig(1, 1))


def test_an_update_is_refused_as_a_whole() -> None:
    groups = declared({"a": (GroupConfig(), ())})
    with pytest.raises(ResourceGroupNotFound, match=r"rg=b"):
        updated(groups, {"a": GroupConfig(1, 1), "b": GroupConfig(1, 1)})
    after = updated(groups, {"a": GroupConfig(1, 1), DEFAULT: GroupConfig(2, 5)})
    assert (after["a"].capacity, after[DEFAULT].capacity) == (1, 1_000_000)


def test_a_group_that_may_have_nodes_or_is_named_by_another_is_not_dropped() -> None:
    groups = declared({"a": (GroupConfig(0, 1), ()), "b": (GroupConfig(1, 1, transfer_to=("c",)), ())})
    with pytest.raises(InvalidParameter, match="limits of 1"):
        check_droppable(groups, groups["a"], [])
    with pytest.raises(InvalidParameter, match="resource group c is used by b's `TransferTo`"):
        check_droppable(groups, ResourceGroup("c"), [])


# where nodes go


def test_a_group_takes_what_it_requests_from_those_that_have_more() -> None:
    groups = declared({"a": (GroupConfig(2, 3), ()), "b": (GroupConfig(1, 9), (4, 5))}, (1, 2, 3))
    assert nodes(reconcile(groups)) == {DEFAULT: (1,), "a": (2, 3), "b": (4, 5)}, "most nodes are spare there"
    preferring = declared({"a": (GroupConfig(1, 1, ("b",)), ()), "b": (GroupConfig(1, 9), (4, 5))}, (1, 2, 3))
    assert nodes(reconcile(preferring)) == {DEFAULT: (1, 2, 3), "a": (5,), "b": (4,)}
    busy = declared({"a": (GroupConfig(1, 1), ()), "b": (GroupConfig(2, 9), (4, 5))})
    assert reconcile(busy) == busy, "no group is left with less than it requests"


def test_what_a_group_has_above_its_limits_goes_to_others() -> None:
    config = GroupConfig(0, 1, transfer_to=("b",))
    groups = declared({"a": (config, (1, 2, 3)), "b": (GroupConfig(0, 1), ()), "c": (GroupConfig(1, 1), ())})
    assert nodes(reconcile(groups)) == {DEFAULT: (), "a": (1,), "b": (2,), "c": (3,)}
    alone = declared({"a": (GroupConfig(0, 0), (1, 2))})
    assert nodes(reconcile(alone)) == {DEFAULT: (1, 2), "a": ()}


def test_a_group_takes_only_nodes_with_its_labels() -> None:
    fast = GroupConfig(1, 2, node_labels={"disk": "nvme"})
    labels = {NodeID(1): {"disk": "nvme", "zone": "x"}, NodeID(2): {"disk": "hdd"}}
    groups = declared({"fast": (fast, (3,)), "rest": (GroupConfig(1, 1), ())}, (1, 2))
    assert nodes(reconcile(groups, labels)) == {DEFAULT: (2,), "fast": (1,), "rest": (3,)}
    assert nodes(settle(declared({"fast": (fast, ())}), [NodeID(2), NodeID(1)], labels))["fast"] == (1,)


def test_a_node_that_joins_goes_where_most_nodes_are_missing() -> None:
    groups = declared({"a": (GroupConfig(1, 1), ()), "b": (GroupConfig(2, 2), ())})
    assert nodes(settle(groups, [NodeID(1)])) == {DEFAULT: (), "a": (), "b": (1,)}
    full = updated(declared({"a": (GroupConfig(0, 5), ())}), {DEFAULT: GroupConfig(0, 1)})
    assert nodes(settle(full, [NodeID(1), NodeID(2)])) == {DEFAULT: (), "a": (1, 2)}


def test_a_transfer_changes_what_both_groups_declare() -> None:
    groups = declared({"a": (GroupConfig(2, 3), (1, 2)), "b": (GroupConfig(0, 4), ())})
    after = transfer_nodes(groups, "a", "b", 1, [])
    assert (after["a"].declared, after["b"].declared) == (GroupConfig(1, 2), GroupConfig(1, 4))
    assert nodes(after) == {DEFAULT: (), "a": (1,), "b": (2,)}
    assert reconcile(after) == after


def test_a_node_that_becomes_spare_by_another_move_is_moved_on() -> None:
    groups = declared(
        {
            "a": (GroupConfig(0, 0, transfer_to=("b",)), (0, 1, 2)),
            "b": (GroupConfig(1, 2, ("a", "b"), ("b", "a")), ()),
            "c": (GroupConfig(1, 1, ("a", "b"), ("b", "a"), {"disk": "nvme"}), ()),
        }
    )
    after = reconcile(groups, {NodeID(2): {"disk": "nvme"}})
    assert nodes(after)["c"] == (2,)
    assert len(nodes(after)["b"]) >= 1


configs = st.builds(
    lambda requests, more, labels, others: GroupConfig(
        requests, requests + more, others, others[::-1], {"disk": "nvme"} if labels else {}
    ),
    st.integers(0, 4),
    st.integers(0, 3),
    st.booleans(),
    st.permutations(["a", "b", "c", DEFAULT]).map(lambda names: tuple(names[:2])),
)


@given(
    st.fixed_dictionaries(dict.fromkeys("abc", configs)),
    st.lists(st.sampled_from(["a", "b", "c", DEFAULT]), max_size=9),
    st.sets(st.integers(0, 8)),
)
def test_nodes_are_moved_as_far_as_the_configurations_allow_and_not_back(
    made: dict[str, GroupConfig], places: list[str], labeled: set[int]
) -> None:
    at: dict[str, tuple[int, ...]] = {
        name: tuple(n for n, place in enumerate(places) if place == name) for name in (*made, DEFAULT)
    }
    labels = {NodeID(n): {"disk": "nvme"} for n in labeled}
    groups = declared({name: (config, at[name]) for name, config in made.items()}, at[DEFAULT])
    after = reconcile(groups, labels)
    assert sorted(n for group in after.values() for n in group.nodes) == list(range(len(places)))
    assert reconcile(after, labels) == after
    for group in after.values():
        own = [n for n in group.nodes if group.declared.accepts(labels.get(n, {}))]
        assert own == list(group.nodes)
        assert len(own) <= group.declared.limits
        lacking = len(own) < group.declared.requests
        spare = [
            n
            for other in after.values()
            if len(other.nodes) > other.declared.requests
            for n in other.nodes
            if group.declared.accepts(labels.get(n, {}))
        ]
        assert not (lacking and spare), "a node that is spare and fits is where it is needed"
