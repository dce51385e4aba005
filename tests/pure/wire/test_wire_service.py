"""The service: every RPC answers, nothing asked for is dropped, no error escapes."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from fake_verbs import FakeVerbs
from google.protobuf.message import Message
from wire_messages import Call

from elanus.core.errors import NotSupported
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import SeesAll
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.wire.databases import Databases
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.requests import rpc
from elanus.proxy.wire.status import status_field
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2
from elanus.proxy.wire.unsupported import INSTEAD
from elanus.rpc.tracing import trace_id

BUILT = {
    "AddCollectionFunction",
    "AlterCollectionFunction",
    "DropCollectionFunction",
    "CreateSnapshot",
    "DescribeSnapshot",
    "DropSnapshot",
    "GetRestoreSnapshotState",
    "ListRestoreSnapshotJobs",
    "ListSnapshots",
    "PinSnapshotData",
    "RestoreSnapshot",
    "UnpinSnapshotData",
    "AllocTimestamp",
    "AddCollectionField",
    "AddCollectionStructField",
    "AlterAlias",
    "AlterCollection",
    "AlterCollectionField",
    "AlterCollectionSchema",
    "BatchDescribeCollection",
    "TruncateCollection",
    "AlterDatabase",
    "AlterIndex",
    "BackupRBAC",
    "CheckHealth",
    "ComputePhraseMatchSlop",
    "Connect",
    "CreateAlias",
    "CreateCollection",
    "CreateCredential",
    "CreateDatabase",
    "CreateIndex",
    "CreatePartition",
    "CreatePrivilegeGroup",
    "CreateResourceGroup",
    "AlterRole",
    "CreateRole",
    "Delete",
    "DeleteCredential",
    "DescribeAlias",
    "DescribeCollection",
    "DescribeDatabase",
    "DescribeIndex",
    "DescribeResourceGroup",
    "DropAlias",
    "DropCollection",
    "DropDatabase",
    "DropIndex",
    "DropPartition",
    "DropPrivilegeGroup",
    "DropResourceGroup",
    "DropRole",
    "Flush",
    "FlushAll",
    "GetCollectionStatistics",
    "GetCompactionState",
    "GetCompactionStateWithPlans",
    "GetComponentStates",
    "GetFlushAllState",
    "GetFlushState",
    "GetImportState",
    "GetIndexBuildProgress",
    "GetIndexState",
    "GetIndexStatistics",
    "GetLoadState",
    "GetLoadingProgress",
    "GetMetrics",
    "GetPartitionStatistics",
    "GetPersistentSegmentInfo",
    "GetQuerySegmentInfo",
    "GetReplicas",
    "GetVersion",
    "HasCollection",
    "HasPartition",
    "HybridSearch",
    "Import",
    "Insert",
    "ListAliases",
    "ListCredUsers",
    "ListDatabases",
    "ListImportTasks",
    "ListPrivilegeGroups",
    "ListResourceGroups",
    "LoadBalance",
    "LoadCollection",
    "RunAnalyzer",
    "LoadPartitions",
    "ManualCompaction",
    "OperatePrivilege",
    "OperatePrivilegeGroup",
    "OperatePrivilegeV2",
    "OperateUserRole",
    "Query",
    "ReleaseCollection",
    "ReleasePartitions",
    "RenameCollection",
    "RestoreRBAC",
    "Search",
    "SelectGrant",
    "SelectRole",
    "SelectUser",
    "ShowCollections",
    "ShowPartitions",
    "TransferNode",
    "TransferReplica",
    "UpdateCredential",
    "UpdateResourceGroups",
    "Upsert",
}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NOT_BUILT = [method for method in SERVICE.methods if method.name not in BUILT]
UNARY = [method for method in NOT_BUILT if not method.client_streaming]


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.name)
def test_an_rpc_that_is_not_built_says_so(call: Call, method: Any) -> None:
    kept_in = status_field(method.output_type)
    if kept_in is None:
        with pytest.raises(grpc.RpcError) as refusal:
            call(method.name)
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"{method.name} is not supported by this release" in str(refusal.value.details())
        return
    response = call(method.name)
    if method.server_streaming:
        (response,) = response
    status = getattr(response, kept_in) if kept_in else response
    assert (status.code, status.error_code) == (NotSupported.code, NotSupported.legacy_code)
    assert status.reason.startswith(f"{method.name} is not supported by this release")


def test_a_stream_that_is_not_built_says_so(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = channel.stream_stream(f"/{SERVICE.full_name}/CreateReplicateStream")
        with pytest.raises(grpc.RpcError) as refusal:
            list(stream(iter([b""]), timeout=10))
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", sorted(BUILT))
def test_an_rpc_that_is_built_answers_an_empty_request(call: Call, name: str) -> None:
    response = call(name)
    kept_in = status_field(SERVICE.methods_by_name[name].output_type)
    status = getattr(response, kept_in) if kept_in else response
    assert "not supported by this release" not in status.reason or name == "GetMetrics"
    assert "inside the server" not in status.reason


def test_the_texts_are_of_rpcs_that_exist_and_are_not_built() -> None:
    assert set(INSTEAD) <= {method.name for method in NOT_BUILT}


def test_a_request_field_that_is_not_understood_is_refused(call: Call, verbs: FakeVerbs) -> None:
    status = call("Insert", collection_name="books", namespace="a").status
    assert "the field namespace of Insert is not supported" in status.reason
    assert verbs.writes == []


def test_a_defect_becomes_a_status_and_a_log_entry(
    call: Call, verbs: FakeVerbs, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("inner detail")

    monkeypatch.setattr(verbs, "list_databases", broken)
    status = call("ListDatabases").status
    assert (status.code, status.error_code) == (5, 1)
    assert "inner detail" not in status.reason
    assert [entry["rpc"] for entry in logged if entry["log_level"] == "error"] == ["ListDatabases"]


@pytest.mark.parametrize("sends", [True, False], ids=["traced", "untraced"])
def test_a_request_has_a_trace_that_a_defect_names(
    port: int, verbs: FakeVerbs, monkeypatch: pytest.MonkeyPatch, logged: list[Any], sends: bool
) -> None:
    seen: list[str] = []

    def broken() -> None:
        seen.append(trace_id())
        raise ZeroDivisionError

    monkeypatch.setattr(verbs, "list_databases", broken)
    metadata = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")] if sends else []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        send = channel.unary_unary(
            f"/{SERVICE.full_name}/ListDatabases",
            response_deserializer=milvus_pb2.ListDatabasesResponse.FromString,
        )
        reasons = [send(b"", metadata=metadata, timeout=10).status.reason for _ in range(2)]
    assert [reason.partition("[trace_id=")[2] for reason in reasons] == [f"{trace}]" for trace in seen]
    assert [line["trace_id"] for line in logged if line["log_level"] == "error"] == seen
    assert seen == [TRACE, TRACE] if sends else len(set(seen)) == 2


def test_the_observer_notes_each_answer(call: Call, answers: list[tuple[str, int]]) -> None:
    call("GetVersion")
    call("DescribeCollection", collection_name="missing")
    call("CalcDistance")
    assert answers == [("GetVersion", 0), ("DescribeCollection", 100), ("CalcDistance", 1100)]


def test_two_families_with_one_rpc_are_refused() -> None:
    verbs = FakeVerbs()
    with pytest.raises(ValueError, match="two families implement the RPC"):
        list(milvus_operations((Databases(verbs, SeesAll()), Databases(verbs, SeesAll()))))


def test_an_rpc_that_the_service_lacks_is_refused() -> None:
    class Strangers:
        @rpc(privilege=NO_PRIVILEGE)
        def NoSuchRpc(self, request: Message, caller: Caller) -> Message:
            raise AssertionError

    with pytest.raises(ValueError, match="no RPC NoSuchRpc"):
        list(milvus_operations((Strangers(),)))
