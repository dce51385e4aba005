"""The pipeline on a real Spark cluster: a master and two workers, killed while jobs run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Server, until
from pymilvus import BulkInsertState, DataType, MilvusClient, connections, utility
from spark_cluster import SparkCluster

from elanus.api.gc import GcStatus
from elanus.cli import remote
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.storage.paths import insert_log_path

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

DEADLINE_S = 240.0
DIM = 64
ROWS = 20_000
BATCH_ROWS = 5_000
IMPORTED_FILES = 4
ORPHANS = 3_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark") / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def server(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        "pipeline.spark_master": cluster.master,
        "pipeline.driver_host": "127.0.0.1",
        "pipeline.executor_memory_mb": 512,
        "pipeline.spark_ui": True,
        "datacoord.retention_s": 0,
        "compaction.enabled": False,
        "gc.drop_tolerance_s": 0,
        "gc.missing_tolerance_s": 0,
        "gc.interval_s": 3600,
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


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param("kill_python_workers", marks=pytest.mark.long),
        pytest.param("kill_executors", marks=pytest.mark.long),
        "kill_worker",
    ],
)
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


@pytest.mark.long
def test_a_compaction_survives_its_executor(
    server: Server, client: MilvusClient, cluster: SparkCluster
) -> None:
    filled(client, "compacted")
    client.flush("compacted", timeout=DEADLINE_S)
    client.delete("compacted", filter=f"key < {ROWS // 2}")
    compaction = client.compact("compacted", timeout=DEADLINE_S)
    job_id = while_runs(server, "compaction", cluster.kill_executors)
    until(
        lambda: client.get_compaction_state(compaction) == "Completed",
        DEADLINE_S,
        "the compaction is over",
        poll_s=0.2,
    )
    assert segment_rows(client, "compacted") == ROWS // 2
    assert count(client, "compacted") == ROWS // 2
    job = next(job for job in jobs(server, "compaction") if job["job_id"] == job_id)
    assert job["state"] == "finished"
    client.drop_collection("compacted")


def test_an_import_survives_a_worker(server: Server, client: MilvusClient, cluster: SparkCluster) -> None:
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    client.create_collection("imported", schema=schema, num_shards=2)
    rows = pa.array(list(np.random.default_rng(6).random((ROWS, DIM), dtype=np.float32)))
    for number in range(IMPORTED_FILES):
        keys = np.arange(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"key": keys, "v": rows}), server.data_dir / "import" / f"{number}.parquet")
    files = [f"{number}.parquet" for number in range(IMPORTED_FILES)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client will drop these verbs one day
        connections.connect(uri=server.uri, alias="importer")
        task = utility.do_bulk_insert("imported", files, using="importer")
        while_runs(server, "import", lambda: cluster.kill_worker(1))

        def ended() -> BulkInsertState | None:
            state = utility.get_bulk_insert_state(task, using="importer")
            over = state.state in (BulkInsertState.ImportCompleted, BulkInsertState.ImportFailed)
            return state if over else None

        state = until(ended, DEADLINE_S, "the import ends", poll_s=0.2)
    cluster.replace_worker(1)
    assert state is not None
    assert (state.state, state.row_count) == (BulkInsertState.ImportCompleted, IMPORTED_FILES * ROWS), state
    assert segment_rows(client, "imported") == IMPORTED_FILES * ROWS
    client.drop_collection("imported")


@pytest.mark.long
def test_a_garbage_collection_survives_its_python_workers(
    server: Server, client: MilvusClient, cluster: SparkCluster
) -> None:
    filled(client, "kept")
    client.flush("kept", timeout=DEADLINE_S)
    orphans = [
        server.data_dir / "files" / insert_log_path(CollectionID(7), PartitionID(8), SegmentID(9), f"a1-{n}")
        for n in range(ORPHANS)
    ]
    orphans[0].parent.mkdir(parents=True)
    for orphan in orphans:
        orphan.touch()
    rounds = gc_status(server).rounds
    remote.collect_garbage(server.observe_url, dry=False)
    while_runs(server, "garbage collection", cluster.kill_python_workers)
    until(lambda: gc_status(server).rounds > rounds, DEADLINE_S, "the round ends", poll_s=0.1)
    report = gc_status(server).last
    assert report is not None
    assert report.error == ""
    assert [orphan for orphan in orphans if orphan.exists()] == []
    assert segment_rows(client, "kept") == ROWS
    client.release_collection("kept")
    client.load_collection("kept")
    assert count(client, "kept") == ROWS, "read again from what is left"
    client.drop_collection("kept")


def gc_status(server: Server) -> GcStatus:
    return msgspec.json.decode(remote.get(f"{server.observe_url}/gc"), type=GcStatus)


def test_the_ledger_links_to_sparks_own_page(server: Server) -> None:
    finished = jobs(server, "index build")
    assert any(job["ui_url"].startswith("http://127.0.0.1:") for job in finished)
