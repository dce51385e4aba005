"""The rows in the data directories of earlier releases (`older_data`), and the program that wrote them.

`write` fills a server, which is then killed; `answers` reads what a server holds. An archive is made by

    python tests/e2e/older_rows.py URI [rich]    # a server of that release, ended by `kill -9` afterwards
    tar -cJf older_data/NAME.tar.xz --exclude=run --exclude=scratch -C DATA_DIR .
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from pymilvus import DataType, Function, FunctionType, MilvusClient

DIM = 8
ROWS = 120
BATCHES = 3
FLUSHED, GROWING = "flushed", "growing"
ALIAS = "also_flushed"
USER, PASSWORD, ROLE = "reader", "Reads-0nly", "readers"
QUERY = [float(i % 3) for i in range(DIM)]
INDEX_DEADLINE_S = 120.0


def write(client: MilvusClient, rich: bool) -> None:
    """Two collections: one is flushed, indexed, and has later deletes; the other is in the log only."""
    for name in (FLUSHED, GROWING):
        client.create_collection(
            name, schema=_schema(rich), index_params=_indexes(rich), consistency_level="Strong"
        )
        for batch in range(BATCHES):
            first = batch * ROWS // BATCHES
            client.insert(name, [row(i, rich) for i in range(first, first + ROWS // BATCHES)])
            if name == FLUSHED:
                client.flush(name)
        client.delete(name, ids=[i for i in range(ROWS) if _is_deleted(i)])
    client.create_alias(FLUSHED, ALIAS)
    if rich:
        for name in (FLUSHED, GROWING):
            client.upsert(name, [row(i, rich, version=1) for i in range(ROWS) if _is_replaced(i)])
        client.create_user(USER, PASSWORD)
        client.create_role(ROLE)
        client.grant_role(USER, ROLE)
        client.grant_privilege(ROLE, "Collection", "Search", FLUSHED)
    _wait_for_indexes(client)


def expected(rich: bool) -> dict[int, dict[str, Any]]:
    """The rows of each of the two collections, by key."""
    return {
        i: row(i, rich, version=int(rich and _is_replaced(i)))
        for i in range(ROWS)
        if not _is_deleted(i) or (rich and _is_replaced(i))
    }


def row(key: int, rich: bool, version: int = 0) -> dict[str, Any]:
    """The row of a key, as it is inserted and as a query returns it, but for vectors that are not float32."""
    values: dict[str, Any] = {
        "id": key,
        "name": f"näme {key % 10}",
        "v": [float((key * (i + 1) + version) % 17) for i in range(DIM)],
        "j": {"a": key % 10, "t": ["x", key]},
        "price": key / 8,
        "ok": key % 2 == 0,
        "dyn": key % 7,
    }
    if rich:
        values |= {
            "maybe": None if key % 3 == 0 else f"there {key}",
            "numbers": [key % 3, key % 5],
            "text": f"number {key} of {ROWS}",
            "tenant": f"tenant {key % 4}",
            "half": np.array([(key + i) % 5 for i in range(DIM)], np.float16),
            "bits": bytes([key % 256]),
            "sparse": {key % 50: 1.0, 50 + key % 40: 0.5},
        }
    return values


def answers(client: MilvusClient, name: str) -> dict[int, dict[str, Any]]:
    """All rows of a collection, by key, in the form of `row`."""
    found = client.query(name, "id >= 0", output_fields=["*"], limit=10 * ROWS, consistency_level="Strong")
    by_key = {values["id"]: dict(values) for values in found}
    assert len(by_key) == len(found), "a row is there twice"
    return by_key


def _is_deleted(key: int) -> bool:
    return key % 7 == 0


def _is_replaced(key: int) -> bool:
    return key % 10 == 0


def _schema(rich: bool) -> Any:
    schema = MilvusClient.create_schema(enable_dynamic_field=True)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("name", DataType.VARCHAR, max_length=40)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field("j", DataType.JSON)
    schema.add_field("price", DataType.DOUBLE)
    schema.add_field("ok", DataType.BOOL)
    if rich:
        schema.add_field("maybe", DataType.VARCHAR, max_length=40, nullable=True)
        schema.add_field("numbers", DataType.ARRAY, element_type=DataType.INT32, max_capacity=4)
        schema.add_field("text", DataType.VARCHAR, max_length=100, enable_analyzer=True, enable_match=True)
        schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_field("tenant", DataType.VARCHAR, max_length=20, is_partition_key=True)
        schema.add_field("half", DataType.FLOAT16_VECTOR, dim=DIM)
        schema.add_field("bits", DataType.BINARY_VECTOR, dim=8)
        schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(Function("bm25", FunctionType.BM25, ["text"], ["terms"]))
    return schema


def _indexes(rich: bool) -> Any:
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 64})
    if rich:
        indexes.add_index("half", index_type="IVF_FLAT", metric_type="L2", params={"nlist": 4})
        indexes.add_index("bits", index_type="BIN_FLAT", metric_type="HAMMING")
        indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        indexes.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        indexes.add_index("maybe", index_type="INVERTED")
        indexes.add_index("price", index_type="STL_SORT")
        indexes.add_index("ok", index_type="BITMAP")
    return indexes


def _wait_for_indexes(client: MilvusClient) -> None:
    deadline = time.monotonic() + INDEX_DEADLINE_S
    for name in client.list_indexes(FLUSHED):
        while client.describe_index(FLUSHED, name)["state"] != "Finished":
            assert time.monotonic() < deadline, f"index {name} was not built"
            time.sleep(0.1)


if __name__ == "__main__":
    write(MilvusClient(sys.argv[1]), rich="rich" in sys.argv[2:])
