"""A success answer carries every message that the reference sends: clients read their members unchecked."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from fake_compaction import COMPACTION_ID
from fake_verbs import FakeVerbs
from test_wire_service import BUILT
from wire_messages import (
    Call,
    field_message,
    float_vectors,
    key_message,
    pairs,
    scalar_data,
    schema_bytes,
    search_request,
    vector_message,
)

from elanus.core.schema import DataType
from elanus.proxy.wire.status import always_sent_fields, status_field
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2, schema_pb2

BOOKS = {"collection_name": "books"}
BOOKS_OF_OLD = {"collectionName": "books"}
PART = {**BOOKS, "partition_name": "part"}
SNAPSHOT = {**BOOKS, "name": "daily"}
PARTS = {**BOOKS, "partition_names": ["part"]}
ROWS = {
    **BOOKS,
    "num_rows": 1,
    "fields_data": [scalar_data("id", DataType.INT64, [1]), float_vectors("vector", [[0] * 4])],
}
PASSWORD = base64.b64encode(b"secret1").decode()
GRANT = {"role": {"name": "writer"}, "grantor": {"privilege": {"name": "Insert"}}}
GROUPS = {"source_resource_group": "a", "target_resource_group": "b"}

TEXT = field_message("text", DataType.VARCHAR, {"max_length": 9}, default_value={"string_data": "none"})
EMBED = schema_pb2.FunctionSchema(
    name="embed",
    type=schema_pb2.FunctionType.TextEmbedding,
    input_field_names=["text"],
    output_field_names=["vector"],
    params=pairs({"provider": "tei"}),
)
STRUCT = schema_pb2.StructArrayFieldSchema(
    name="parts",
    nullable=True,
    fields=[field_message("page", DataType.ARRAY, {"max_capacity": 9}, element_type=DataType.INT64)],
)
PROGRAM: dict[str, dict[str, Any]] = {
    "Connect": {},
    "GetVersion": {},
    "AllocTimestamp": {},
    "CheckHealth": {},
    "GetComponentStates": {},
    "GetMetrics": {"request": '{"metric_type":"system_info"}'},
    "RunAnalyzer": {"placeholder": [b"a text"]},
    "ComputePhraseMatchSlop": {"query_text": "a", "data_texts": ["a text"]},
    "CreateCredential": {"username": "ada", "password": PASSWORD},
    "UpdateCredential": {"username": "ada", "oldPassword": PASSWORD, "newPassword": PASSWORD},
    "ListCredUsers": {},
    "AlterRole": {"role_name": "public", "description": "everybody"},
    "CreateRole": {"entity": {"name": "writer"}},
    "OperateUserRole": {"username": "ada", "role_name": "writer"},
    "SelectRole": {},
    "SelectUser": {},
    "CreatePrivilegeGroup": {"group_name": "filling"},
    "OperatePrivilegeGroup": {"group_name": "filling", "privileges": [{"name": "Insert"}]},
    "ListPrivilegeGroups": {},
    "OperatePrivilege": {"entity": {**GRANT, "object": {"name": "Collection"}, "object_name": "books"}},
    "OperatePrivilegeV2": {**GRANT, "collection_name": "books"},
    "SelectGrant": {"entity": {"role": {"name": "writer"}}},
    "BackupRBAC": {},
    "RestoreRBAC": {"RBAC_meta": {"roles": [{"name": "reader"}]}},
    "DropRole": {"role_name": "writer", "force_drop": True},
    "DropPrivilegeGroup": {"group_name": "filling"},
    "DeleteCredential": {"username": "ada"},
    "CreateDatabase": {"db_name": "shop"},
    "ListDatabases": {},
    "DescribeDatabase": {"db_name": "shop"},
    "AlterDatabase": {"db_name": "shop"},
    "DropDatabase": {"db_name": "shop"},
    "CreateResourceGroup": {"resource_group": "rg"},
    "ListResourceGroups": {},
    "DescribeResourceGroup": {"resource_group": "rg"},
    "TransferNode": {**GROUPS, "num_node": 1},
    "CreateCollection": {**BOOKS, "schema": schema_bytes(key_message(), TEXT, vector_message())},
    "TransferReplica": {**GROUPS, **BOOKS, "num_replica": 1},
    "UpdateResourceGroups": {
        "resource_groups": {"rg": {"requests": {"node_num": 0}, "limits": {"node_num": 0}}}
    },
    "DropResourceGroup": {"resource_group": "rg"},
    "HasCollection": BOOKS,
    "DescribeCollection": BOOKS,
    "ShowCollections": {},
    "AlterCollection": BOOKS,
    "AddCollectionStructField": {**BOOKS, "struct_array_field_schema": STRUCT},
    "AddCollectionField": {**BOOKS, "schema": field_message("x", 5, nullable=True).SerializeToString()},
    "AlterCollectionSchema": {
        **BOOKS,
        "action": milvus_pb2.AlterCollectionSchemaRequest.Action(
            add_request=milvus_pb2.AlterCollectionSchemaRequest.AddRequest(
                field_infos=[
                    milvus_pb2.AlterCollectionSchemaRequest.FieldInfo(
                        field_schema=field_message("y", 5, nullable=True)
                    )
                ]
            )
        ),
    },
    "AddCollectionFunction": {**BOOKS, "functionSchema": EMBED},
    "AlterCollectionFunction": {**BOOKS, "function_name": "embed", "functionSchema": EMBED},
    "DropCollectionFunction": {**BOOKS, "function_name": "embed"},
    "AlterCollectionField": {**BOOKS, "field_name": "vector", "properties": pairs({"mmap.enabled": "true"})},
    "BatchDescribeCollection": {"collection_name": ["books"]},
    "TruncateCollection": BOOKS,
    "CreateAlias": {**BOOKS, "alias": "shelf"},
    "AlterAlias": {**BOOKS, "alias": "shelf"},
    "DescribeAlias": {"alias": "shelf"},
    "ListAliases": BOOKS,
    "DropAlias": {"alias": "shelf"},
    "CreatePartition": PART,
    "HasPartition": PART,
    "ShowPartitions": BOOKS,
    "GetPartitionStatistics": PART,
    "Insert": ROWS,
    "Upsert": ROWS,
    "GetCollectionStatistics": BOOKS,
    "Flush": {"collection_names": ["books"]},
    "GetFlushState": {**BOOKS, "segmentIDs": [7], "flush_ts": 1},
    "FlushAll": {},
    "GetFlushAllState": {"flush_all_ts": 1},
    "CreateIndex": {
        **BOOKS,
        "field_name": "vector",
        "extra_params": pairs({"index_type": "FLAT", "metric_type": "L2"}),
    },
    "AlterIndex": {**BOOKS, "index_name": "vector", "extra_params": pairs({"mmap.enabled": "true"})},
    "DescribeIndex": BOOKS,
    "GetIndexStatistics": BOOKS,
    "GetIndexState": BOOKS,
    "GetIndexBuildProgress": BOOKS,
    "LoadPartitions": PARTS,
    "LoadCollection": BOOKS,
    "GetLoadingProgress": BOOKS,
    "GetLoadState": BOOKS,
    "GetReplicas": BOOKS,
    "LoadBalance": {**BOOKS_OF_OLD, "src_nodeID": 3},
    "GetQuerySegmentInfo": BOOKS_OF_OLD,
    "GetPersistentSegmentInfo": BOOKS_OF_OLD,
    "CreateSnapshot": SNAPSHOT,
    "DescribeSnapshot": SNAPSHOT,
    "ListSnapshots": BOOKS,
    "RestoreSnapshot": {**SNAPSHOT, "target_collection_name": "copy"},
    "GetRestoreSnapshotState": {"job_id": 1},
    "ListRestoreSnapshotJobs": {},
    "PinSnapshotData": SNAPSHOT,
    "UnpinSnapshotData": {"pin_id": 1},
    "DropSnapshot": SNAPSHOT,
    "Search": {},
    "HybridSearch": {**BOOKS, "rank_params": pairs({"limit": 3}), "requests": [search_request()]},
    "Query": {**BOOKS, "expr": "id in [1]"},
    "Delete": {**BOOKS, "expr": "id in [1]"},
    "ManualCompaction": BOOKS,
    "GetCompactionState": {"compactionID": COMPACTION_ID},
    "GetCompactionStateWithPlans": {"compactionID": COMPACTION_ID},
    "Import": {**BOOKS, "files": ["a.parquet"]},
    "GetImportState": {},
    "ListImportTasks": BOOKS,
    "ReleasePartitions": PARTS,
    "ReleaseCollection": BOOKS,
    "DropIndex": {**BOOKS, "index_name": "vector"},
    "DropPartition": PART,
    "RenameCollection": {"oldName": "books", "newName": "tomes"},
    "DropCollection": {"collection_name": "tomes"},
}
"""Every RPC that is built, in an order in which each succeeds."""

OTHER_MESSAGES = {
    "Connect": ["server_info"],
    "GetComponentStates": ["state"],
    "DescribeResourceGroup": ["resource_group"],
    "DescribeCollection": ["schema"],
    "Insert": ["IDs"],
    "Upsert": ["IDs"],
    "Delete": ["IDs"],
    "Search": ["results"],
    "HybridSearch": ["results"],
}
"""The members that every answer carries, the status aside."""


def test_every_rpc_that_is_built_succeeds_with_its_status_and_messages(call: Call, verbs: FakeVerbs) -> None:
    assert set(PROGRAM) == BUILT
    for name, fields in PROGRAM.items():
        if name == "Search":
            response = call(name, search_request())
        elif name == "GetImportState":
            response = call(name, task=next(iter(verbs.imports)))
        else:
            response = call(name, **fields)
        kept_in = status_field(SERVICE.methods_by_name[name].output_type)
        status = getattr(response, kept_in) if kept_in else response
        assert (name, status.code, status.error_code, status.reason) == (name, 0, 0, "")
        for field in [*([kept_in] if kept_in else []), *OTHER_MESSAGES.get(name, [])]:
            assert response.HasField(field), f"the answer of {name} lacks {field}"


@pytest.mark.parametrize("method", list(SERVICE.methods), ids=lambda method: method.name)
def test_a_status_is_always_sent_where_it_is_a_field_of_its_own(method: Any) -> None:
    kept_in = status_field(method.output_type)
    if kept_in and method.output_type.fields_by_name[kept_in].containing_oneof is None:
        assert kept_in in always_sent_fields(method.output_type)


def test_a_failure_carries_its_status_only(call: Call) -> None:
    response = call("DescribeCollection", collection_name="nope")
    assert [field.name for field, _ in response.ListFields()] == ["status"]


def test_a_message_of_a_oneof_or_of_rare_deployments_is_left_out() -> None:
    assert always_sent_fields(milvus_pb2.MutationResult.DESCRIPTOR) == ("status", "IDs")
    assert always_sent_fields(milvus_pb2.CalcDistanceResults.DESCRIPTOR) == ("status",)
    assert always_sent_fields(milvus_pb2.FlushAllResponse.DESCRIPTOR) == ("status",)
