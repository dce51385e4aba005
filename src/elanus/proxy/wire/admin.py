"""The RPCs about the server itself, its segments, and what every client asks when it connects."""

from __future__ import annotations

import platform
import secrets

import msgspec

from elanus import __version__
from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.introspection import ComponentView, SegmentView
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.parameters import json_object
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported

SERVER_VERSION = "v2.6.16"
"""The release of the reference whose features there are.

Programs choose theirs by it: Open WebUI and Dify search for words from 2.5 on. Nothing follows it, since each
of them reads a suffix in another way, or fails at it.
"""

OWN_VERSION = f"elanus-{__version__}"
"""The release of Elanus, shown where the reference shows the commit it was built from."""

_PROXY_ROLE = "proxy"
_IDENTIFIER_BITS = 62
_SYSTEM_INFO = "system_info"
_PERSISTENT: frozenset[int] = frozenset({common_pb2.Sealed, common_pb2.Flushing, common_pb2.Flushed})
"""The states that GetPersistentSegmentInfo shows when a request names none, as in the reference."""
_LEVEL = common_pb2.SegmentLevel.Value("L1")
"""The level of segments of rows. There are no delete-only (L0) or clustered (L2) segments."""
_STORAGE_VERSION = 1
"""The format of segments on disk (docs/segment-format.md)."""


class Admin:
    def __init__(self, verbs: Verbs, deploy_mode: str) -> None:
        self._verbs = verbs
        self._deploy_mode = deploy_mode

    @rpc("client_info", privilege=NO_PRIVILEGE)
    def Connect(self, request: milvus_pb2.ConnectRequest, caller: Caller) -> milvus_pb2.ConnectResponse:
        """Check the connection's database. Raises `DatabaseNotFound`."""
        if database := caller.database:
            self._verbs.describe_database(database)
        return milvus_pb2.ConnectResponse(
            server_info=common_pb2.ServerInfo(
                build_tags=SERVER_VERSION,
                git_commit=OWN_VERSION,
                go_version=f"python {platform.python_version()}",
                deploy_mode=self._deploy_mode,
            ),
            identifier=secrets.randbits(_IDENTIFIER_BITS),
        )

    @rpc(privilege=NO_PRIVILEGE)
    def GetVersion(
        self, request: milvus_pb2.GetVersionRequest, caller: Caller
    ) -> milvus_pb2.GetVersionResponse:
        return milvus_pb2.GetVersionResponse(version=SERVER_VERSION)

    @rpc(privilege=NO_PRIVILEGE)
    def AllocTimestamp(
        self, request: milvus_pb2.AllocTimestampRequest, caller: Caller
    ) -> milvus_pb2.AllocTimestampResponse:
        return milvus_pb2.AllocTimestampResponse(timestamp=self._verbs.allocate_timestamp())

    @rpc(privilege=NO_PRIVILEGE)
    def CheckHealth(
        self, request: milvus_pb2.CheckHealthRequest, caller: Caller
    ) -> milvus_pb2.CheckHealthResponse:
        ill = [c for c in self._verbs.components() if not c.healthy]
        reasons = [f"{c.role} {c.node_id} is not healthy: {c.detail or 'no detail'}" for c in ill]
        return milvus_pb2.CheckHealthResponse(isHealthy=not ill, reasons=reasons)

    @rpc(privilege=NO_PRIVILEGE)
    def GetComponentStates(
        self, request: milvus_pb2.GetComponentStatesRequest, caller: Caller
    ) -> milvus_pb2.ComponentStates:
        components = self._verbs.components()
        response = milvus_pb2.ComponentStates(subcomponent_states=map(_component_info, components))
        for component in components:
            if component.role == _PROXY_ROLE:
                response.state.CopyFrom(_component_info(component))
        return response

    @rpc("request", privilege=NO_PRIVILEGE)
    def GetMetrics(
        self, request: milvus_pb2.GetMetricsRequest, caller: Caller
    ) -> milvus_pb2.GetMetricsResponse:
        """Return the topology as JSON, for monitoring tools. The Prometheus endpoint has the figures."""
        kind = json_object(request.request, "request").get("metric_type")
        if kind != _SYSTEM_INFO:
            raise unsupported(f"the metric type {kind}", f"use {_SYSTEM_INFO}, or the Prometheus endpoint")
        nodes = [self._node_info(component) for component in self._verbs.components()]
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
                "system_info": {
                    "system_version": OWN_VERSION,
                    "build_version": SERVER_VERSION,
                    "deploy_mode": self._deploy_mode,
                },
            },
        }

    @rpc("collectionName", "states", privilege="PrivilegeGetStatistics", on="collectionName")
    def GetPersistentSegmentInfo(
        self, request: milvus_pb2.GetPersistentSegmentInfoRequest, caller: Caller
    ) -> milvus_pb2.GetPersistentSegmentInfoResponse:
        wanted: frozenset[int] = frozenset(request.states)
        found = self._verbs.persistent_segments(
            database_of(request, caller), check_collection_name(request.collectionName)
        )
        shown = [s for s in found if s.state in (wanted or _PERSISTENT)]
        return milvus_pb2.GetPersistentSegmentInfoResponse(infos=map(_persistent_segment, shown))

    @rpc("collectionName", privilege="PrivilegeGetStatistics", on="collectionName")
    def GetQuerySegmentInfo(
        self, request: milvus_pb2.GetQuerySegmentInfoRequest, caller: Caller
    ) -> milvus_pb2.GetQuerySegmentInfoResponse:
        found = self._verbs.query_segments(
            database_of(request, caller), check_collection_name(request.collectionName)
        )
        return milvus_pb2.GetQuerySegmentInfoResponse(infos=map(_query_segment, found))


def _component_info(component: ComponentView) -> milvus_pb2.ComponentInfo:
    state = common_pb2.Healthy if component.healthy else common_pb2.Abnormal
    info = milvus_pb2.ComponentInfo(nodeID=component.node_id, role=component.role, state_code=state)
    if component.detail:
        info.extra_info.add(key="detail", value=component.detail)
    return info


def _persistent_segment(segment: SegmentView) -> milvus_pb2.PersistentSegmentInfo:
    return milvus_pb2.PersistentSegmentInfo(
        segmentID=segment.segment_id,
        collectionID=segment.collection_id,
        partitionID=segment.partition_id,
        num_rows=segment.rows,
        state=common_pb2.SegmentState.ValueType(segment.state),
        insert_channel=segment.vchannel,
        compaction_from=segment.compacted_from,
        is_sorted=segment.is_sorted,
        level=_LEVEL,
        storage_version=_STORAGE_VERSION,
    )


def _query_segment(segment: SegmentView) -> milvus_pb2.QuerySegmentInfo:
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
        state=common_pb2.SegmentState.ValueType(segment.state),
        is_sorted=segment.is_sorted,
        level=_LEVEL,
        storage_version=_STORAGE_VERSION,
    )
