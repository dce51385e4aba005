"""Searches as Spark jobs: the kNN join and near duplicates, next to faiss alone and to Spark's own join.

The rows have the structure of embeddings (`benchmarks.dataset.drawn`) and are in HNSW indexes. faiss alone
searches the same graphs, read from the same files, with all cores in one process: its time has neither the
reading of files nor the moving of queries and hits, which the join's time has. Spark's `nearestByJoin` gets
the rows from memory and few queries, because it compares each query with every row.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pymilvus import DataType, MilvusClient
from pymilvus.client.prepare import Prepare
from pymilvus.grpc_gen import milvus_pb2
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.dataset import drawn
from benchmarks.freshness import serving
from benchmarks.pipeline import importing
from benchmarks.pipeline.task_memory import USERS, TaskMemory
from benchmarks.pipeline.visible_import import failure_of, task_of, when
from elanus.spark import knn_join, near_duplicates, register
from elanus.spark.searches import SearchJob, opened_bytes, pinned_job
from elanus.storage.objects import open_store

COLLECTION = "vectors"
K, EF = 10, 64
FEW = 20
"""Queries of Spark's own join."""
EXACT = 1000
"""Queries of the exact join: recall is measured with these."""
HNSW = {"M": 16, "efConstruction": 100}
COPIED = 100
"""One row in so many is there twice, with a little noise."""
BUFFERS_MB = 200.0
"""A task holds a row group, queries and hits next to its libraries and its segments."""
_NOISE = 1e-3
_RADIUS = 0.01

Floats = npt.NDArray[np.float32]


class JoinMemory(msgspec.Struct, frozen=True):
    """Megabytes (10⁶ bytes) of one task. ``segments_mb``: the memory that its segments are to take,
    ``most_mb``: what its worker had, both the most of any. ``empty_mb``: a worker that has opened none."""

    segments_mb: float
    empty_mb: float
    most_mb: float

    @property
    def budget_mb(self) -> float:
        return self.segments_mb + self.empty_mb + BUFFERS_MB


class Joins(msgspec.Struct, frozen=True):
    """Seconds of each turn. ``few``: the queries of Spark's own join; ``copies``: rows that are there twice,
    ``duplicates``: how many rows were found to be redundant."""

    rows: int
    dim: int
    queries: int
    join_s: list[float]
    faiss_s: list[float]
    recall: float
    exact: int
    exact_s: list[float]
    few: int
    few_join_s: list[float]
    spark_s: list[float]
    duplicates_s: list[float]
    copies: int
    duplicates: int
    memory: JoinMemory | None = None
    exact_memory: JoinMemory | None = None


def measure(rows: int, dim: int, queries: int, few: int, turns: int, report: Callable[[str], None]) -> Joins:
    """Take so many turns of each, after one that does not count."""
    data = drawn(rows, dim, queries)
    copies = rows // COPIED
    vectors = data.train.copy()
    random = np.random.default_rng(1)
    vectors[-copies:] = vectors[:copies] + _NOISE * random.standard_normal((copies, dim), dtype=np.float32)
    with (
        tempfile.TemporaryDirectory(prefix="elanus-joins-") as directory,
        serving(Path(directory) / "data", 1) as announced,
        _spark() as spark,
    ):
        report("rows and indexes of joins")
        uri = f"http://{announced.address}"
        _fill(uri, Path(directory) / "data", vectors)
        asked = spark.createDataFrame(_table(data.test)).repartition(os.cpu_count() or 1).cache()
        asked.count()
        exact_asked = (
            spark.createDataFrame(_table(data.test[:EXACT])).repartition(os.cpu_count() or 1).cache()
        )
        few_asked = spark.createDataFrame(_table(data.test[:few])).cache()
        stored = spark.createDataFrame(_table(vectors)).cache()
        stored.count()

        def join(exact: bool, frame: DataFrame) -> pa.Table:
            params = {} if exact else {"ef": EF}
            return knn_join(
                spark, COLLECTION, frame, field="vector", k=K, params=params, exact=exact, uri=uri
            ).toArrow()

        empty_mb = _empty_mb(spark)
        report("the join and faiss alone")
        seen, seen_exact = TaskMemory(daemon=USERS), TaskMemory(daemon=USERS)
        with seen.watched():
            join_s, hits = _turns(turns, lambda: join(False, asked))
        faiss_s, _ = _turns(turns, _faiss(uri, data.test))
        report("the exact join")
        with seen_exact.watched():
            exact_s, truth = _turns(1, lambda: join(True, exact_asked))
        memory = JoinMemory(_segments_mb(uri, exact=False), empty_mb, seen.most_mb)
        exact_memory = JoinMemory(_segments_mb(uri, exact=True), empty_mb, seen_exact.most_mb)
        found, wanted = _pairs(hits), _pairs(truth)
        report("Spark's own join")
        few_s, _ = _turns(turns, lambda: join(False, few_asked))
        spark_s, _ = _turns(1, lambda: _nearest_by(few_asked, stored).toArrow())
        report("near duplicates")
        duplicates_s, same = _turns(
            1,
            lambda: near_duplicates(
                spark, COLLECTION, field="vector", radius=_RADIUS, params={"ef": EF}, uri=uri
            ).toArrow(),
        )
    return Joins(
        rows=rows,
        dim=dim,
        queries=queries,
        join_s=join_s,
        faiss_s=faiss_s,
        recall=round(len(found & wanted) / len(wanted), 4),
        exact=min(EXACT, queries),
        exact_s=exact_s,
        few=few,
        few_join_s=few_s,
        spark_s=spark_s,
        duplicates_s=duplicates_s,
        copies=copies,
        duplicates=same.num_rows,
        memory=memory,
        exact_memory=exact_memory,
    )


