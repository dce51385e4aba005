"""The table of endpoints: the documented ones; the same in the OpenAPI document and in docs/rest.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from access_ways import STRUCT_FIELD
from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front
from wire_calls import EVERY, Recorder

from elanus.api.connector import ConnectorApi
from elanus.api.keys import KeysApi
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.rest import operations
from elanus.proxy.rest.endpoint import Endpoint
from elanus.proxy.rest.openapi import document
from elanus.proxy.rest.operations import rest_operations
from elanus.proxy.rest.table import PREFIX, TABLE
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.stubs import SERVICE

PAGE = Path(__file__).parents[3] / "docs" / "rest.md"
DOCUMENTED = {
    "collections": "list has describe get_stats get_load_state create drop truncate rename load refresh_load "
    "release alter_properties drop_properties compact get_compaction_state flush add_function alter_function "
    "drop_function add_function_field drop_function_field",
    "collections/fields": "alter_properties add drop",
    "collections/struct_fields": "add",
    "databases": "create drop list describe alter alter_properties drop_properties",
    "entities": "query get delete insert upsert search advanced_search hybrid_search",
    "partitions": "list has get_stats create drop load release",
    "users": "list describe create update_password drop grant_role revoke_role",
    "roles": "list describe create alter drop grant_privilege revoke_privilege grant_privilege_v2 "
    "revoke_privilege_v2",
    "privilege_groups": "create drop list add_privileges_to_group remove_privileges_from_group",
    "indexes": "list describe create drop alter_properties drop_properties",
    "aliases": "list describe create drop alter",
    "jobs/import": "list create get_progress describe commit abort",
    "jobs/snapshot": "restore_external export describe list",
    "jobs/external_collection": "refresh describe list",
    "snapshots": "create drop list describe restore get_restore_state list_restore_jobs pin_data unpin_data",
    "resource_groups": "create drop alter describe list transfer_replica",
    "file_resources": "add remove list",
    "segments": "describe",
    "quotacenter": "describe",
    "common": "run_analyzer",
}
BY_RPC = operations.RPC_OF
MORE: dict[str, dict[str, object]] = {
    "collections/create": {"dimension": 4},
    "collections/estimate": {"collectionName": "x"},
    "collections/flush": {"collectionName": "x"},
    "collections/struct_fields/add": {"schema": STRUCT_FIELD},
    "jobs/import/create": {"files": [["a.parquet"]]},
    "common/run_analyzer": {"fieldName": "x"},
}
VALUES: dict[type, object] = {str: "x", int: 1, bool: True}


NOTHING: Any = None
CALLS = (
    *milvus_operations(milvus_families(FakeVerbs(), "")),
    *interface_operations(ConnectorApi, Connector(NOTHING, NOTHING, "")),
    *interface_operations(KeysApi, Keys(NOTHING)),
)
OWN = {
    *("collections/clone", "collections/undrop", "collections/estimate"),
    *("api_keys/create", "api_keys/list", "api_keys/drop"),
}
"""The endpoints that the reference does not have."""


def least_body(endpoint: Endpoint) -> dict[str, object]:
    """The required fields."""
    named = {
        "data": [{"id": 1}],
        "search": [{"data": [[1.0]]}],
        "id": 1,
        "schema": {"fieldName": "f", "dataType": "Int64"},
        "function": {"name": "f", "type": "BM25"},
        "indexParams": [{"fieldName": "v"}],
        "partitionNames": ["p"],
        "resource_groups": {},
        "field": {"fieldName": "f", "dataType": "SparseFloatVector"},
        "jobId": 1,
        "pinId": 1,
        "text": "x",
    }
    return {
        field.encode_name: named.get(field.encode_name, VALUES.get(field.type))
        for field in msgspec.structs.fields(endpoint.body)
        if field.required
    }


def test_the_endpoints_are_those_that_are_documented() -> None:
    documented = {
        f"{family}/{action}" for family, actions in DOCUMENTED.items() for action in actions.split()
    }
    assert set(TABLE) == documented | OWN


def test_the_openapi_document_and_the_page_have_each_of_them() -> None:
    found = document()
    assert set(found["paths"]) == {PREFIX + path for path in TABLE}
    page = PAGE.read_text()
    assert f"There are {len(TABLE)}," in page
    assert [path for path in TABLE if f"| `{path}` |" not in page] == []
    refs = [
        operation["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for operation in found["paths"].values()
    ]
    assert set(refs) <= set(found["components"]["schemas"])


@pytest.mark.parametrize("path", TABLE)
def test_each_answers_with_a_code_and_reaches_its_verbs_through_the_guard(path: str) -> None:
    endpoint = TABLE[path]
    guard = Recorder(EVERY)
    client = RestClient(rest_front(FakeVerbs(), guard))
    answer = client.post(path, **{**least_body(endpoint), **MORE.get(path, {})})
    assert answer["code"] not in (0, 5), answer
    assert answer["message"]
    assert client.status == 200
    asked = {privilege for _, privilege, *_ in guard.asked}
    rpcs = {operation.name: operation for operation in CALLS}
    needed = {rpcs[BY_RPC.get(name, name)].permission.privilege for name in endpoint.operations}
    assert asked <= needed | {NO_PRIVILEGE}
    assert asked or not endpoint.operations


def test_operations_on_rows_need_what_their_rpcs_need() -> None:
    rpcs = {operation.name: operation for operation in CALLS}
    own = {operation.name: operation for operation in rest_operations(FakeVerbs())}
    assert own.keys() == BY_RPC.keys()
    for name, operation in own.items():
        assert operation.permission == rpcs[BY_RPC[name]].permission


def test_each_names_operations_that_there_are() -> None:
    for endpoint in TABLE.values():
        for name in endpoint.operations:
            assert name in BY_RPC or name in SERVICE.methods_by_name
        assert endpoint.summary
