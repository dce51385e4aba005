"""DISKANN under a memory limit that its vectors do not fit into."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pymilvus import DataType, MilvusClient

from benchmarks.dataset import BUCKETS, Dataset, drawn
from benchmarks.metrics import recall
from benchmarks.surface.figures import Line, line
from benchmarks.surface.server import BATCH_ROWS, in_turn, served

NAME, DIM, TOP_K, QUERIES, SEARCH_LIST = "on_disk", 768, 10, 200, 100
_EFFORT = {"params": {"search_list": SEARCH_LIST}}
_FILTER_PERCENT = 10
#: Megabytes (2²⁰ bytes) of memory for each million rows, page cache included.
LIMIT_MB_PER_MILLION = 1024
_SMALLEST_LIMIT_MB = 320
_GROUPS = Path("/sys/fs/cgroup")


def about(rows: int) -> str:
    return (
        f"{rows:,} × {DIM} float32 ({rows * DIM * 4 / 1e6:,.0f} MB), DISKANN, top {TOP_K} at search_list "
        f"{SEARCH_LIST}. The server that searches is in a control group with "
        f"{limit_mb(rows):,} MiB of memory, page cache included."
    )


def limit_mb(rows: int) -> int:
    return max(_SMALLEST_LIMIT_MB, rows * LIMIT_MB_PER_MILLION // 1_000_000)


def measure(rows: int, rounds: int, home: Path | None, say: Callable[[str], None]) -> list[Line]:
    """Build without a limit; stop; start within the limit, load and search.

    Raises `OSError` where control groups cannot be made: that takes root.
    """
    data = drawn(rows, DIM, QUERIES)
    with memory_limited(limit_mb(rows)) as enter, served(home) as server:
        schema = MilvusClient.create_schema()
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("bucket", DataType.INT64)
        schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
        index = server.client.prepare_index_params()
        index.add_index("v", index_type="DISKANN", metric_type="L2")
        took_s = server.fill(NAME, schema, index, _batches(data), say)
        server.stop()
        say(f"starting again with {limit_mb(rows):,} MiB")
        server.start(before=enter)
        client = server.client
        client.load_collection(NAME)

        def search(number: int, expr: str = "") -> list[int]:
            query = data.test[number % QUERIES]
            hits = client.search(NAME, [query], expr, TOP_K, search_params=_EFFORT)[0]
            return [hit["id"] for hit in hits]

        below = BUCKETS * _FILTER_PERCENT // 100
        filtered = f"bucket < {below}"
        found = [search(number) for number in range(QUERIES)]
        found_filtered = [search(number, filtered) for number in range(QUERIES)]
        all_ms, filtered_ms = in_turn([search, lambda number: search(number, filtered)], QUERIES, rounds)
        rss_mb = server.rss_mb
    recall_filtered = recall(found_filtered, data.nearest(QUERIES, TOP_K, below))
    raw_mb = rows * DIM * 4 / 1e6
    return [
        *(line(f"{name}, s", [value]) for name, value in took_s.items()),
        line("recall@10", [recall(found, data.nearest(QUERIES, TOP_K))], "≥ 0.95"),
        line("p50, ms", all_ms, "≤ 10"),
        line("filter 10 %: recall@10", [recall_filtered], "≥ 0.95"),
        line("filter 10 %: p50, ms", filtered_ms),
        line("resident memory ÷ vectors", [rss_mb / raw_mb]),
    ]


def _batches(data: Dataset) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(data.train), BATCH_ROWS):
        part = data.train[first : first + BATCH_ROWS]
        columns = {
            "id": pa.array(np.arange(first, first + len(part))),
            "bucket": pa.array(data.buckets[first : first + len(part)]),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), DIM),
        }
        yield pa.RecordBatch.from_pydict(columns)


@contextmanager
def memory_limited(limit_mb: int) -> Iterator[str]:
    """A control group with so much memory. Yields the shell command by which a process enters it."""
    old = _GROUPS / "memory"
    group = (old if old.exists() else _GROUPS) / f"elanus-bench-{os.getpid()}"
    group.mkdir()
    try:
        limit = group / ("memory.limit_in_bytes" if old.exists() else "memory.max")
        limit.write_text(str(limit_mb << 20))
        yield f"echo $$ > {group}/cgroup.procs"
    finally:
        group.rmdir()