def _segments_mb(uri: str, *, exact: bool) -> float:
    """Return the memory that the largest set of segments of a task is to take."""
    job = _job(uri, os.cpu_count() or 1, exact=exact)
    return max(sum(opened_bytes(job.plan, manifest) for manifest in some) for some in job.sets) / 1e6


def _empty_mb(spark: SparkSession) -> float:
    """Return the resident memory of a worker that has loaded what a search needs, and no segment."""

    def resident(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psutil

        import elanus.spark.knn  # noqa: F401 - and what that imports

        for _ in batches:
            yield pa.record_batch({"mb": [psutil.Process().memory_info().rss / 1e6]})

    tasks = os.cpu_count() or 1
    found = spark.range(tasks, numPartitions=tasks).mapInArrow(resident, "mb double").collect()
    return max(float(row.mb) for row in found)


@contextmanager
def _spark() -> Iterator[SparkSession]:
    cores = str(os.cpu_count() or 1)
    settings: Mapping[str, str] = {
        "spark.driver.memory": "4g",
        "spark.driver.maxResultSize": "2g",
        "spark.sql.shuffle.partitions": cores,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable  # no setting of the session does it
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


def _fill(uri: str, data_dir: Path, vectors: Floats) -> None:
    """Import the rows and wait until their index is built."""
    client = MilvusClient(uri)
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
    index = client.prepare_index_params()
    index.add_index("vector", index_type="HNSW", metric_type="L2", params=HNSW)
    client.create_collection(COLLECTION, schema=schema, index_params=index)
    file = data_dir / "import" / importing.FILE
    file.parent.mkdir(exist_ok=True)
    pq.write_table(_table(vectors), file)
    stub = client._get_connection()._stub
    task = task_of(stub.Import(Prepare.do_bulk_insert(COLLECTION, "", [importing.FILE])))

    def failure() -> str:
        return failure_of(stub.GetImportState(milvus_pb2.GetImportStateRequest(task=task)))

    def indexed() -> bool:
        built = client.describe_index(COLLECTION, "vector")
        return int(built["indexed_rows"]) >= len(vectors) and not int(built["pending_index_rows"])

    try:
        when(indexed, failure, time.perf_counter())
    finally:
        client.close()


def _table(vectors: Floats) -> pa.Table:
    ids = pa.array(range(len(vectors)), pa.int64())
    values = pa.array(np.ascontiguousarray(vectors).ravel())
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])})


def _turns(turns: int, work: Callable[[], Any]) -> tuple[list[float], Any]:
    """Seconds of each turn, and what the last returned. Several come after one that does not count."""
    seconds, found = [], None
    for _ in range(turns + (turns > 1)):
        began_s = time.perf_counter()
        found = work()
        seconds.append(round(time.perf_counter() - began_s, 3))
    return seconds[turns > 1 :], found


def _job(uri: str, parallelism: int, *, exact: bool = False) -> SearchJob:
    return pinned_job(
        COLLECTION,
        field="vector",
        k=K,
        filter="",
        params={} if exact else {"ef": EF},
        as_of=None,
        exact=exact,
        parallelism=parallelism,
        options={"uri": uri},
    )


def _faiss(uri: str, queries: Floats) -> Callable[[], None]:
    """Return the searches of the same graphs by faiss alone, as it reads them itself, on all cores."""
    job = _job(uri, 1)
    store = open_store(job.plan.store_url)
    manifests = itertools.chain.from_iterable(job.sets)
    files = [job.plan.indexes[manifest.segment_id] for manifest in manifests]
    with tempfile.TemporaryDirectory() as scratch:
        graphs = [faiss.read_index(str(store.local_path(file.path, Path(scratch)))) for file in files]
    effort = faiss.SearchParametersHNSW(efSearch=EF)

    def search() -> None:
        faiss.omp_set_num_threads(os.cpu_count() or 1)
        found = [graph.search(queries, K, params=effort) for graph in graphs]
        distances = np.concatenate([distances for distances, _ in found], axis=1)
        np.argpartition(distances, K - 1, axis=1)

    return search


def _nearest_by(asked: DataFrame, stored: DataFrame) -> DataFrame:
    """The exact join that Spark has, by squared distances."""
    rows = stored.select(sf.col("id").alias("key"), sf.col("vector").alias("stored"))
    parts = sf.zip_with(asked.vector, rows.stored, lambda one, other: (one - other) * (one - other))
    distance = sf.aggregate(parts, sf.lit(0.0), lambda total, part: total + part)
    return asked.nearestByJoin(rows, distance, K, "exact", "distance").select("id", "key")


def _pairs(hits: pa.Table) -> set[tuple[int, int]]:
    return set(zip(hits["query_id"].to_pylist(), hits["key"].to_pylist(), strict=True))
