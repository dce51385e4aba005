"""The RPCs of resource groups: their names, their configuration, and what is shown of them."""

from __future__ import annotations

import pytest
from fake_verbs import FakeVerbs
from wire_messages import Call

from elanus.core.ids import NodeID
from elanus.proxy.api.resource_groups import ResourceGroupView
from elanus.proxy.wire.stubs import rg_pb2


def test_resource_groups_are_made_described_and_dropped(call: Call, verbs: FakeVerbs) -> None:
    assert call("CreateResourceGroup", resource_group="rg").code == 0
    assert call("CreateResourceGroup", resource_group="rg").code == 301
    assert list(call("ListResourceGroups").resource_groups) == ["__default_resource_group", "rg"]
    verbs.resource_groups["rg"] = ResourceGroupView("rg", 3, (NodeID(5),), {"a": 1}, {"a": 2}, {"b": 4})
    group = call("DescribeResourceGroup", resource_group="rg").resource_group
    assert (group.name, group.capacity, group.num_available_node) == ("rg", 3, 1)
    assert (dict(group.num_loaded_replica), dict(group.num_outgoing_node)) == ({"a": 1}, {"a": 2})
    assert (dict(group.num_incoming_node), [n.node_id for n in group.nodes]) == ({"b": 4}, [5])
    assert call("DropResourceGroup", resource_group="rg").code == 0
    assert call("DescribeResourceGroup", resource_group="rg").status.code == 300


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "resource group name couldn't be empty"),
        ("1a", "the first character of a resource group name must be an underscore or letter"),
        ("a-b", "resource group name can only contain numbers, letters and underscores"),
        ("a" * 256, "the length of a resource group name must be less than 255 characters"),
    ],
)
def test_names_of_resource_groups_are_checked(call: Call, name: str, text: str) -> None:
    for refused in (
        call("CreateResourceGroup", resource_group=name),
        call("TransferNode", source_resource_group=name, target_resource_group="b", num_node=1),
    ):
        assert (refused.code, text in refused.reason) == (1100, True)


def test_resource_groups_are_declared(call: Call) -> None:
    half = {"requests": {"node_num": 1}}
    refused = call("CreateResourceGroup", resource_group="rg", config=half)
    assert (refused.code, "requests or limits is required" in refused.reason) == (303, True)
    default = {"resource_group": "__default_resource_group"}
    sides = {"transfer_from": [default], "transfer_to": [default]}
    labels = {"node_labels": [{"key": "disk", "value": "nvme"}]}
    config = rg_pb2.ResourceGroupConfig(**half, limits={"node_num": 2}, **sides, node_filter=labels)
    assert call("CreateResourceGroup", resource_group="rg", config=config).code == 0
    assert call("DescribeResourceGroup", resource_group="rg").resource_group.config == config
    other = rg_pb2.ResourceGroupConfig(requests={"node_num": 0}, limits={"node_num": 0})
    assert call("UpdateResourceGroups", resource_groups={"rg": other}).code == 0
    assert call("DescribeResourceGroup", resource_group="rg").resource_group.config == other
    assert call("UpdateResourceGroups", resource_groups={"gone": other}).code == 300
    assert call("UpdateResourceGroups", resource_groups={"rg": half}).code == 303
