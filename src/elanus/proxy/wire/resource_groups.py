"""Resource groups, of which there is one: it holds all query nodes."""

from __future__ import annotations

from elanus.core.errors import ResourceGroupNotFound
from elanus.proxy.api import Front
from elanus.proxy.wire.requests import Context, rpc
from elanus.proxy.wire.stubs import Message, milvus_pb2

DEFAULT_RESOURCE_GROUP = "__default_resource_group"
QUERY_NODE_ROLE = "querynode"


class ResourceGroups:
    """What clients ask in their teardown. Changing groups is not supported."""

    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc()
    def ListResourceGroups(self, request: Message, context: Context) -> Message:
        return milvus_pb2.ListResourceGroupsResponse(resource_groups=[DEFAULT_RESOURCE_GROUP])

    @rpc("resource_group")
    def DescribeResourceGroup(self, request: Message, context: Context) -> Message:
        if request.resource_group != DEFAULT_RESOURCE_GROUP:
            raise ResourceGroupNotFound(f"resource group not found[rg={request.resource_group}]")
        nodes = [c for c in self._front.components() if c.role == QUERY_NODE_ROLE]
        response = milvus_pb2.DescribeResourceGroupResponse()
        group = response.resource_group
        group.name = DEFAULT_RESOURCE_GROUP
        group.capacity = len(nodes)
        group.num_available_node = sum(node.healthy for node in nodes)
        for node in nodes:
            group.nodes.add(node_id=node.node_id)
        return response
