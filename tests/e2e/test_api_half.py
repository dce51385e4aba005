"""Vectors of half precision through the client: inserted, searched, indexed, returned, imported, in Spark."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Server, until
from pymilvus import BulkInsertState, DataType, MilvusClient, connections, utility
from pyspark.sql import SparkSession
from spark_classes import lend

from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.spark import register

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

DIM, ROWS, K = 16, 600, 10
DEADLINE_S = 120.0
FLOATS = np.random.default_rng(5).normal(size=(ROWS, DIM)).astype(np.float32)
TYPES = {
    DataType.FLOAT16_VECTOR: np.dtype(np.float16),
    DataType.BFLOAT16_VECTOR: np.dtype(ml_dtypes.bfloat16),
}
CASES = [
    (data_type, index, metric, params)
    for data_type in TYPES
    for index, metric, params in (
        ("FLAT", "L2", {}),
        ("HNSW", "COSINE", {"M": 16, "efConstruction": 100}),
        ("IVF_FLAT", "IP", {"nlist": 8}),
    )
]
SEARCH = {"FLAT": {}, "HNSW": {"ef": 200}, "IVF_FLAT": {"nprobe": 8}}

each_case = pytest.mark.parametrize(("data_type", "index", "metric", "params"), CASES)


def name_of(data_type: DataType, index: str) -> str:
    return f"{data_type.name}_{index}"


def sent(data_type: DataType) -> np.ndarray:
    return FLOATS.astype(TYPES[data_type])


def check(client: MilvusClient, data_type: DataType, index: str, metric: str, recall: float) -> None:
    vectors = sent(data_type)
    answer = client.search(
        name_of(data_type, index),
        [vectors[n] for n in range(5)],
        limit=K,
        search_params={"metric_type": metric, "params": SEARCH[index]},
        output_fields=["v"],
        consistency_level="Strong",
    )
    rows = vectors.astype(float)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = []
    for query, hits in enumerate(answer):
        if metric == "L2":
            exact = ((rows[query] - rows) ** 2).sum(axis=1)
        else:
            exact = -((unit if metric == "COSINE" else rows) @ (unit if metric == "COSINE" else rows)[query])
        ids = [hit["key"] for hit in hits]
        given = np.array([hit["distance"] for hit in hits]) * (1 if metric == "L2" else -1)
        assert np.allclose(given, exact[ids], atol=1e-3, rtol=1e-4)
        found.append(np.mean(exact[ids] <= np.sort(exact)[K - 1] + 1e-4))
        for hit in hits:
            assert as_bytes(hit["entity"]["v"]) == vectors[hit["key"]].tobytes()
    assert np.mean(found) >= recall


def as_bytes(value: Any) -> bytes:
    """The client gives a vector as bytes, alone or in a list of one."""
    return bytes(value[0] if isinstance(value, list) else value)


@pytest.fixture(scope="module")
def filled(shared: Server) -> Iterator[MilvusClient]:
    client = MilvusClient(shared.uri)
    for data_type, index, metric, build in CASES:
        schema = client.create_schema()
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("v", data_type, dim=DIM)
        params = client.prepare_index_params()
        params.add_index("v", index_type=index, metric_type=metric, params=build)
        client.create_collection(name_of(data_type, index), schema=schema, index_params=params)
        rows = sent(data_type)
        client.insert(name_of(data_type, index), [{"key": n, "v": rows[n]} for n in range(ROWS)])
    yield client
    for data_type, index, _, _ in CASES:
        client.drop_collection(name_of(data_type, index))
    client.close()


@pytest.fixture(scope="module")
def sealed(filled: MilvusClient) -> MilvusClient:
    names = [name_of(data_type, index) for data_type, index, _, _ in CASES]
    for name in names:
        filled.flush(name)
    for name in names:
        until(lambda name=name: _is_indexed(filled, name), DEADLINE_S, f"{name} is indexed")
    return filled


def _is_indexed(client: MilvusClient, name: str) -> bool:
    segments = client.list_loaded_segments(name)
    return bool(segments) and all(s.state_name == "Sealed" and s.index_name for s in segments)


@each_case
def test_growing_rows(
    data_type: DataType, index: str, metric: str, params: dict[str, int], filled: MilvusClient
) -> None:
    described = filled.describe_collection(name_of(data_type, index))
    assert [(f["type"], f["params"]) for f in described["fields"]][1] == (data_type, {"dim": DIM})
    check(filled, data_type, index, metric, recall=1.0)


@each_case
def test_indexed_rows(
    data_type: DataType, index: str, metric: str, params: dict[str, int], sealed: MilvusClient
) -> None:
    check(sealed, data_type, index, metric, recall=0.98)
    rows = sealed.query(name_of(data_type, index), ids=[7, 300], output_fields=["v"])
    assert [as_bytes(row["v"]) for row in rows] == [sent(data_type)[n].tobytes() for n in (7, 300)]


@pytest.mark.parametrize("data_type", TYPES)
def test_rows_sent_as_floats(data_type: DataType, filled: MilvusClient) -> None:
    """The client sends lists and float32 arrays as they are; the server rounds them."""
    name, wide = name_of(data_type, "FLAT"), FLOATS * np.float32(0.7)
    rows = [{"key": ROWS, "v": wide[3].tolist()}, {"key": ROWS + 1, "v": wide[4]}]
    filled.insert(name, rows)
    stored = filled.query(name, ids=[ROWS, ROWS + 1], output_fields=["v"], consistency_level="Strong")
    assert [as_bytes(row["v"]) for row in stored] == [
        row.astype(TYPES[data_type]).tobytes() for row in wide[3:5]
    ]
    filled.delete(name, ids=[ROWS, ROWS + 1])


@pytest.mark.parametrize("data_type", TYPES)
def test_imported_rows(data_type: DataType, shared: Server) -> None:
    client = MilvusClient(shared.uri)
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", data_type, dim=DIM)
    params = client.prepare_index_params()
    params.add_index("v", index_type="FLAT", metric_type="L2")
    name = f"imported_{data_type.name}"
    client.create_collection(name, schema=schema, index_params=params)
    table = pa.table({"key": np.arange(ROWS), "v": pa.array(list(FLOATS))})
    pq.write_table(table, shared.data_dir / "import" / f"{name}.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client will drop these verbs one day
        connections.connect(uri=shared.uri, alias=shared.uri)
        task = utility.do_bulk_insert(name, [f"{name}.parquet"], using=shared.uri)
        ended = (BulkInsertState.ImportCompleted, BulkInsertState.ImportFailed)
        until(lambda: _state(shared, task).state in ended, DEADLINE_S, "the import ends")
        assert _state(shared, task).state == BulkInsertState.ImportCompleted
    rows = client.query(name, ids=[7], output_fields=["v"], consistency_level="Strong")
    assert as_bytes(rows[0]["v"]) == sent(data_type)[7].tobytes()
    client.drop_collection(name)
    client.close()


def _state(server: Server, task: int) -> BulkInsertState:
    return utility.get_bulk_insert_state(task, using=server.uri)


def test_spark_reads_floats(
    shared: Server, sealed: MilvusClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = dict(os.environ)
    settings = SparkSettings(master="local[2]", driver_memory_mb=512)
    session = PipelineSession.start(settings, lend(tmp_path_factory.mktemp("spark")))
    try:
        spark = SparkSession(session.context)
        register(spark)
        for data_type in TYPES:
            options = {"uri": shared.uri, "collection": name_of(data_type, "FLAT")}
            frame = spark.read.format("elanus").options(**options).load()
            assert frame.schema["v"].dataType.simpleString() == "array<float>"
            rows = frame.where("key in (7, 300)").orderBy("key").collect()
            assert [row["v"] for row in rows] == sent(data_type)[[7, 300]].astype(np.float32).tolist()
    finally:
        session.stop()
        os.environ.clear()
        os.environ.update(before)
