"""The RPCs about the server itself, and the teardown calls that every client makes.

There are no users, roles or privileges: asking for them finds none, creating one is not supported.
"""

from __future__ import annotations

import platform
import secrets

import msgspec

from elanus import __version__
from elanus.proxy.api import ComponentView, Front, SegmentView
from elanus.proxy.wire.names import check_collection_name
from elanus.proxy.wire.parameters import json_object
from elanus.proxy.wire.requests import Context, database_of, database_of_connection, rpc
from elanus.proxy.wire.stubs import Message, common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported

SERVER_VERSION = f"v2.3.5-elanus-{__version__}"
"""The reference's release that the wire behaves like, then ours.

Clients and tools that choose features by version read the first part.
"""

_PROXY_ROLE = "proxy"
_IDENTIFIER_BITS = 62
_SYSTEM_INFO = "system_info"
_DROPPED_BY_DEFAULT = frozenset({common_pb2.Dropped, common_pb2.NotExist, common_pb2.SegmentStateNone})


class Admin:
    def __init__(self, front: Front, deploy_mode: str) -> None:
        self._front = front
        self._deploy_mode = deploy_mode

    @rpc("client_info")
    def Connect(self, request: Message, context: Context) -> Message:
        """Checks the connection's database. Raises `DatabaseNotFound`."""
        if database := database_of_connection(context):
            self._front.describe_database(database)
        return milvus_pb2.ConnectResponse(
            server_info=common_pb2.ServerInfo(
                build_tags=SERVER_VERSION,
                go_version=f"python {platform.python_version()}",
                deploy_mode=self._deploy_mode,
            ),
            identifier=secrets.randbits(_IDENTIFIER_BITS),
        )

    @rpc()
    def GetVersion(self, request: Message, context: Context) -> Message:
        return milvus_pb2.GetVersionResponse(version=SERVER_VERSION)

    @rpc()
    def AllocTimestamp(self, request: Message, context: Context) -> Message:
        return milvus_pb2.AllocTimestampResponse(timestamp=self._front.allocate_timestamp())

    @rpc()
    def CheckHealth(self, request: Message, context: Context) -> Message:
        ill = [c for c in self._front.components() if not c.healthy]
        reasons = [f"{c.role} {c.node_id} is not healthy: {c.detail or 'no detail'}" for c in ill]
        return milvus_pb2.CheckHealthResponse(isHealthy=not ill, reasons=reasons)

    @rpc()
    def GetComponentStates(self, request: Message, context: Context) -> Message:
        components = self._front.components()
        response = milvus_pb2.ComponentStates(subcomponent_states=map(_component_info, components))
        for component in components:
            if component.role == _PROXY_ROLE:
                response.state.CopyFrom(_component_info(component))
        return response

    @rpc("request")
    def GetMetrics(self, request: Message, context: Context) -> Message:
        """The topology as JSON, as monitoring tools read it. Figures are in the Prometheus endpoint."""
        kind = json_object(request.request, "request").get("metric_type")
        if kind != _SYSTEM_INFO:
            raise unsupported(f"the metric type {kind}", f"use {_SYSTEM_INFO}, or the Prometheus endpoint")
        nodes = [self._node_info(component) for component in self._front.components()]
        text = msgspec.json.encode({"nodes_info": nodes}).decode()
        return milvus_pb2.GetMetricsResponse(response=text, component_name=_PROXY_ROLE)

    def _node_info(self, component: ComponentView) -> dict[str, object]:
        return {
            "identifier": component.node_id,
            "connected": None,
            "infos": {
                "has_error": not component.healthy,
                "error_reason": component.detail,
                "name": f"{component.role}{component.node_id}",
                "type": component.role,
                "id": component.node_id,
                "system_info": {"build_version": SERVER_VERSION, "deploy_mode": self._deploy_mode},
            },
        }

    @rpc("collectionName", "states")
    def GetPersistentSegmentInfo(self, request: Message, context: Context) -> Message:
        wanted = frozenset(request.states)
        found = self._front.persistent_segments(
            database_of(request, context), check_collection_name(request.collectionName)
        )
        shown = [s for s in found if (s.state in wanted if wanted else s.state not in _DROPPED_BY_DEFAULT)]
        return milvus_pb2.GetPersistentSegmentInfoResponse(infos=map(_persistent_segment, shown))

    @rpc("collectionName")
    def GetQuerySegmentInfo(self, request: Message, context: Context) -> Message:
        found = self._front.query_segments(
            database_of(request, context), check_collection_name(request.collectionName)
        )
        return milvus_pb2.GetQuerySegmentInfoResponse(infos=map(_query_segment, found))

    @rpc()
    def ListCredUsers(self, request: Message, context: Context) -> Message:
        return milvus_pb2.ListCredUsersResponse()

    @rpc("role", "include_user_info")
    def SelectRole(self, request: Message, context: Context) -> Message:
        return milvus_pb2.SelectRoleResponse()

    @rpc("user", "include_role_info")
    def SelectUser(self, request: Message, context: Context) -> Message:
        return milvus_pb2.SelectUserResponse()

    @rpc("entity")
    def SelectGrant(self, request: Message, context: Context) -> Message:
        return milvus_pb2.SelectGrantResponse()

    @rpc()
    def ListPrivilegeGroups(self, request: Message, context: Context) -> Message:
        return milvus_pb2.ListPrivilegeGroupsResponse()


def _component_info(component: ComponentView) -> Message:
    state = common_pb2.Healthy if component.healthy else common_pb2.Abnormal
    info = milvus_pb2.ComponentInfo(nodeID=component.node_id, role=component.role, state_code=state)
    if component.detail:
        info.extra_info.add(key="detail", value=component.detail)
    return info


def _persistent_segment(segment: SegmentView) -> Message:
    return milvus_pb2.PersistentSegmentInfo(
        segmentID=segment.segment_id,
        collectionID=segment.collection_id,
        partitionID=segment.partition_id,
        num_rows=segment.rows,
        state=int(segment.state),
        insert_channel=segment.vchannel,
    )


def _query_segment(segment: SegmentView) -> Message:
    return milvus_pb2.QuerySegmentInfo(
        segmentID=segment.segment_id,
        collectionID=segment.collection_id,
        partitionID=segment.partition_id,
        mem_size=segment.memory_bytes,
        num_rows=segment.rows,
        index_name=segment.index_name,
        indexID=segment.index_id,
        nodeID=segment.node_ids[0] if segment.node_ids else 0,
        nodeIds=segment.node_ids,
        state=int(segment.state),
    )
