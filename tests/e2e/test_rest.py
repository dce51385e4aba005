"""The REST API of a whole server, next to the gRPC client: rows of either are seen by the other."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymilvus
import pytest
import requests
from harness import Server, until
from pymilvus import MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

DEADLINE_S = 120.0
Post = Callable[..., Any]


@pytest.fixture
def post(shared: Server) -> Post:
    """The data of a successful answer."""

    def send(path: str, **body: Any) -> Any:
        sent = requests.post(f"{shared.http_url}/v2/vectordb/{path}", json=body, timeout=60)
        answer = sent.json()
        assert (sent.status_code, answer["code"]) == (200, 0), answer
        return answer["data"]

    return send


def packed(values: list[float], dtype: type[np.generic]) -> str:
    return base64.b64encode(np.array(values, dtype).tobytes()).decode()


def test_the_console_shows_a_whole_server(shared: Server, client: MilvusClient, post: Post) -> None:
    post("collections/create", collectionName="shown", dimension=2)
    post("entities/insert", collectionName="shown", data=[{"id": 1, "vector": [1.0, 2.0]}])
    page = requests.get(f"{shared.http_url}/ui/", timeout=60)
    assert (page.status_code, "main.js" in page.text) == (200, True)
    headers, sent = {"X-Elanus-Request": "test"}, {"collectionName": "shown"}

    def has_its_row() -> bool:  # growing rows are counted by those who follow the log
        view = f"{shared.http_url}/ui/api/view/segments"
        found = requests.post(view, json=sent, headers=headers, timeout=60).json()["data"]
        return sum(segment[2] for segment in found) == 1

    def is_shown() -> bool:  # an answer is kept for two seconds
        found = requests.get(f"{shared.http_url}/ui/api/status", timeout=60).json()["data"]
        assert {"rootcoord", "datacoord", "proxy"} <= {role["role"] for role in found["status"]["roles"]}
        assert found["figures"]["rowsInserted"] >= 1
        return "shown" in {one["name"] for one in found["status"]["collections"]}

    until(has_its_row, DEADLINE_S, "a segment has the row")
    until(is_shown, DEADLINE_S, "the console shows the collection")


def test_an_upsert_in_merge_mode_keeps_what_is_not_sent(post: Post) -> None:
    post("collections/create", collectionName="merged", dimension=2)
    post("entities/insert", collectionName="merged", data=[{"id": 1, "vector": [1, 2], "colour": "red"}])
    changes = {"collectionName": "merged", "partialUpdate": True}
    assert post("entities/upsert", **changes, data={"id": 1, "size": 3})["upsertIds"] == [1]
    wanted = {"collectionName": "merged", "id": [1], "consistencyLevel": "Strong"}
    assert post("entities/get", **wanted) == [{"id": 1, "vector": [1, 2], "colour": "red", "size": 3}]
    post("entities/upsert", **changes, data={"id": 1, "vector": [3, 4]})
    assert post("entities/get", **wanted) == [{"id": 1, "vector": [3, 4], "colour": "red", "size": 3}]


def test_rows_of_rest_and_of_the_client_are_the_same(client: MilvusClient, post: Post) -> None:
    def field(name: str, kind: str, **params: Any) -> dict[str, Any]:
        return {"fieldName": name, "dataType": kind, "elementTypeParams": params}

    post(
        "collections/create",
        collectionName="kinds",
        schema={
            "fields": [
                {**field("key", "VarChar", max_length=20), "isPrimary": True},
                {**field("tags", "Array", max_capacity=4), "elementDataType": "Int64"},
                {**field("year", "Int64"), "nullable": True},
                field("doc", "JSON"),
                field("dense", "FloatVector", dim=2),
                field("half", "Float16Vector", dim=2),
                field("bits", "BinaryVector", dim=8),
                field("bytes", "Int8Vector", dim=2),
                field("words", "SparseFloatVector"),
            ]
        },
        indexParams=[
            {"fieldName": "dense", "metricType": "L2", "indexType": "HNSW", "params": {"M": 8}},
            {"fieldName": "half", "metricType": "L2", "indexType": "AUTOINDEX"},
            {"fieldName": "bits", "metricType": "HAMMING", "indexType": "BIN_FLAT"},
            {"fieldName": "bytes", "metricType": "L2", "indexType": "HNSW"},
            {"fieldName": "words", "metricType": "IP", "indexType": "SPARSE_INVERTED_INDEX"},
        ],
    )
    rows = [
        {
            "key": str(n),
            "tags": [n, 2**60 + n],
            "year": None if n % 2 else 2**62 + n,
            "doc": {"n": n},
            "dense": [float(n), 0.0],
            "half": [float(n), 0.5],
            "bits": [n],
            "bytes": [n, -n],
            "words": {"1": 1.0, str(n + 5): 2.0},
        }
        for n in range(10)
    ]
    assert post("entities/insert", collectionName="kinds", data=rows)["insertIds"] == [
        str(n) for n in range(10)
    ]
    by_grpc = client.query("kinds", filter='key == "4"', output_fields=["*"], consistency_level="Strong")[0]
    assert (by_grpc["year"], by_grpc["doc"], list(by_grpc["tags"])) == (2**62 + 4, {"n": 4}, [4, 2**60 + 4])
    (by_rest,) = post("entities/get", collectionName="kinds", id=["4"], consistencyLevel="Strong")
    assert by_rest == {
        "key": "4",
        "tags": {"Data": {"LongData": {"data": [4, str(2**60 + 4)]}}},
        "year": str(2**62 + 4),
        "doc": '{"n":4}',
        "dense": [4.0, 0.0],
        "half": packed([4.0, 0.5], np.float16),
        "bits": base64.b64encode(bytes([4])).decode(),
        "bytes": [4, -4],
        "words": {"1": 1.0, "9": 2.0},
    }
    for name, vector in {
        "dense": [7.0, 0.0],
        "half": packed([7.0, 0.5], np.float16),
        "bits": base64.b64encode(bytes([7])).decode(),
        "bytes": [7, -7],
        "words": {"12": 1.0},
    }.items():
        hits = post("entities/search", collectionName="kinds", data=[vector], annsField=name, limit=1)
        assert [hit["id"] for hit in hits] == ["7"], name
    both = post(
        "entities/hybrid_search",
        collectionName="kinds",
        search=[
            {"data": [[7.0, 0.0]], "annsField": "dense", "limit": 3},
            {"data": [{"12": 1.0}], "annsField": "words", "limit": 3},
        ],
        rerank={"strategy": "rrf", "params": {"k": 60}},
        limit=1,
        outputFields=["year"],
    )
    assert [(hit["id"], hit["year"]) for hit in both] == [("7", None)]
    post("entities/delete", collectionName="kinds", filter="key in {keys}", exprParams={"keys": ["7"]})
    found = client.query("kinds", output_fields=["count(*)"], consistency_level="Strong")
    assert found[0]["count(*)"] == 9


def bulk_writer() -> Any:
    """The client's module of bulk imports; its package needs clients of object stores, too."""
    path = Path(pymilvus.__file__).parent / "bulk_writer" / "bulk_import.py"
    spec = importlib.util.spec_from_file_location("bulk_import", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count(post: Post) -> int:
    sent = {"collectionName": "bulk", "outputFields": ["count(*)"], "consistencyLevel": "Strong"}
    ((counted,),) = (row.values() for row in post("entities/query", **sent))
    return int(counted)


def test_the_clients_bulk_writer_imports_a_file(client: MilvusClient, shared: Server, post: Post) -> None:
    post("collections/create", collectionName="bulk", dimension=2)
    table = pa.table({"id": range(100), "vector": [[float(n), 0.0] for n in range(100)]})
    pq.write_table(table, shared.data_dir / "import" / "bulk.parquet")
    writer, url = bulk_writer(), shared.http_url
    job = writer.bulk_import(url=url, collection_name="bulk", files=[["bulk.parquet"]]).json()["data"][
        "jobId"
    ]

    def ended() -> Any:
        data = writer.get_import_progress(url=url, job_id=job).json()["data"]
        return data if data["state"] in ("Completed", "Failed") else None

    state = until(ended, DEADLINE_S, "the import ends")
    assert (state["state"], state["progress"], state["importedRows"]) == ("Completed", 100, 100)
    assert [record["jobId"] for record in writer.list_import_jobs(url, "bulk").json()["data"]["records"]] == [
        job
    ]
    assert count(post) == 100

    two = {"auto_commit": "false", "mode": "upsert"}
    job = writer.bulk_import(url, "bulk", files=[["bulk.parquet"]], options=two).json()["data"]["jobId"]

    def state_of() -> str:
        return str(writer.get_import_progress(url=url, job_id=job).json()["data"]["state"])

    until(lambda: state_of() not in ("Pending", "Importing"), DEADLINE_S, "the files are written")
    assert state_of() == "Uncommitted"
    post("entities/delete", collectionName="bulk", filter="id >= 0")
    assert count(post) == 0
    post("jobs/import/commit", jobId=job)
    until(lambda: state_of() == "Completed", DEADLINE_S, "the rows are served")
    assert count(post) == 100


def test_a_search_answers_with_buckets(client: MilvusClient, shared: Server, post: Post) -> None:
    post("collections/create", collectionName="grouped", dimension=2, metricType="IP")
    rows = [{"id": n, "vector": [1.0 - n / 10, 0.0], "kind": "ab"[n % 2], "price": n} for n in range(6)]
    post("entities/insert", collectionName="grouped", data=rows)
    level = {"fields": ["$meta"], "size": 2}
    body = {"collectionName": "grouped", "data": [[1.0, 0.0]], "consistencyLevel": "Strong"}
    refused = requests.post(
        f"{shared.http_url}/v2/vectordb/entities/search",
        json={**body, "searchAggregation": level},
        timeout=60,
    ).json()
    assert refused["code"] == 1100, "dynamic fields make no buckets"
    level = {
        "fields": ["id"],
        "size": 3,
        "metrics": {"count": {"op": "count", "fieldName": "*"}, "best": {"op": "max", "fieldName": "_score"}},
        "order": [{"key": "_key", "direction": "desc"}],
        "topHits": {"size": 1},
    }
    (found,) = post("entities/search", **body, outputFields=["price"], searchAggregation=level)
    assert [bucket["key"][0]["value"] for bucket in found["buckets"]] == [2, 1, 0]
    assert [bucket["hits"][0]["price"] for bucket in found["buckets"]] == [2, 1, 0]
    assert [bucket["metrics"]["best"] for bucket in found["buckets"]] == pytest.approx([0.8, 0.9, 1.0])
    assert {bucket["metrics"]["count"] for bucket in found["buckets"]} == {1}
