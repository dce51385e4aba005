"""The RPCs of resource groups: query nodes set apart, and replicas placed on them."""

from __future__ import annotations

from elanus.proxy.api import Front
from elanus.proxy.wire.names import check_collection_name, check_resource_group_name
from elanus.proxy.wire.requests import Context, database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, milvus_pb2


class ResourceGroups:
    """As the reference's 2.3 has them. What a group requests and limits (2.4) is not supported."""

    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("resource_group")
    def CreateResourceGroup(self, request: Message, context: Context) -> Message:
        self._front.create_resource_group(check_resource_group_name(request.resource_group))
        return success()

    @rpc("resource_group")
    def DropResourceGroup(self, request: Message, context: Context) -> Message:
        self._front.drop_resource_group(request.resource_group)
        return success()

    @rpc()
    def ListResourceGroups(self, request: Message, context: Context) -> Message:
        return milvus_pb2.ListResourceGroupsResponse(resource_groups=self._front.list_resource_groups())

    @rpc("resource_group")
    def DescribeResourceGroup(self, request: Message, context: Context) -> Message:
        view = self._front.describe_resource_group(request.resource_group)
        response = milvus_pb2.DescribeResourceGroupResponse()
        group = response.resource_group
        group.name = view.name
        group.capacity = view.capacity
        group.num_available_node = len(view.node_ids)
        group.num_loaded_replica.update(view.loaded)
        group.num_outgoing_node.update(view.outgoing)
        group.num_incoming_node.update(view.incoming)
        for node_id in view.node_ids:
            group.nodes.add(node_id=node_id)
        return response

    @rpc("source_resource_group", "target_resource_group", "num_node")
    def TransferNode(self, request: Message, context: Context) -> Message:
        self._front.transfer_node(
            check_resource_group_name(request.source_resource_group),
            check_resource_group_name(request.target_resource_group),
            request.num_node,
        )
        return success()

    @rpc("source_resource_group", "target_resource_group", "collection_name", "num_replica")
    def TransferReplica(self, request: Message, context: Context) -> Message:
        self._front.transfer_replica(
            database_of(request, context),
            check_collection_name(request.collection_name),
            check_resource_group_name(request.source_resource_group),
            check_resource_group_name(request.target_resource_group),
            request.num_replica,
        )
        return success()
