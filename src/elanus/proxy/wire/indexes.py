"""The RPCs of indexes."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.names import check_collection_name, check_index_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.indexes import IndexVerbs, IndexView
from elanus.proxy.wire.requests import add_pairs, database_of, rpc, to_dict
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_IndexRequest = (
    milvus_pb2.DescribeIndexRequest
    | milvus_pb2.GetIndexStatisticsRequest
    | milvus_pb2.GetIndexStateRequest
    | milvus_pb2.GetIndexBuildProgressRequest
)


class Indexes:
    """The requests' ``timestamp`` limits the answer to older segments; here states cover all segments."""

    def __init__(self, verbs: IndexVerbs) -> None:
        self._verbs = verbs

    @rpc(
        "collection_name",
        "field_name",
        "index_name",
        "extra_params",
        privilege="PrivilegeCreateIndex",
        on="collection_name",
    )
    def CreateIndex(self, request: milvus_pb2.CreateIndexRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.create_index(
            database_of(request, caller),
            request.collection_name,  # not checked: an invalid name is simply not found
            request.field_name,
            check_index_name(request.index_name),
            to_dict(request.extra_params),
        )
        return success()

    @rpc(
        "collection_name",
        "index_name",
        "extra_params",
        "delete_keys",
        privilege="PrivilegeCreateIndex",
        on="collection_name",
    )
    def AlterIndex(self, request: milvus_pb2.AlterIndexRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.alter_index(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            request.index_name,
            to_dict(request.extra_params),
            tuple(request.delete_keys),
        )
        return success()

    @rpc("collection_name", "field_name", "index_name", privilege="PrivilegeDropIndex", on="collection_name")
    def DropIndex(self, request: milvus_pb2.DropIndexRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.drop_index(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            request.field_name,
            request.index_name,
        )
        return success()

    @rpc(
        "collection_name",
        "field_name",
        "index_name",
        "timestamp",
        privilege="PrivilegeIndexDetail",
        on="collection_name",
    )
    def DescribeIndex(
        self, request: milvus_pb2.DescribeIndexRequest, caller: Caller
    ) -> milvus_pb2.DescribeIndexResponse:
        found = self._indexes(request, caller)
        return milvus_pb2.DescribeIndexResponse(index_descriptions=map(_description, found))

    @rpc("collection_name", "index_name", "timestamp", privilege="PrivilegeIndexDetail", on="collection_name")
    def GetIndexStatistics(
        self, request: milvus_pb2.GetIndexStatisticsRequest, caller: Caller
    ) -> milvus_pb2.GetIndexStatisticsResponse:
        found = self._indexes(request, caller)
        return milvus_pb2.GetIndexStatisticsResponse(index_descriptions=map(_description, found))

    @rpc(
        "collection_name", "field_name", "index_name", privilege="PrivilegeIndexDetail", on="collection_name"
    )
    def GetIndexState(
        self, request: milvus_pb2.GetIndexStateRequest, caller: Caller
    ) -> milvus_pb2.GetIndexStateResponse:
        index = self._indexes(request, caller)[0]
        return milvus_pb2.GetIndexStateResponse(state=_state(index), fail_reason=index.fail_reason)

    @rpc(
        "collection_name", "field_name", "index_name", privilege="PrivilegeIndexDetail", on="collection_name"
    )
    def GetIndexBuildProgress(
        self, request: milvus_pb2.GetIndexBuildProgressRequest, caller: Caller
    ) -> milvus_pb2.GetIndexBuildProgressResponse:
        index = self._indexes(request, caller)[0]
        return milvus_pb2.GetIndexBuildProgressResponse(
            indexed_rows=index.indexed_rows, total_rows=index.total_rows
        )

    def _indexes(self, request: _IndexRequest, caller: Caller) -> Sequence[IndexView]:
        """Return at least one index: `IndexVerbs.describe_index` raises `IndexNotFound` when none matches."""
        return self._verbs.describe_index(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            request.index_name,
            getattr(request, "field_name", ""),
        )


def _state(index: IndexView) -> common_pb2.IndexState.ValueType:
    names = common_pb2.IndexState
    return names.Value("IndexStateNone" if index.state == "None" else index.state)


def _description(index: IndexView) -> milvus_pb2.IndexDescription:
    message = milvus_pb2.IndexDescription(
        index_name=index.name,
        indexID=index.index_id,
        field_name=index.field_name,
        indexed_rows=index.indexed_rows,
        total_rows=index.total_rows,
        pending_index_rows=index.pending_rows,
        state=_state(index),
        index_state_fail_reason=index.fail_reason,
    )
    add_pairs(message.params, index.params)
    return message
