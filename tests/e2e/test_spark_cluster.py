"""The pipeline on a real Spark cluster: a master and two workers, killed while jobs run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient
from spark_cluster import SparkCluster

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

DEADLINE_S = 240.0
DIM = 64
ROWS = 20_000
BATCH_ROWS = 5_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark") / "cluster")
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def server(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        "pipeline.spark_master": cluster.url,
        "pipeline.driver_host": "127.0.0.1",
        "pipeline.executor_memory_mb": 512,
        "pipeline.spark_ui": True,
    }
    with Server(tmp_path_factory.mktemp("on-cluster") / "data", settings) as started:
        yield started.start().wait_for_spark()


@pytest.fixture
def client(server: Server) -> MilvusClient:
    return server.client()


def filled(client: MilvusClient, name: str, index_type: str = "FLAT") -> np.ndarray[Any, Any]:
    """A loaded collection of `ROWS` rows. Returns its vectors."""
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    params = client.prepare_index_params()
    build = {"M": 32, "efConstruction": 300} if index_type == "HNSW" else {}
    params.add_index("v", index_type=index_type, metric_type="L2", params=build)
    client.create_collection(name, schema=schema, index_params=params, num_shards=2)
    rows = np.random.default_rng(5).random((ROWS, DIM), dtype=np.float32)
    for first in range(0, ROWS, BATCH_ROWS):
        batch = [{"key": first + n, "v": row} for n, row in enumerate(rows[first : first + BATCH_ROWS])]
        client.insert(name, batch)
    return rows


def count(client: MilvusClient, name: str) -> int:
    return int(client.query(name, output_fields=["count(*)"], consistency_level="Strong")[0]["count(*)"])


def jobs(server: Server, kind: str) -> list[dict[str, Any]]:
    return [job for job in server.status()["jobs"] if job["kind"] == kind]


def while_runs(server: Server, kind: str, strike: Callable[[], None]) -> str:
    """Strike as soon as a job of the kind runs. Returns the job's id."""
    running = until(
        lambda: [job for job in jobs(server, kind) if job["state"] == "running"],
        DEADLINE_S,
        f"a {kind} runs",
        poll_s=0.005,
    )
    strike()
    return str(running[0]["job_id"])


def segment_rows(client: MilvusClient, name: str) -> int:
    segments = client.list_persistent_segments(name)
    assert {segment.state_name for segment in segments} == {"Flushed"}
    return sum(segment.num_rows for segment in segments)


@pytest.mark.parametrize("strike", ["kill_python_workers", "kill_executors", "kill_worker"])
def test_a_flush_survives_what_runs_it(
    server: Server, client: MilvusClient, cluster: SparkCluster, strike: str
) -> None:
    name = f"flush_{strike}"
    filled(client, name)
    kill = {
        "kill_python_workers": cluster.kill_python_workers,
        "kill_executors": cluster.kill_executors,
        "kill_worker": lambda: cluster.kill_worker(0),
    }[strike]
    with ThreadPoolExecutor(1) as pool:
        flush = pool.submit(client.flush, name, timeout=DEADLINE_S)
        while_runs(server, "flush", kill)
        flush.result(DEADLINE_S)
    if strike == "kill_worker":
        cluster.replace_worker(0)
    assert segment_rows(client, name) == ROWS, "nothing is lost, nothing is there twice"
    assert count(client, name) == ROWS
    client.drop_collection(name)


def test_an_index_build_survives_its_executor(
    server: Server, client: MilvusClient, cluster: SparkCluster
) -> None:
    rows = filled(client, "indexed", "HNSW")
    client.flush("indexed", timeout=DEADLINE_S)
    job_id = while_runs(server, "index build", cluster.kill_executors)

    def built() -> bool:
        index = client.describe_index("indexed", "v")
        return index["state"] == "Finished" and index["pending_index_rows"] == 0

    until(built, DEADLINE_S, "the index is built", poll_s=0.2)
    assert count(client, "indexed") == ROWS
    hits = client.search("indexed", list(rows[:50]), limit=1, search_params={"params": {"ef": 100}})
    assert np.mean([hit[0]["key"] == n for n, hit in enumerate(hits)]) >= 0.95
    job = next(job for job in jobs(server, "index build") if job["job_id"] == job_id)
    assert job["state"] == "finished", "Spark ran its task again; the job is the same"
    client.drop_collection("indexed")


def test_the_ledger_links_to_sparks_own_page(server: Server) -> None:
    finished = jobs(server, "index build")
    assert any(job["ui_url"].startswith("http://127.0.0.1:") for job in finished)
