"""Data directories that servers of earlier releases were killed on are served, written and compacted."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from harness import Server, until
from older_rows import (
    ALIAS,
    FLUSHED,
    GROWING,
    PASSWORD,
    QUERY,
    ROLE,
    ROWS,
    USER,
    answers,
    expected,
    row,
)
from pymilvus import MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.kills]

ARCHIVES = Path(__file__).parent / "older_data"
JOB_DEADLINE_S = 120.0
ADMIN = "root:Milvus"
OTHER_VECTORS = ("half", "bits", "sparse")


@pytest.mark.parametrize(
    ("form", "rich"), [pytest.param("metadata-1", False, marks=pytest.mark.long), ("metadata-2", True)]
)
def test_the_data_of_an_earlier_release_is_served_and_goes_on(
    form: str, rich: bool, new_server: Callable[..., Server]
) -> None:
    server = new_server({"indexcoord.index_rows_min": 20, "proxy.authorization_enabled": True})
    with tarfile.open(ARCHIVES / f"{form}.tar.xz") as archive:
        archive.extractall(server.data_dir, filter="data")
    client = server.start().client(token=ADMIN)
    rows = expected(rich)
    for name in (FLUSHED, GROWING):
        _check(client, name, rows)
    assert client.list_aliases(FLUSHED)["aliases"] == [ALIAS]
    if rich:
        _check_rights(client, server)

    for name in (FLUSHED, GROWING):
        client.delete(name, ids=[1, 2])
        client.insert(name, [row(ROWS + i, rich) for i in range(10)])
        client.flush(name)
    job = client.compact(FLUSHED)
    until(lambda: client.get_compaction_state(job) == "Completed", JOB_DEADLINE_S, "it is compacted", 0.1)
    server.kill()
    client = server.start().client(token=ADMIN)
    added = {ROWS + i: row(ROWS + i, rich) for i in range(10)}
    for name in (FLUSHED, GROWING):
        _check(client, name, {key: values for key, values in rows.items() if key not in (1, 2)} | added)


def _check(client: MilvusClient, name: str, rows: dict[int, dict[str, Any]]) -> None:
    found = answers(client, name)
    assert found.keys() == rows.keys()
    for key, values in rows.items():
        plain = {field: value for field, value in values.items() if field not in OTHER_VECTORS}
        assert {field: found[key][field] for field in plain} == plain
    nearest = client.search(name, [QUERY], anns_field="v", limit=10, search_params={"params": {"ef": 200}})
    distances = sorted(_squared(values["v"]) for values in rows.values())
    assert [hit["distance"] for hit in nearest[0]] == distances[:10]
    filtered = client.query(name, 'j["a"] == 3 and dyn < 4 and name like "näme%"', output_fields=["id"])
    right = [key for key, values in rows.items() if values["j"]["a"] == 3 and values["dyn"] < 4]
    assert sorted(hit["id"] for hit in filtered) == sorted(right)
    if "half" in next(iter(rows.values())):
        _check_rich(client, name, rows, found)


def _check_rich(
    client: MilvusClient, name: str, rows: dict[int, dict[str, Any]], found: dict[int, dict[str, Any]]
) -> None:
    for key, values in rows.items():
        assert np.frombuffer(found[key]["half"][0], np.float16).tolist() == values["half"].tolist()
        assert found[key]["bits"][0] == values["bits"]
        assert found[key]["sparse"] == values["sparse"]
    missing = client.query(name, "maybe is null and tenant == 'tenant 0'", output_fields=["id"])
    assert sorted(hit["id"] for hit in missing) == sorted(key for key in rows if key % 12 == 0)
    by_text = client.search(name, ["55"], anns_field="terms", limit=3)
    assert [hit["id"] for hit in by_text[0]] == [55]
    by_bits = client.search(name, [bytes([43])], anns_field="bits", limit=1)
    assert (by_bits[0][0]["id"], by_bits[0][0]["distance"]) == (43, 0.0)


def _check_rights(client: MilvusClient, server: Server) -> None:
    assert client.describe_user(USER)["roles"] == (ROLE,)
    reader = server.client(user=USER, password=PASSWORD)
    assert len(reader.search(FLUSHED, [QUERY], anns_field="v", limit=1)[0]) == 1
    with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
        reader.search(GROWING, [QUERY], anns_field="v", limit=1)


def _squared(vector: list[float]) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(vector, QUERY, strict=True)))
