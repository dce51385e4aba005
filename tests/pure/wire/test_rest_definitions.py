"""The endpoints of definitions: the reference's bodies in, the reference's answers out."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest
from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front

from elanus.core.access import User, first_policy, with_user
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import PermissionDenied
from elanus.core.ids import TaskID
from elanus.core.imports import ImportState
from elanus.core.timestamps import compose
from elanus.core.types import DataType
from elanus.index.estimate import INDEX_ROWS_MIN, SEGMENT_BYTES, Plan, estimate, planned_index
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.sign_in import SignIn

BOOKS: dict[str, Any] = {
    "autoId": False,
    "enabledDynamicField": False,
    "fields": [
        {
            "fieldName": "isbn",
            "dataType": "VarChar",
            "isPrimary": True,
            "elementTypeParams": {"max_length": 20},
        },
        {"fieldName": "year", "dataType": "Int64", "nullable": True, "description": "of print"},
        {"fieldName": "price", "dataType": "Double", "defaultValue": 9.5},
        {
            "fieldName": "tags",
            "dataType": "Array",
            "elementDataType": "VarChar",
            "elementTypeParams": {"max_capacity": "8", "max_length": "30"},
        },
        {"fieldName": "intro", "dataType": "FloatVector", "elementTypeParams": {"dim": "4"}},
    ],
}


FIELDS: list[dict[str, Any]] = [
    {"fieldName": "id", "dataType": "Int64", "isPrimary": True},
    {"fieldName": "v", "dataType": "FloatVector", "elementTypeParams": {"dim": 4}},
]


@pytest.fixture
def client(verbs: FakeVerbs) -> RestClient:
    return RestClient(rest_front(verbs))


def test_a_quick_setup_has_a_key_a_vector_and_an_index_and_is_loaded(
    client: RestClient, verbs: FakeVerbs
) -> None:
    assert client.post("collections/create", collectionName="quick", dimension=8) == {"code": 0, "data": {}}
    (created,) = verbs.created
    assert [(field.name, field.data_type) for field in created.schema.fields if not field.is_dynamic] == [
        ("id", DataType.INT64),
        ("vector", DataType.FLOAT_VECTOR),
    ]
    assert created.schema.enable_dynamic
    assert created.consistency_level is ConsistencyLevel.BOUNDED
    described = client.data("collections/describe", collectionName="quick")
    assert described["indexes"] == [{"fieldName": "vector", "indexName": "vector", "metricType": "COSINE"}]
    assert described["load"] == "LoadStateLoaded"


def test_a_quick_setup_as_its_parameters_say(client: RestClient, verbs: FakeVerbs) -> None:
    client.data(
        "collections/create",
        collectionName="quick",
        dimension=8,
        idType="VarChar",
        autoID=True,
        metricType="L2",
        primaryFieldName="key",
        vectorFieldName="where",
        params={
            "max_length": 50,
            "enableDynamicField": "false",
            "consistencyLevel": "Strong",
            "shardsNum": 2,
            "ttlSeconds": 60,
        },
    )
    (created,) = verbs.created
    key, vector = created.schema.fields
    assert (key.name, key.data_type, key.max_length, key.auto_id) == ("key", DataType.VARCHAR, 50, True)
    assert (vector.name, vector.dim) == ("where", 8)
    assert (created.shards, created.consistency_level) == (2, ConsistencyLevel.STRONG)
    assert created.properties == {"collection.ttl.seconds": "60"}


def test_a_schema_that_is_spelled_out(client: RestClient, verbs: FakeVerbs) -> None:
    index = {"fieldName": "intro", "indexName": "by intro", "metricType": "L2", "indexType": "HNSW"}
    client.data(
        "collections/create",
        collectionName="books",
        schema=BOOKS,
        indexParams=[{**index, "indexName": "by_intro", "params": {"M": 8, "efConstruction": 64}}],
    )
    schema = verbs.created[0].schema
    assert not schema.enable_dynamic
    assert schema.by_name["year"].nullable
    assert schema.by_name["price"].default_value == 9.5
    assert schema.by_name["tags"].max_capacity == 8
    described = client.data("indexes/describe", collectionName="books", indexName="by_intro")
    assert described[0]["indexType"] == "HNSW"
    assert {"key": "params", "value": '{"M": 8, "efConstruction": 64}'} in described[0]["params"]
    found = client.data("collections/describe", collectionName="books")
    assert [field["type"] for field in found["fields"]] == [
        "VarChar",
        "Int64",
        "Double",
        "Array",
        "FloatVector",
    ]
    assert found["fields"][3]["elementType"] == "VarChar"
    assert found["fields"][2]["defaultValue"] == 9.5


def test_without_indexes_a_collection_is_not_loaded(client: RestClient) -> None:
    client.data("collections/create", collectionName="books", schema=BOOKS)
    assert (
        client.data("collections/get_load_state", collectionName="books")["loadState"] == "LoadStateNotLoad"
    )
    assert client.data("indexes/list", collectionName="books") == []


def test_the_load_state_of_a_missing_collection_is_an_error(client: RestClient) -> None:
    answer = client.post("collections/get_load_state", collectionName="nowhere")
    assert answer == {"code": 100, "message": "can't find collection[database=default][collection=nowhere]"}


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"collectionName": "c"}, 1802, "'Dimension' failed on the 'required' tag"),
        ({"dimension": 4}, 1802, "'CollectionName' failed on the 'required' tag"),
        ({"collectionName": "", "dimension": 4}, 1802, "'CollectionName'"),
        ({"collectionName": 7, "dimension": 4}, 1801, "can only accept json format request"),
        ({"collectionName": "c", "dimension": "many"}, 1801, "can only accept json format request"),
        ({"collectionName": "c", "dimension": 4, "dimensions": 5}, 1801, "`dimensions`"),
        ({"collectionName": "c", "dimension": 4, "idType": "Float"}, 1100, "idType"),
        ({"collectionName": "c", "dimension": 4, "idType": "VarChar"}, 1802, "max_length"),
        ({"collectionName": "c", "dimension": 4, "params": {"shardNum": 1}}, 1100, "shardNum"),
        ({"collectionName": "c", "dimension": 4, "consistencyLevel": "Weak"}, 1100, "Weak"),
        ({"collectionName": "c", "schema": {"fields": [{"fieldName": "f", "dataType": "int"}]}}, 1100, "int"),
        ({"collectionName": "c", "schema": {"fields": [{"fieldName": "f"}]}}, 1802, "DataType"),
        ({"collectionName": "1c", "dimension": 4}, 1100, "1c"),
    ],
)
def test_a_bad_definition_is_refused_with_the_field(
    client: RestClient, body: dict[str, Any], code: int, text: str
) -> None:
    answer = client.post("collections/create", **body)
    assert (answer["code"], client.status) == (code, 200)
    assert text in answer["message"]


@pytest.mark.parametrize("name", ["Date", "Decimal", "Struct", "int"])
def test_a_type_that_no_field_has_is_answered_with_those_that_there_are(
    client: RestClient, name: str
) -> None:
    schema = {"fields": [{"fieldName": "f", "dataType": name}]}
    answer = client.post("collections/create", collectionName="c", schema=schema)
    assert answer["code"] == 1100
    assert f"data type {name} of field f is invalid" in answer["message"]
    offered = set(re.findall(r"\w+", answer["message"].partition("send one of ")[2]))
    assert {"Int64", "VarChar", "Timestamptz", "ArrayOfVector"} <= offered
    assert not {"None", "String", "Date", "Decimal", "Mol", "Struct"} & offered


def test_nulls_are_as_if_left_out_and_numbers_may_be_quoted(client: RestClient) -> None:
    client.data("collections/create", collectionName="c", dimension="4", schema=None, indexParams=None)
    assert client.data("collections/list", dbName=None) == ["c"]


def test_the_database_is_the_bodys_or_the_headers(client: RestClient) -> None:
    client.data("databases/create", dbName="one")
    client.data("collections/create", dbName="one", collectionName="c", dimension=4)
    assert client.data("collections/list") == []
    assert client.data("collections/list", {"db-name": "one"}) == ["c"]
    assert client.data("collections/list", {"db-name": "default"}, dbName="one") == ["c"]
    assert client.post("collections/list", dbName="two")["code"] == 800


def test_partitions_aliases_and_properties(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    client.data("partitions/create", collectionName="c", partitionName="p")
    assert client.data("partitions/list", collectionName="c") == ["_default", "p"]
    assert client.data("partitions/has", collectionName="c", partitionName="q") == {"has": False}
    assert client.data("partitions/get_stats", collectionName="c", partitionName="p") == {"rowCount": 0}
    client.data("aliases/create", collectionName="c", aliasName="a")
    assert client.data("aliases/describe", aliasName="a") == {
        "aliasName": "a",
        "collectionName": "c",
        "dbName": "default",
    }
    client.data("collections/alter_properties", collectionName="c", properties={"collection.ttl.seconds": 9})
    properties = client.data("collections/describe", collectionName="c")["properties"]
    assert properties == [{"key": "collection.ttl.seconds", "value": "9"}]
    client.data("collections/drop_properties", collectionName="c", propertyKeys=["collection.ttl.seconds"])
    assert client.data("collections/describe", collectionName="c")["properties"] == []
    client.data("collections/flush", collectionNames=["c"])
    client.data("collections/rename", collectionName="c", newCollectionName="d")
    assert client.data("collections/has", collectionName="c") == {"has": False}


def test_the_spellings_of_the_guide(client: RestClient) -> None:
    client.data("collections/create", collectionName="c", dimension=4, metric_type="L2")
    assert client.data("collections/describe", collectionName="c")["indexes"][0]["metricType"] == "L2"
    fields = [{**FIELDS[0], "auto_id": True}, FIELDS[1]]
    client.data("collections/create", collectionName="d", schema={"fields": fields})
    assert client.data("collections/describe", collectionName="d")["fields"][0]["autoId"]


def test_a_quick_setup_without_dynamic_fields_in_either_place(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="c", dimension=4, enableDynamicField=True)
    client.data("collections/create", collectionName="d", dimension=4, enableDynamicField=False)
    both = {"params": {"enableDynamicField": "false"}, "enableDynamicField": True}
    client.data("collections/create", collectionName="e", dimension=4, **both)
    assert [created.schema.enable_dynamic for created in verbs.created] == [True, False, False]


def test_an_index_type_as_programs_spell_it(client: RestClient) -> None:
    client.data("collections/create", collectionName="c", schema={"fields": FIELDS})
    index = {"fieldName": "v", "indexName": "i", "metricType": "COSINE", "index_type": "IVF_FLAT"}
    client.data("indexes/create", collectionName="c", indexParams=[{**index, "params": {"nlist": 8}}])
    (described,) = client.data("indexes/describe", collectionName="c", indexName="i")
    assert (described["indexType"], described["metricType"]) == ("IVF_FLAT", "COSINE")


def test_imports_as_the_bulk_writer_asks_for_them(client: RestClient) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    empty = {"clusterId": "", "projectId": "", "regionId": "", "dbName": ""}
    sent = {"collectionName": "c", "files": [["a.parquet"], ["b.parquet"]], "objectUrls": None, **empty}
    job = client.data("jobs/import/create", **sent)["jobId"]
    assert isinstance(job, str)
    described = client.data("jobs/import/describe", jobId=job, **empty)
    assert (described["state"], described["progress"], described["jobId"]) == ("Pending", 0, job)
    assert [file["fileName"] for file in described["details"]] == ["a.parquet", "b.parquet"]
    page = client.data("jobs/import/list", collectionName="c", pageSize=10, currentPage=1, **empty)
    assert [record["jobId"] for record in page["records"]] == [job]
    assert client.data("jobs/import/list", pageSize=10, currentPage=2, **empty)["records"] == []
    assert client.post("jobs/import/describe", jobId="none")["code"] == 1801
    assert client.post("jobs/import/create", **sent, volumeName="v")["code"] == 1100
    assert client.post("jobs/import/create", collectionName="c", files=[["a", "b"]])["code"] == 1801


def test_an_import_in_two_steps(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    sent = {"collectionName": "c", "files": [["a.parquet"]], "options": {"auto_commit": "false"}}
    job = client.data("jobs/import/create", **sent)["jobId"]
    task = verbs.imports[TaskID(int(job))]
    verbs.imports[task.task_id] = replace(task, state=ImportState.UNCOMMITTED, rows=7)
    shown = client.data("jobs/import/get_progress", jobId=job)
    assert (shown["state"], shown["progress"], shown["importedRows"]) == ("Uncommitted", 90, 7)
    assert client.data("jobs/import/commit", jobId=job, dbName="") == {}
    assert client.data("jobs/import/abort", jobId=int(job)) == {}
    assert verbs.ended == [("commit", task.task_id), ("abort", task.task_id)]
    assert client.post("jobs/import/commit", jobId="none")["code"] == 1801
    assert client.post("jobs/import/commit", jobId="77")["code"] == 1100


def test_numpy_files_are_imported_together(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    groups = [["/1/id.npy", "/1/vector.npy"], ["/2/a.json"]]
    job = client.data("jobs/import/create", collectionName="c", files=groups)["jobId"]
    assert verbs.imports[TaskID(int(job))].files == ("1/id.npy", "1/vector.npy", "2/a.json")


def test_the_progress_of_an_import_has_the_members_of_the_reference(
    client: RestClient, verbs: FakeVerbs
) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    job = client.data("jobs/import/create", collectionName="c", files=[["a.parquet"]])["jobId"]
    task = verbs.imports[TaskID(int(job))]
    assert "completeTime" not in client.data("jobs/import/get_progress", jobId=job)
    assert client.data("jobs/import/get_progress", jobId=job)["fileSize"] == 0, "not known yet"
    ended = replace(
        task, state=ImportState.COMPLETED, rows=7, ended_ms=1_700_000_007_900, files_bytes=(2048,)
    )
    verbs.imports[task.task_id] = ended
    shown = client.data("jobs/import/get_progress", jobId=job)
    assert (shown["completeTime"], shown["importedRows"]) == ("2023-11-14T22:13:27Z", 7)
    assert shown["fileSize"] == 2048
    assert shown["details"] == [
        {
            "fileName": "a.parquet",
            "fileSize": 2048,
            "state": "Completed",
            "progress": 100,
            "completeTime": "2023-11-14T22:13:27Z",
            "importedRows": 7,
            "totalRows": 7,
        }
    ]
    two = replace(ended, files=("a.parquet", "b.parquet"), files_bytes=(2048, 5))
    verbs.imports[task.task_id] = two
    shown = client.data("jobs/import/get_progress", jobId=job)
    files = shown["details"]
    assert (shown["fileSize"], [file["fileSize"] for file in files]) == (2053, [2048, 5])
    assert ["importedRows" in file for file in files] == [False, False], "known for all files together only"


def test_a_header_names_an_import(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    sent = {"collectionName": "c", "files": [["a.parquet"]]}
    job = client.data("jobs/import/create", {"idempotency-key": "nightly 7"}, **sent)["jobId"]
    assert verbs.imports[TaskID(int(job))].write_id == "nightly 7"
    twice = {"options": {"idempotency_key": "other"}, **sent}
    assert client.post("jobs/import/create", {"idempotency-key": "nightly 7"}, **twice)["code"] == 1100


def test_a_header_names_no_insert(client: RestClient) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    row = {"collectionName": "c", "data": [{"id": 1, "vector": [1, 2, 3, 4]}]}
    refused = client.post("entities/insert", {"idempotency-key": "order 7"}, **row)
    assert (refused["code"], "idempotent insert" in refused["message"]) == (1100, True)
    assert client.data("entities/upsert", {"idempotency-key": "order 7"}, **row)["upsertCount"] == 1
    for key in ("é", "a\nb", "x" * 257):
        refused = client.post("entities/upsert", {"idempotency-key": key}, **row)
        assert (refused["code"], "Idempotency-Key" in refused["message"]) == (1100, True)


def test_large_ids_are_quoted_unless_the_client_reads_them(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="c", dimension=4)
    verbs.started = 2**62  # type: ignore[attr-defined]
    verbs.compact = lambda *_: type("S", (), {"compaction_id": 2**62 + 1, "plans": 1})()  # type: ignore[method-assign,assignment,misc]
    assert client.data("collections/compact", collectionName="c") == {"compactionID": str(2**62 + 1)}
    allowed = {"accept-type-allow-int64": "true"}
    assert client.data("collections/compact", allowed, collectionName="c") == {"compactionID": 2**62 + 1}


def test_strict_statuses_are_those_of_the_errors(verbs: FakeVerbs) -> None:
    strict = RestClient(rest_front(verbs, strict=True))
    assert strict.post("collections/describe", collectionName="none")["code"] == 100
    assert strict.status == 404
    assert strict.post("collections/describe")["code"] == 1802
    assert strict.status == 400
    lenient = RestClient(rest_front(verbs))
    lenient.post("collections/describe", {"accept": "application/problem+json"}, collectionName="none")
    assert lenient.status == 404


def test_the_token_is_that_of_the_header(verbs: FakeVerbs) -> None:
    """A caller who is not signed in, or lacks the privilege, gets the HTTP status for it in every mode."""
    asked: list[tuple[str, str]] = []

    class OnlyRoot:
        def allow(self, caller: Caller, privilege: str, *_: object) -> None:
            asked.append((caller.user, caller.origin))
            if caller.user != "root":
                raise PermissionDenied(f"{privilege} is for root")

    policy = with_user(first_policy(), User("ada", "secret", 7), 100)
    sign_in = SignIn(lambda: policy, "Milvus", lambda password, stored: password == stored)
    counted: list[tuple[str, int]] = []
    client = RestClient(
        rest_front(verbs, OnlyRoot(), lambda name, code, _: counted.append((name, code)), sign_in)
    )
    secret = base64.b64encode(b"root:Milvus").decode()
    assert client.post("collections/list", {"authorization": "Bearer root:Milvus"})["code"] == 0
    assert client.post("collections/list", {"authorization": f"Basic {secret}"})["code"] == 0
    assert client.post("collections/list", {"authorization": "Bearer ada:secret"})["code"] == 65535
    assert client.status == 403
    assert asked == [("root", "here"), ("root", "here"), ("ada", "here")]
    for header in ({}, {"authorization": "Bearer root:other"}, {"authorization": "Bearer elk_1_abc"}):
        assert client.post("collections/list", header)["code"] == 1800
        assert client.status == 401
    assert len(asked) == 3
    assert counted[-1] == ("collections/list", 1800)


def test_resource_groups_are_declared(client: RestClient) -> None:
    config = {"requests": {"nodeNum": 1}, "limits": {"node_num": 2}}
    client.data("resource_groups/create", name="rg", config=config)
    described = client.data("resource_groups/describe", name="rg")["config"]
    assert (described["requests"], described["limits"]) == ({"nodeNum": 1}, {"nodeNum": 2})
    client.data("resource_groups/alter", resource_groups={"rg": {**config, "requests": {"node_num": 2}}})
    assert client.data("resource_groups/describe", name="rg")["config"]["requests"] == {"nodeNum": 2}
    refused = client.post("resource_groups/create", name="other", config={"wishes": 1})
    assert (refused["code"], "wishes" in refused["message"]) == (1100, True)


def test_a_collection_is_cloned_as_of_a_moment_and_a_dropped_one_comes_back(
    client: RestClient, verbs: FakeVerbs
) -> None:
    client.data("collections/create", collectionName="books", dimension=2)
    names = {"collectionName": "books", "targetCollectionName": "copy"}
    cloned = client.data("collections/clone", **names, asOf="2026-01-31T12:00:00+01:00")
    assert cloned == {"jobId": "1", "dbName": "default", "collectionName": "copy"}
    assert verbs.jobs[1].moment == compose(1_769_857_200_000)
    refused = client.post("collections/clone", **names, asOf="yesterday")
    assert (refused["code"], "yesterday is no moment" in refused["message"]) == (1100, True)
    assert client.data("collections/undrop", collectionName="lost")["collectionName"] == "lost"
    assert verbs.undropped == [("default", "lost", "")]


def test_an_estimate_is_that_of_the_command(client: RestClient) -> None:
    found = client.data("collections/estimate", rows=10_000_000, dim=768, indexType="HNSW", params={"M": 16})
    spec = planned_index("HNSW", "FLOAT_VECTOR", 768, "", {"M": "16"})
    expected = estimate(spec, Plan(10_000_000, SEGMENT_BYTES, index_rows_min=INDEX_ROWS_MIN))
    assert found["loadBytes"] == expected.load_bytes
    assert (found["segments"], found["indexType"]) == (expected.segments, "HNSW")
    doubled = client.data("collections/estimate", rows=10_000_000, dim=768, replicaNumber=2, segmentMb=100)
    assert doubled["segments"] > found["segments"]
    for sent in ({"rows": 0, "dim": 8}, {"rows": 5}, {"rows": 5, "dim": 8, "type": "Int64"}):
        answer = client.post("collections/estimate", **sent)
        assert answer["code"] == 1100, answer


def test_an_estimate_of_a_collection_takes_its_field(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("collections/create", collectionName="books", schema=BOOKS)
    known = client.data("collections/estimate", collectionName="books", rows=1_000_000, indexType="HNSW")
    assert known == client.data("collections/estimate", rows=1_000_000, dim=4, indexType="HNSW")
    empty = client.post("collections/estimate", collectionName="books")
    assert (empty["code"], "books has no rows, by its statistics" in empty["message"]) == (1100, True)
    other = client.post("collections/estimate", collectionName="books", rows=1, fieldName="year")
    assert "books has 0 vector fields of the name year: name one" in other["message"]
    assert client.post("collections/estimate", collectionName="none", rows=1)["code"] == 100


def test_an_estimate_of_a_collection_needs_the_rights_to_see_it(verbs: FakeVerbs) -> None:
    class NotThese:
        def allow(self, caller: Caller, privilege: str, *_: object) -> None:
            raise PermissionDenied(f"{privilege} is for others")

    client = RestClient(rest_front(verbs, NotThese()))
    verbs.created.clear()
    assert client.post("collections/estimate", rows=1_000_000, dim=4)["code"] == 0
    assert client.post("collections/estimate", collectionName="books", rows=1)["code"] == 65535
