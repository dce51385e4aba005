"""`elanus serve` with its log on NATS JetStream and its objects on S3: the same, and through their deaths."""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import Server, until
from pymilvus import MilvusClient

from elanus.devcluster.nats import Nats
from elanus.devcluster.spark import Spark
from elanus.devcluster.swift import Swift
from elanus.storage.objects import open_store

pytestmark = [pytest.mark.e2e, pytest.mark.services]

NewServer = Callable[..., Server]
DIM = 8
ROWS = 2000
DEADLINE_S = 90


def settings(nats: Nats, s3: Swift) -> dict[str, object]:
    prefix = uuid.uuid4().hex
    return {
        "log.url": f"{nats.url}/{prefix}",
        "storage.url": s3.store_url(prefix),
        "indexcoord.index_rows_min": 100,
    }


def count(client: MilvusClient) -> int:
    answer = client.query("rows", output_fields=["count(*)"], consistency_level="Strong")
    return int(answer[0]["count(*)"])


def rows(vectors: np.ndarray, first: int = 0) -> list[dict[str, object]]:
    return [{"id": first + n, "vector": vector.tolist()} for n, vector in enumerate(vectors)]


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Spark]:
    cluster = Spark(tmp_path / "cluster")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.mark.jvm
def test_rows_go_through_nats_and_a_spark_cluster_into_s3_and_back(
    new_server: NewServer, nats_server: Nats, s3_server: Swift, spark: Spark
) -> None:
    on_services = {**settings(nats_server, s3_server), "pipeline.spark_master": spark.master}
    server = new_server(on_services).start().wait_for_spark()
    client = server.client()
    client.create_collection("rows", dimension=DIM, metric_type="L2", consistency_level="Strong")
    vectors = np.random.default_rng(1).random((ROWS, DIM), dtype=np.float32)
    client.insert("rows", rows(vectors))
    client.flush("rows")
    client.delete("rows", ids=[5, 6])
    objects = open_store(str(server.settings["storage.url"]))
    until(lambda: list(objects.list("insert_log")), DEADLINE_S, "the rows are in the bucket")
    until(lambda: list(objects.list("index_files")), DEADLINE_S, "the index is in the bucket")
    server.kill_both()
    server.start()
    client = server.client()
    until(lambda: client.get_load_state("rows")["state"].name == "Loaded", DEADLINE_S, "it is loaded again")
    assert count(client) == ROWS - 2
    found = client.search("rows", data=vectors[100:103].tolist(), limit=1, consistency_level="Strong")
    assert [hits[0]["id"] for hits in found] == [100, 101, 102]
    assert not list((server.data_dir / "files").rglob("*.parquet"))
    assert not list((server.data_dir / "log").rglob("*.log"))
    server.stop()
    secret = re.search("secret_access_key = (.+)", s3_server.credentials.read_text())
    assert secret is not None
    assert secret[1] not in server.output()


def test_writes_wait_for_a_nats_server_that_comes_back(
    new_server: NewServer, s3_server: Swift, tmp_path: Path
) -> None:
    nats = Nats(tmp_path / "nats")
    nats.start()
    server = new_server({**settings(nats, s3_server), "pipeline.enabled": "false"}).start()
    client = server.client()
    client.create_collection("rows", dimension=DIM, metric_type="L2", consistency_level="Strong")
    vectors = np.random.default_rng(1).random((100, DIM), dtype=np.float32)
    client.insert("rows", rows(vectors))
    nats.kill()
    nats.launch()
    client.insert("rows", rows(vectors, first=100))
    nats.wait_ready()
    assert count(client) == 200
    server.stop()
    nats.stop()


def test_a_data_directory_keeps_to_its_log_and_store(
    new_server: NewServer, nats_server: Nats, s3_server: Swift, tmp_path: Path
) -> None:
    server = new_server({**settings(nats_server, s3_server), "pipeline.enabled": "false"}).start()
    server.stop()
    for changed, named in (("log.url", "log"), ("storage.url", "storage")):
        other = Server(server.data_dir, {**server.settings, changed: ""})
        done = subprocess.run(other.command(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert f"the setting {named}.url names none" in done.stderr
    wrong = Server(tmp_path / "new", {**server.settings, "storage.url": s3_server.store_url("x") + "x"})
    began_s = time.monotonic()
    done = subprocess.run(wrong.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert time.monotonic() - began_s < DEADLINE_S
