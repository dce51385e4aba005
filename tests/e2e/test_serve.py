"""`elanus serve` from outside: starting, stopping, being refused, and going on without its pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import numpy as np
import psutil
import pytest
from harness import SPARK_DEADLINE_S, Server, until
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e]

NewServer = Callable[..., Server]
WITHOUT_SPARK = {"pipeline.enabled": "false"}

READY_S_MAX = 3.0
"""Within this an idle machine's server answers; tests allow for a busy one."""
SLACK = 5.0
STOP_S_MAX = 8.0
"""Less than the patience of a server whose pipeline does not end."""


def outcome(server: Server) -> tuple[int, str]:
    """Start a server that is expected to be refused: its exit code and what it said."""
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def create(client: MilvusClient, name: str = "rows", dim: int = 4) -> None:
    client.create_collection(name, dimension=dim, metric_type="L2", consistency_level="Strong")


def rows(first: int, count: int, dim: int = 4) -> list[dict[str, object]]:
    return [{"id": key, "vector": [float(key)] * dim} for key in range(first, first + count)]


def count(client: MilvusClient, name: str = "rows") -> int:
    answer = client.query(name, output_fields=["count(*)"], consistency_level="Strong")
    return int(answer[0]["count(*)"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_stops_it_cleanly(new_server: NewServer, number: int) -> None:
    server = new_server(WITHOUT_SPARK).start()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 10))
    assert server.stop(number) < STOP_S_MAX
    assert not (server.data_dir / "server.json").exists()
    assert count(server.start().client()) == 10
    assert "Traceback" not in server.output()


@pytest.mark.jvm
def test_it_stops_cleanly_and_soon_while_spark_comes_up_and_when_it_is_up(new_server: NewServer) -> None:
    server = new_server().start()
    assert server.pipeline_process().is_running()
    assert server.stop() < STOP_S_MAX
    server.start().wait_for_spark()
    assert server.stop() < STOP_S_MAX
    assert "Traceback" not in server.output()


