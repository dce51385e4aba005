"""Half-precision and 8-bit vectors next to float32: memory, searches, recall."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pymilvus import DataType, MilvusClient

from benchmarks.dataset import Dataset, Floats, drawn
from benchmarks.metrics import recall
from benchmarks.surface.figures import Line, line
from benchmarks.surface.server import BATCH_ROWS, Served, in_turn, served

DIM, TOP_K, EF, QUERIES, LINKS = 784, 10, 64, 500, 16
KINDS = {
    "float32": (DataType.FLOAT_VECTOR, ""),
    "float16": (DataType.FLOAT16_VECTOR, "≤ 0.55"),
    "int8": (DataType.INT8_VECTOR, "≤ 0.3"),
}
_EFFORT = {"params": {"ef": EF}}
FIRST, FIRST_ROWS = "first", 10_000
SETTLED_S = 3.0
"""After a load, the buffers of its files are returned within this time."""


def about(rows: int) -> str:
    return (
        f"{rows:,} × {DIM} vectors, as float32, as float16, and scaled to int8; HNSW (M 16, "
        f"efConstruction 200), top {TOP_K} at ef {EF}. Memory is what loading adds to an online process in "
        f"which {FIRST_ROWS:,} such rows are loaded already: the first load of a process also brings in "
        f"parts of its libraries. A row of the index has its vector, {LINKS * 8 + 17} bytes of links, and a "
        f"code of {DIM // 8 + 8} bytes that stays in the file until a filter needs it: none does here. int8 "
        "cannot take less of float32 than the computed share. Recall is against an exact search of the same "
        "numbers."
    )


def measure(rows: int, rounds: int, home: Path | None, say: Callable[[str], None]) -> list[Line]:
    """One collection of each kind on one server; searches take turns."""
    data = drawn(rows, DIM, QUERIES)
    memory_mb, recalls, calls = {}, {}, []
    with served(home) as server:
        few = Dataset(FIRST, data.train[:FIRST_ROWS], data.test, data.buckets[:FIRST_ROWS])
        _fill(server, few, DataType.FLOAT_VECTOR, say)
        for kind, (data_type, _) in KINDS.items():
            of_kind = Dataset(kind, _as(kind, data.train), _as(kind, data.test), data.buckets)
            memory_mb[kind] = _load(server, of_kind, data_type, say)
            recalls[kind] = _recall(server, of_kind)
        for kind in KINDS:
            server.client.load_collection(kind)
            calls.append(_search(server, kind, _as(kind, data.test)))
        say("searching")
        times_ms = in_turn(calls, 400, rounds)
    full_ms = times_ms[0]
    found = [
        line(
            "int8 ÷ float32: bytes of a row in the index, computed",
            [_row_bytes("int8") / _row_bytes("float32")],
        )
    ]
    for (kind, (_, wanted)), ms in zip(KINDS.items(), times_ms, strict=True):
        share = memory_mb[kind] / memory_mb["float32"]
        found += [line(f"{kind}: memory, MB", [memory_mb[kind]]), line(f"{kind}: recall@10", [recalls[kind]])]
        if wanted:
            speed = [full / own for full, own in zip(full_ms, ms, strict=True)]
            found += [
                line(f"{kind} ÷ float32: memory", [share], wanted),
                line(f"{kind} ÷ float32: searches per second", speed, "≥ 0.85"),
            ]
    return found


def _row_bytes(kind: str) -> int:
    """The bytes of one row: its vector and its links (``docs/index-types.md``)."""
    return DIM * np.dtype(kind).itemsize + 8 * LINKS + 17


def _as(kind: str, vectors: Floats) -> Any:
    return np.rint(vectors * 100).astype(np.int8) if kind == "int8" else vectors.astype(kind)


def _load(server: Served, data: Dataset, data_type: DataType, say: Callable[[str], None]) -> float:
    """Fill a collection; returns the megabytes that loading it adds to a server with little else. One that
    has held others has memory left that it would take again, unseen."""
    _fill(server, data, data_type, say)
    for name in server.client.list_collections():
        server.client.release_collection(name)
    server.stop()
    server.start()
    server.client.load_collection(FIRST)
    server.client.search(FIRST, [np.zeros(DIM, np.float32)], "", TOP_K, search_params=_EFFORT)
    time.sleep(SETTLED_S)
    before_mb = server.rss_mb
    server.client.load_collection(data.name)
    _search(server, data.name, data.test)(0)
    time.sleep(SETTLED_S)
    return server.rss_mb - before_mb


def _fill(server: Served, data: Dataset, data_type: DataType, say: Callable[[str], None]) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", data_type, dim=DIM)
    index = server.client.prepare_index_params()
    index.add_index("v", index_type="HNSW", metric_type="L2", params={"M": LINKS, "efConstruction": 200})
    server.fill(data.name, schema, index, _batches(data), say)


def _batches(data: Dataset) -> Iterator[pa.RecordBatch]:
    """Float16 goes as bytes, the form that imports take."""
    for first in range(0, len(data.train), BATCH_ROWS):
        part = data.train[first : first + BATCH_ROWS]
        if part.dtype == np.float16:
            values, width = pa.array(np.ascontiguousarray(part).view(np.uint8).ravel()), 2 * DIM
        else:
            values, width = pa.array(part.ravel()), DIM
        vectors = pa.FixedSizeListArray.from_arrays(values, width).cast(pa.list_(values.type))
        yield pa.RecordBatch.from_pydict({"id": pa.array(np.arange(first, first + len(part))), "v": vectors})


def _search(server: Served, name: str, queries: Floats) -> Callable[[int], Any]:
    client = server.client

    def search(number: int) -> Any:
        return client.search(name, [queries[number % QUERIES]], "", TOP_K, search_params=_EFFORT)

    return search


def _recall(server: Served, data: Dataset) -> float:
    exact = Dataset("", data.train.astype(np.float32), data.test.astype(np.float32), data.buckets)
    truth, search = exact.nearest(QUERIES, TOP_K), _search(server, data.name, data.test)
    found = [[hit["id"] for hit in search(number)[0]] for number in range(QUERIES)]
    return recall(found, truth)
