"""How long a flush takes as a client sees it: from the call until its rows are in Flushed segments.

One client, one server with its session warm, fsync on. The client asks for the segments' states every few
milliseconds. The call goes past pymilvus's own `flush`, which asks twice a second, and would measure that.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.client.prepare import Prepare

from benchmarks.freshness import serving

COLLECTION = "flushed"
INSERTS = 2
DEADLINE_S = 60.0
_POLL_S = 0.01


class FlushCalls(msgspec.Struct, frozen=True):
    """Seconds from each call to Flushed; every one has ``rows`` new rows to flush."""

    rows: int
    dim: int
    seconds: list[float]


def measure(rows: int, dim: int, turns: int) -> FlushCalls:
    """Flush so many rows so many times, after once unmeasured."""
    with (
        tempfile.TemporaryDirectory(prefix="elanus-flush-") as directory,
        serving(Path(directory) / "data", 1) as announced,
    ):
        client = MilvusClient(f"http://{announced.address}")
        try:
            _create(client, dim)
            seconds = [_turn(client, turn, rows, dim) for turn in range(turns + 1)]
        finally:
            client.close()
    return FlushCalls(rows, dim, seconds[1:])


def _create(client: MilvusClient, dim: int) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=dim)
    client.create_collection(COLLECTION, schema=schema)


def _turn(client: MilvusClient, turn: int, rows: int, dim: int) -> float:
    vectors = np.random.default_rng(turn).random((rows, dim), dtype=np.float32)
    for part in np.array_split(np.arange(rows), INSERTS):
        client.insert(COLLECTION, [{"key": turn * rows + int(row), "v": vectors[row]} for row in part])
    began_s = time.perf_counter()
    client._get_connection()._stub.Flush(Prepare.flush_param([COLLECTION]))
    while _flushed_rows(client) < (turn + 1) * rows:
        if time.perf_counter() - began_s > DEADLINE_S:
            raise TimeoutError(f"{rows} rows were not Flushed within {DEADLINE_S:g} s")
        time.sleep(_POLL_S)
    return round(time.perf_counter() - began_s, 4)


def _flushed_rows(client: MilvusClient) -> int:
    segments = client.list_persistent_segments(COLLECTION)
    return sum(segment.num_rows for segment in segments if segment.state_name == "Flushed")
