"""The RPCs of resource groups: sets of query nodes, and the replicas placed on them."""

from __future__ import annotations

from elanus.core.group_config import GroupConfig, illegal_config
from elanus.core.names import check_collection_name, check_resource_group_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.resource_groups import ResourceGroupVerbs
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, rg_pb2


class ResourceGroups:
    """Resource groups: declared (`UpdateResourceGroups`), or by transfers of nodes."""

    def __init__(self, verbs: ResourceGroupVerbs) -> None:
        self._verbs = verbs

    @rpc("resource_group", "config", privilege="PrivilegeCreateResourceGroup")
    def CreateResourceGroup(
        self, request: milvus_pb2.CreateResourceGroupRequest, caller: Caller
    ) -> common_pb2.Status:
        name = check_resource_group_name(request.resource_group)
        config = _config(name, request.config) if request.HasField("config") else None
        self._verbs.create_resource_group(name, config)
        return success()

    @rpc("resource_groups", privilege="PrivilegeUpdateResourceGroups")
    def UpdateResourceGroups(
        self, request: milvus_pb2.UpdateResourceGroupsRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.update_resource_groups(
            {name: _config(name, config) for name, config in request.resource_groups.items()}
        )
        return success()

    @rpc("resource_group", privilege="PrivilegeDropResourceGroup")
    def DropResourceGroup(
        self, request: milvus_pb2.DropResourceGroupRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.drop_resource_group(request.resource_group)
        return success()

    @rpc(privilege="PrivilegeListResourceGroups")
    def ListResourceGroups(
        self, request: milvus_pb2.ListResourceGroupsRequest, caller: Caller
    ) -> milvus_pb2.ListResourceGroupsResponse:
        return milvus_pb2.ListResourceGroupsResponse(resource_groups=self._verbs.list_resource_groups())

    @rpc("resource_group", privilege="PrivilegeDescribeResourceGroup")
    def DescribeResourceGroup(
        self, request: milvus_pb2.DescribeResourceGroupRequest, caller: Caller
    ) -> milvus_pb2.DescribeResourceGroupResponse:
        view = self._verbs.describe_resource_group(request.resource_group)
        response = milvus_pb2.DescribeResourceGroupResponse()
        group = response.resource_group
        group.name = view.name
        group.capacity = view.capacity
        group.num_available_node = len(view.node_ids)
        group.num_loaded_replica.update(view.loaded)
        group.num_outgoing_node.update(view.outgoing)
        group.num_incoming_node.update(view.incoming)
        _fill(group.config, view.config)
        for node_id in view.node_ids:
            group.nodes.add(node_id=node_id)
        return response

    @rpc("source_resource_group", "target_resource_group", "num_node", privilege="PrivilegeTransferNode")
    def TransferNode(self, request: milvus_pb2.TransferNodeRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.transfer_node(
            check_resource_group_name(request.source_resource_group),
            check_resource_group_name(request.target_resource_group),
            request.num_node,
        )
        return success()

    @rpc(
        "source_resource_group",
        "target_resource_group",
        "collection_name",
        "num_replica",
        privilege="PrivilegeTransferReplica",
    )
    def TransferReplica(
        self, request: milvus_pb2.TransferReplicaRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.transfer_replica(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            check_resource_group_name(request.source_resource_group),
            check_resource_group_name(request.target_resource_group),
            request.num_replica,
        )
        return success()


def _config(name: str, message: rg_pb2.ResourceGroupConfig) -> GroupConfig:
    """Raises `ResourceGroupIllegalConfig` unless both requests and limits are given."""
    if not (message.HasField("requests") and message.HasField("limits")):
        raise illegal_config(name, None, "requests or limits is required")
    return GroupConfig(
        message.requests.node_num,
        message.limits.node_num,
        tuple(other.resource_group for other in message.transfer_from),
        tuple(other.resource_group for other in message.transfer_to),
        {pair.key: pair.value for pair in message.node_filter.node_labels},
    )


def _fill(message: rg_pb2.ResourceGroupConfig, config: GroupConfig) -> None:
    message.requests.node_num = config.requests
    message.limits.node_num = config.limits
    for name in config.transfer_from:
        message.transfer_from.add(resource_group=name)
    for name in config.transfer_to:
        message.transfer_to.add(resource_group=name)
    for key, value in config.node_labels.items():
        message.node_filter.node_labels.add(key=key, value=value)
