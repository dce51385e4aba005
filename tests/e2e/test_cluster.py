"""A cluster of processes on etcd, NATS, S3 and Spark's own cluster, with mutual TLS, through the client."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import certificates
import numpy as np
import pytest
from cluster import Cluster
from harness import until
from pymilvus import MilvusClient, MilvusException

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.spark import Spark
from elanus.devcluster.swift import Swift

pytestmark = [pytest.mark.e2e, pytest.mark.services, pytest.mark.jvm]

DIM = 8
ROWS = 3000
DEADLINE_S = 90.0
OUTAGE_S = 4.0


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, etcd_server: Etcd, nats_server: Nats, s3_server: Swift
) -> Iterator[Cluster]:
    directory, prefix = tmp_path_factory.mktemp("cluster"), uuid.uuid4().hex
    files = certificates.make(directory / "certificates", "127.0.0.1")
    spark = Spark(directory / "spark")
    spark.start()
    cluster = Cluster(
        directory / "roles",
        etcd=etcd_server.endpoint,
        nats=nats_server.url,
        store_url=s3_server.store_url(prefix),
        more={
            "pipeline": {"spark_master": spark.master, "driver_host": "127.0.0.1"},
            "cluster": {f"tls_{what}": path for what, path in files.items()},
        },
        prefix=prefix,
    )
    try:
        yield cluster.start(proxies=2)
    finally:
        cluster.close()
        spark.stop()


def count(client: MilvusClient, name: str = "rows") -> int:
    answer = client.query(name, output_fields=["count(*)"], consistency_level="Strong")
    return int(answer[0]["count(*)"])


def rows(vectors: np.ndarray, first: int = 0) -> list[dict[str, object]]:
    return [{"id": first + n, "vector": vector.tolist()} for n, vector in enumerate(vectors)]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(1).random((ROWS, DIM), dtype=np.float32)


@pytest.fixture(scope="module")
def clients(cluster: Cluster, vectors: np.ndarray) -> list[MilvusClient]:
    """Of both proxies; a collection with rows from each, flushed, indexed, and some deleted."""
    one, two = cluster.client("proxy1"), cluster.client("proxy2")
    one.create_collection("rows", dimension=DIM, metric_type="L2", num_shards=2)
    half = ROWS // 2
    one.insert("rows", rows(vectors[:half]))
    two.insert("rows", rows(vectors[half:], first=half))
    return [one, two]


def test_what_one_proxy_wrote_the_other_reads_at_once(
    clients: list[MilvusClient], vectors: np.ndarray
) -> None:
    for client in clients:
        assert count(client) == ROWS
        found = client.search("rows", data=vectors[::500].tolist(), limit=1, consistency_level="Strong")
        assert [hits[0]["id"] for hits in found] == list(range(0, ROWS, 500))


def test_segments_are_flushed_indexed_and_spread_over_the_nodes(
    cluster: Cluster, clients: list[MilvusClient], vectors: np.ndarray
) -> None:
    one, two = clients
    one.flush("rows")
    until(lambda: _sealed(one) == ROWS, DEADLINE_S, "sealed segments serve", poll_s=0.2)
    assert count(two) == ROWS
    assert len(_nodes(one)) == 2
    two.delete("rows", ids=[0, 1, 2])
    assert count(one) == ROWS - 3
    found = one.search("rows", data=vectors[:3].tolist(), limit=1, consistency_level="Strong")
    assert not {0, 1, 2} & {hits[0]["id"] for hits in found}


def test_definitions_reach_every_proxy(clients: list[MilvusClient]) -> None:
    one, two = clients
    one.create_collection("other", dimension=DIM)
    assert two.has_collection("other")
    assert count(two, "other") == 0
    two.drop_collection("other")
    assert not one.has_collection("other")
    with pytest.raises(Exception, match="can't find collection"):
        one.insert("other", rows(np.zeros((1, DIM), np.float32)))


def test_a_release_closes_the_reads_at_every_proxy(clients: list[MilvusClient]) -> None:
    one, two = clients
    one.release_collection("rows")
    for client in clients:
        with pytest.raises(Exception, match="not loaded"):
            count(client)
    two.load_collection("rows")
    assert count(one) == ROWS - 3


def test_replicas_answer_as_one(clients: list[MilvusClient]) -> None:
    one, two = clients
    one.release_collection("rows")
    one.load_collection("rows", replica_number=2)
    assert [count(c) for c in (one, two, one, two)] == [ROWS - 3] * 4
    with pytest.raises(Exception, match="replica"):
        one.load_collection("rows", replica_number=3)
    one.release_collection("rows")
    one.load_collection("rows")


def test_a_resource_group_serves_what_is_loaded_in_it(cluster: Cluster, clients: list[MilvusClient]) -> None:
    one, two = clients
    admin, default = one._get_connection(), "__default_resource_group"
    there = count(one)
    one.release_collection("rows")
    admin.create_resource_group("rg")
    admin.transfer_node(default, "rg", 1)
    (node,) = admin.describe_resource_group("rg").nodes
    one.load_collection("rows", resource_groups=["rg"])
    assert [count(client) for client in (one, two)] == [there] * 2
    assert _nodes(one) == {node.node_id}
    assert cluster.status()["resource_groups"][1] == {
        "name": "rg", "nodes": [node.node_id], "missing_nodes": 0, "replicas": 1
    }  # fmt: skip
    two._get_connection().transfer_replica("rg", default, "rows", 1)
    others = lambda: _nodes(one) and node.node_id not in _nodes(one)  # noqa: E731 - what is waited for
    until(others, DEADLINE_S, "the other node serves", poll_s=0.2)
    assert [count(client) for client in (one, two)] == [there] * 2
    admin.transfer_node("rg", default, 1)
    admin.drop_resource_group("rg")


def test_an_outage_of_the_object_store_stops_neither_writes_nor_reads(
    clients: list[MilvusClient], vectors: np.ndarray, s3_server: Swift
) -> None:
    """A flush that meets it ends when the store is back, and nothing is lost or doubled."""
    one, two = clients
    before = count(one)
    s3_server.pause()
    try:
        one.insert("rows", rows(vectors[:100], first=10 * ROWS))
        with pytest.raises(MilvusException):
            one.flush("rows", timeout=OUTAGE_S)
        assert count(two) == before + 100
        two.delete("rows", ids=[10 * ROWS])
        assert count(one) == before + 99
    finally:
        s3_server.resume()
    one.flush("rows", timeout=DEADLINE_S)
    until(lambda: _sealed(one) >= before + 99, DEADLINE_S, "what was flushed is served", poll_s=0.2)
    assert [count(client) for client in clients] == [before + 99] * 2


def test_every_process_shows_the_whole_cluster(cluster: Cluster) -> None:
    for name in cluster.processes:
        roles = {r["role"].split()[0] for r in cluster.status(name)["roles"]}
        assert roles == {
            "rootcoord", "datacoord", "indexcoord", "querycoord", "querynode", "proxy", "datanode"
        }, name  # fmt: skip
    url = cluster.processes["querycoord"].observe_url
    shown = subprocess.run(
        [sys.executable, "-m", "elanus", "status", "--url", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert "default.rows" in shown.stdout
    assert "querynode" in shown.stdout


def test_data_nodes_share_the_vchannels_and_one_that_dies_loses_nothing(
    cluster: Cluster, clients: list[MilvusClient], vectors: np.ndarray
) -> None:
    one, two = clients
    (first,) = _owners(cluster)
    cluster.add("datanode2", pipeline__spark_master="local[2]")
    until(lambda: len(_owners(cluster)) == 2, DEADLINE_S, "the one that joined has its share", poll_s=0.2)
    there = count(one)
    with Writer(two, vectors) as writer:
        until(lambda: writer.rows, DEADLINE_S, "rows are written")
        cluster.processes["datanode2"].kill()
        one.flush("rows")
        assert set(_owners(cluster)) == {first}
    one.flush("rows")
    assert count(one) == there + writer.rows
    until(lambda: _growing(one) == 0, DEADLINE_S, "all of it is served from files", poll_s=0.2)
    assert count(one) == there + writer.rows


class Writer:
    """Writes into the collection as long as its block lasts. ``rows``: how many were acknowledged."""

    def __init__(self, client: MilvusClient, vectors: np.ndarray) -> None:
        self._client = client
        self._vectors = vectors[:100]
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.rows = 0

    def __enter__(self) -> Writer:
        self._writing = self._pool.submit(self._write)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._pool.shutdown()
        self._writing.result()

    def _write(self) -> None:
        while not self._is_over.is_set():
            self._client.insert("rows", rows(self._vectors, first=2 * ROWS + self.rows))
            self.rows += len(self._vectors)


def _owners(cluster: Cluster) -> dict[int, list[str]]:
    """Of each data node the pchannels whose vchannels it owns."""
    owners: dict[int, list[str]] = {}
    for channel in cluster.status()["channels"]:
        if channel["vchannels"]:
            owners.setdefault(channel["data_node"], []).append(channel["pchannel"])
    return owners


def _segments(client: MilvusClient) -> list[object]:
    return list(client._get_connection().get_query_segment_info("rows"))


def _nodes(client: MilvusClient) -> set[int]:
    """Those that serve its segments."""
    return {node for segment in _segments(client) for node in segment.nodeIds}


def _sealed(client: MilvusClient) -> int:
    return sum(s.num_rows for s in _segments(client) if s.state == 3)


def _growing(client: MilvusClient) -> int:
    return sum(s.num_rows for s in _segments(client) if s.state != 3)
