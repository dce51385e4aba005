"""VectorDBBench with a data set of our own: load, optimize, recall and serial and concurrent searches.

It also creates a scalar index, STL_SORT on the key.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

DIRECTORY = Path(os.environ.setdefault("RESULTS_LOCAL_DIR", tempfile.mkdtemp()))
# read when the benchmark is imported: it writes nothing into its own package or the current directory
os.environ["LOG_FILE"] = str(DIRECTORY / "bench.log")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from checks import check, uri  # noqa: E402
from pymilvus import MilvusClient  # noqa: E402
from vectordb_bench.cli.vectordbbench import cli  # noqa: E402

NAME = "bench_rows"
ROWS, DIMENSION, QUERIES, K = 2000, 32, 50, 10


def write_data(directory: Path) -> None:
    """`train`, `test` and the true `neighbors` of the latter, by L2."""
    generator = np.random.default_rng(13)
    train = generator.random((ROWS, DIMENSION), dtype=np.float32)
    queries = generator.random((QUERIES, DIMENSION), dtype=np.float32)
    distances = ((queries[:, None, :] - train[None, :, :]) ** 2).sum(axis=2)
    neighbors = np.argsort(distances, axis=1)[:, :K]
    numbers = pa.array(range(QUERIES), pa.int64())
    pq.write_table(
        pa.table({"id": pa.array(range(ROWS), pa.int64()), "emb": list(train)}), directory / "train.parquet"
    )
    pq.write_table(pa.table({"id": numbers, "emb": list(queries)}), directory / "test.parquet")
    pq.write_table(
        pa.table({"id": numbers, "neighbors_id": list(neighbors)}), directory / "neighbors.parquet"
    )


def run_benchmark() -> dict[str, Any]:
    """The metrics of its only case."""
    write_data(DIRECTORY)
    options = {
        "uri": uri(),
        "collection-name": NAME,
        "m": 16,
        "ef-construction": 128,
        "ef-search": 128,
        "k": K,
        "case-type": "PerformanceCustomDataset",
        "custom-case-name": "small",
        "custom-dataset-name": "small",
        "custom-dataset-dir": str(DIRECTORY),
        "custom-dataset-size": ROWS,
        "custom-dataset-dim": DIMENSION,
        "custom-dataset-metric-type": "L2",
        "custom-dataset-file-count": 1,
        "num-concurrency": "2",
        "concurrency-duration": 2,
        "load-concurrency": 1,
        "insert-batch-size": 500,
        "task-label": "small",
    }
    cli(["milvushnsw", *(f"--{name}={value}" for name, value in options.items())], standalone_mode=False)
    (written,) = DIRECTORY.rglob("result_*.json")
    (result,) = json.loads(written.read_text(encoding="utf-8"))["results"]
    assert result["label"] == ":)", result
    metrics: dict[str, Any] = result["metrics"]
    return metrics


def main() -> None:
    metrics: dict[str, Any] = {}

    @check(f"a custom data set of {ROWS:,} rows: load, flush, compact, index")
    def _() -> None:
        metrics.update(run_benchmark())
        assert metrics["load_duration"] > 0

    @check("serial search: recall over 0.95, latency")
    def _() -> None:
        assert metrics["recall"] > 0.95
        assert metrics["serial_latency_p99"] > 0

    @check("concurrent search: queries per second")
    def _() -> None:
        assert metrics["conc_num_list"] == [2]
        assert metrics["qps"] > 0

    MilvusClient(uri()).drop_collection(NAME)


if __name__ == "__main__":
    main()
