"""The RPCs of indexes."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.proxy.api import Front, IndexView
from elanus.proxy.wire.names import check_collection_name, check_index_name
from elanus.proxy.wire.requests import Context, add_pairs, database_of, rpc, to_dict
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, common_pb2, milvus_pb2


class Indexes:
    """``timestamp`` in the requests asks about segments up to a moment: states here cover all of them."""

    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("collection_name", "field_name", "index_name", "extra_params")
    def CreateIndex(self, request: Message, context: Context) -> Message:
        self._front.create_index(
            database_of(request, context),
            request.collection_name,  # not judged: a name that cannot be is one that is not found
            request.field_name,
            check_index_name(request.index_name),
            to_dict(request.extra_params),
        )
        return success()

    @rpc("collection_name", "field_name", "index_name")
    def DropIndex(self, request: Message, context: Context) -> Message:
        self._front.drop_index(
            database_of(request, context),
            check_collection_name(request.collection_name),
            request.field_name,
            request.index_name,
        )
        return success()

    @rpc("collection_name", "field_name", "index_name", "timestamp")
    def DescribeIndex(self, request: Message, context: Context) -> Message:
        found = self._indexes(request, context)
        return milvus_pb2.DescribeIndexResponse(index_descriptions=map(_description, found))

    @rpc("collection_name", "index_name", "timestamp")
    def GetIndexStatistics(self, request: Message, context: Context) -> Message:
        found = self._indexes(request, context)
        return milvus_pb2.GetIndexStatisticsResponse(index_descriptions=map(_description, found))

    @rpc("collection_name", "field_name", "index_name")
    def GetIndexState(self, request: Message, context: Context) -> Message:
        index = self._indexes(request, context)[0]
        return milvus_pb2.GetIndexStateResponse(state=_state(index), fail_reason=index.fail_reason)

    @rpc("collection_name", "field_name", "index_name")
    def GetIndexBuildProgress(self, request: Message, context: Context) -> Message:
        index = self._indexes(request, context)[0]
        return milvus_pb2.GetIndexBuildProgressResponse(
            indexed_rows=index.indexed_rows, total_rows=index.total_rows
        )

    def _indexes(self, request: Message, context: Context) -> Sequence[IndexView]:
        """At least one: the `Front` raises `IndexNotFound` when none matches."""
        return self._front.describe_index(
            database_of(request, context),
            check_collection_name(request.collection_name),
            request.index_name,
            getattr(request, "field_name", ""),
        )


def _state(index: IndexView) -> int:
    names = common_pb2.IndexState
    return int(names.Value("IndexStateNone" if index.state == "None" else index.state))


def _description(index: IndexView) -> Message:
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