def slowdown() -> float:
    """How many times longer than alone a computation takes on this machine at the moment."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    while time.process_time() - cpu_s < 0.2:
        sum(range(1000))
    return (time.perf_counter() - wall_s) / (time.process_time() - cpu_s)


@pytest.mark.jvm
def test_it_stops_within_a_second_when_nothing_is_under_way(new_server: NewServer) -> None:
    """The JVM and its workers included, with a collection loaded and clients that stay connected."""
    server = new_server().start().wait_for_spark()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 100))
    client.flush("rows")
    assert count(client) == 100
    until(lambda: all(job["ended"] for job in server.status()["jobs"]), 60, "no job runs")
    family = psutil.Process(server.pid).children(recursive=True)
    assert any("java" in process.name() for process in family)
    before = slowdown()
    took_s = server.stop()
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)
    assert took_s < 1.0 * max(1.0, before, slowdown())
    assert not list((server.data_dir / "scratch").glob("spark/*"))
    assert "Traceback" not in server.output()
    assert "WARNING" not in server.output()
    assert count(server.start().client()) == 100


@pytest.mark.jvm
@pytest.mark.kills
def test_a_pipeline_that_comes_up_ends_with_its_killed_server(new_server: NewServer) -> None:
    server = new_server()
    for pause_s in (0.0, 1.0, 3.0, 5.0):
        server.start().pipeline_process()
        time.sleep(pause_s)  # into Spark's start, wherever that is by then
        server.kill()  # expects its end


def test_it_answers_soon_after_its_start(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK)
    began = time.monotonic()
    server.start()
    assert server.client().list_collections() == []
    assert time.monotonic() - began < READY_S_MAX * SLACK


def test_a_second_server_on_the_directory_is_refused(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK).start()
    code, said = outcome(Server(server.data_dir, WITHOUT_SPARK))
    assert code == 1
    assert f"{server.data_dir} is in use by another server (process {server.pid})" in said
    assert "Traceback" not in said
    create(server.client())


def test_another_format_version_is_refused(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK).start()
    server.stop()
    version = server.data_dir / "VERSION"
    version.write_text("999\n")
    code, said = outcome(server)
    assert code == 1
    assert "format version 999" in said
    assert "Traceback" not in said
    assert version.read_text() == "999\n"
    version.write_text("1\n")
    server.start()


def test_a_taken_port_is_named(new_server: NewServer) -> None:
    first = new_server(WITHOUT_SPARK, "first").start()
    port = first.address.rpartition(":")[2]
    code, said = outcome(new_server({**WITHOUT_SPARK, "proxy.port": port}, "second"))
    assert code == 1
    assert port in said
    assert "--port" in said
    assert "Traceback" not in said
    metrics_port = first.observe_url.rpartition(":")[2]
    code, said = outcome(new_server({**WITHOUT_SPARK, "metrics.port": metrics_port}, "third"))
    assert code == 1
    assert metrics_port in said
    assert "metrics.port" in said


def test_it_serves_without_its_pipeline(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK).start()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 500))
    client.create_partition("rows", "late")
    client.insert("rows", rows(500, 20), partition_name="late")
    client.delete("rows", ids=[3])
    assert count(client) == 519
    hits = client.search("rows", [[7.2] * 4], limit=2, consistency_level="Strong")[0]
    assert [hit["id"] for hit in hits] == [7, 8]
    pipeline = {"state": "Disabled", "pid": None, "restarts": 0, "spark": "", "cause": ""}
    assert server.status()["pipeline"] == pipeline
    # a flush is only ordered, so it cannot end: the client's patience ends it, and the server goes on
    with pytest.raises(MilvusException):
        client.flush("rows", timeout=1)
    assert count(server.restart().client()) == 519


@pytest.mark.jvm
def test_it_serves_while_its_pipeline_is_down_and_flushes_when_it_is_back(new_server: NewServer) -> None:
    an_hour = {"pipeline.restart_backoff_ms": 3_600_000, "pipeline.restart_backoff_max_ms": 3_600_000}
    server = new_server(an_hour).start().wait_for_spark()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 50))
    server.kill_pipeline()
    client.insert("rows", rows(50, 50))
    client.create_partition("rows", "late")
    assert count(client) == 100
    assert client.search("rows", [[60.0] * 4], limit=1, consistency_level="Strong")[0][0]["id"] == 60
    down = {"state": "Abnormal", "pid": None, "restarts": 1, "spark": ""}
    until(
        lambda: server.status()["pipeline"].items() >= down.items(),
        SPARK_DEADLINE_S,
        "Spark's end is noticed",
    )
    assert server.status()["pipeline"]["cause"]
    client = server.restart().client()
    client.flush("rows")
    (segment,) = client.list_persistent_segments("rows")
    assert (segment.num_rows, segment.state_name) == (100, "Flushed")


@pytest.mark.jvm
def test_a_killed_pipeline_comes_back(new_server: NewServer) -> None:
    server = new_server().start()
    killed = server.kill_pipeline()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 100))
    client.flush("rows")
    assert server.pipeline_pid != killed
    assert server.status()["pipeline"]["restarts"] == 1


def test_writes_are_refused_before_memory_runs_out(new_server: NewServer) -> None:
    limits = {"backpressure.growing_soft_mb": 1, "backpressure.growing_hard_mb": 2}
    server = new_server({**WITHOUT_SPARK, **limits}).start()
    client = server.client()
    dim = 256
    create(client, dim=dim)
    acknowledged = 0
    with pytest.raises(MilvusException) as refusal:  # noqa: PT012 - which of the inserts is left open
        for first in range(0, 100_000, 200):
            client.insert("rows", rows(first, 200, dim))
            acknowledged += 200
    assert "memory quota exceeded" in refusal.value.message
    assert "backpressure.growing_hard_mb" in refusal.value.message
    assert refusal.value.code == 3
    assert acknowledged * dim * 4 > 1.7 * 2**20, "refused before what the limit leaves to one collection"
    assert count(client) == acknowledged
    client.delete("rows", filter="id < 100")
    assert count(client) == acknowledged - 100
    assert count(server.restart().client()) == acknowledged - 100


@pytest.mark.jvm
def test_partitions_that_fill_memory_together_are_flushed_and_writes_go_on(new_server: NewServer) -> None:
    """No segment is full or old, and more is written than the limit allows in memory."""
    hard_mb = 8
    limits = {"backpressure.growing_soft_mb": 2, "backpressure.growing_hard_mb": hard_mb}
    server = new_server(limits).start()
    server.wait_for_spark()
    client = server.client()
    dim, written = 256, 0
    create(client, dim=dim)
    partitions = [f"p{n}" for n in range(8)]
    for partition in partitions:
        client.create_partition("rows", partition)

    def insert(partition: str) -> bool:
        try:
            client.insert("rows", rows(written, 100, dim), partition_name=partition)
        except MilvusException as error:
            if "memory quota exceeded" not in error.message:
                raise
            return False
        return True

    while written * dim * 4 < 2 * hard_mb * 2**20:
        partition = partitions[written // 100 % len(partitions)]
        until(lambda: insert(partition), 20 * SLACK, "the write is admitted")  # noqa: B023
        written += 100
    assert count(client) == written


def test_writes_are_refused_before_the_disk_is_full(new_server: NewServer) -> None:
    disk = os.statvfs(os.path.dirname(os.path.abspath(__file__)))
    more_than_there_is_mb = disk.f_blocks * disk.f_frsize // 2**20 + 10_000_000
    server = new_server({**WITHOUT_SPARK, "backpressure.disk_reserve_mb": more_than_there_is_mb}).start()
    client = server.client()
    create(client)
    with pytest.raises(MilvusException) as refusal:
        client.insert("rows", rows(0, 1))
    assert "disk quota exceeded" in refusal.value.message
    assert count(client) == 0


def test_a_restarted_server_is_searchable_again(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK).start()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 1000))
    began = time.monotonic()
    client = server.restart().client()
    assert until(lambda: _found(client), 10 * SLACK, "the rows are found again") == 1000
    assert time.monotonic() - began < 10 * SLACK


def _found(client: MilvusClient) -> int:
    try:
        return count(client)
    except MilvusException as error:
        if "loaded" not in error.message:
            raise
        return 0


def test_a_client_lives_on_across_a_kill(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK).start()
    client = server.client()
    create(client)
    client.insert("rows", rows(0, 10))
    server.settings["proxy.port"] = server.address.rpartition(":")[2]
    server.kill()
    server.start()
    until(lambda: _found(client) == 10, 10 * SLACK, "the same client finds the rows")
    client.insert("rows", rows(10, 10))
    assert count(client) == 20


def test_nothing_is_announced_before_it_answers(new_server: NewServer) -> None:
    server = new_server(WITHOUT_SPARK).start()
    schema = MilvusClient.create_schema()
    schema.add_field("k", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    server.client().create_collection("at_once", schema=schema)
    server.kill()
    again = server.start().client()
    assert again.list_collections() == ["at_once"]
    again.insert("at_once", [{"k": 1, "v": np.zeros(2, np.float32)}])
