"""How late the event loop of a server is under requests as large as clients send them, and with much data.

First the requests are large, then the server is: many segments, and many loaded collections
(`benchmarks.heartbeat_states`). The online process has all coordinators, the proxy and the query node on one
loop, so it has the longest delays. It measures them itself (`elanus.server.loop_lag`); this reads its metrics
after each step. Nothing else should compete for the processors: a process that gets none is late too.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from pymilvus import Collection, CollectionSchema, DataType, FieldSchema, connections, utility

from benchmarks.heartbeat_states import measure_states
from benchmarks.processes import ServerProcess
from elanus.server.announce import Announcement, find

SHAPES = ((128, 110_000), (8, 900_000))
"""Dimension and rows of an insert of about 60 MB and of about 40 MB; the second has many small rows."""
INSERTS = 2
DELETED = 100_000
SEARCHES = 400
SEARCHERS = 4
LATE_S = 0.1
START_LIMIT_S = 120.0
STOP_GRACE_S = 30.0
_POLL_S = 0.05
_INDEX = {"index_type": "HNSW", "metric_type": "L2", "params": {"M": 8, "efConstruction": 40}}


class Lag(msgspec.Struct, frozen=True):
    """Delays of the loop: the longest in seconds, and how many of all were longer than `LATE_S`."""

    longest_s: float
    late: int
    beats: int


def measure(say: Callable[[str], None]) -> None:
    """``say`` is called with a line for each step."""
    # pymilvus would replace this interface, but its other one takes rows one by one.
    warnings.filterwarnings("ignore", message=".*ORM-style PyMilvus API")
    with tempfile.TemporaryDirectory(prefix="elanus-heartbeat-") as name:
        directory = Path(name)
        command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(directory / "data")]
        command += ["--port", "0", "--set", "metrics.port=0"]
        server = ServerProcess(command, directory / "server.log", _role)
        try:
            found = announced(server, directory / "data")
            connections.connect(uri=f"http://{found.address}")
            for dim, rows in SHAPES:
                _measure_shape(dim, rows, found.observe_url, say)
        finally:
            server.stop(STOP_GRACE_S)
    measure_states(lambda what, url: say(_line(what, Lag(0.0, 0, 0), read(url))))


def _measure_shape(dim: int, rows: int, url: str, say: Callable[[str], None]) -> None:
    chance = np.random.default_rng(1)
    fields = [
        FieldSchema("id", DataType.INT64, is_primary=True),
        FieldSchema("vector", DataType.FLOAT_VECTOR, dim=dim),
    ]
    collection = Collection(f"heartbeat_{dim}", CollectionSchema(fields))
    collection.create_index("vector", _INDEX)
    collection.load()
    keys = chance.permutation(INSERTS * rows)
    size_mb = rows * (dim * 4 + 8) / 1e6

    @contextmanager
    def step(what: str) -> Iterator[None]:
        before = read(url)
        yield
        say(_line(what, before, read(url)))

    for number in range(INSERTS):
        part = keys[number * rows : (number + 1) * rows]
        vectors = chance.random((rows, dim), dtype=np.float32)
        with step(f"insert of {rows} rows of dimension {dim}, {size_mb:.0f} MB"):
            collection.insert([part.tolist(), vectors])
            _count(collection)
    with step(f"delete of {DELETED} random keys in growing segments"):
        collection.delete(f"id in {chance.choice(keys, DELETED, replace=False).tolist()}")
        _count(collection)
    with step("flush, index builds and handoff"):
        collection.flush()
        _until(lambda: _sealed(collection), START_LIMIT_S)
    with step(f"delete of {DELETED} random keys in sealed segments"):
        collection.delete(f"id in {chance.choice(keys, DELETED, replace=False).tolist()}")
        _count(collection)
    with step(f"{SEARCHES} searches of {SEARCHERS} clients"), ThreadPoolExecutor(SEARCHERS) as threads:
        queries = chance.random((SEARCHES, 1, dim), dtype=np.float32)
        options: dict[str, Any] = {"anns_field": "vector", "param": {"params": {"ef": 64}}, "limit": 10}
        list(threads.map(lambda query: collection.search(query, **options), queries))
    with step("release and load"):
        collection.release()
        collection.load()
    collection.drop()


def _count(collection: Collection) -> int:
    found = collection.query("", output_fields=["count(*)"], consistency_level="Strong")
    return int(found[0]["count(*)"])


def _sealed(collection: Collection) -> bool:
    segments = utility.get_query_segment_info(collection.name)
    return bool(segments) and all(segment.state == 3 for segment in segments)


def _until(done: Callable[[], bool], limit_s: float) -> None:
    """Returns when the condition holds, or when the time is over: then there is less to measure."""
    deadline_s = time.monotonic() + limit_s
    while not done() and time.monotonic() < deadline_s:
        time.sleep(1)


def _line(what: str, before: Lag, after: Lag) -> str:
    late, beats = after.late - before.late, after.beats - before.beats
    longest = f"longest {after.longest_s * 1000:.0f} ms"
    return f"{what}: {longest}, {late} of {beats} beats later than {LATE_S * 1000:.0f} ms"


def read(url: str) -> Lag:
    """Read the delays since the server's start; the longest one of its last minutes."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()

    def value(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert found is not None, f"the metrics lack {name}"
        return float(found[1])

    beats = value("elanus_loop_lag_seconds_count")
    in_time = value(f'elanus_loop_lag_seconds_bucket{{le="{LATE_S}"}}')
    return Lag(value("elanus_loop_lag_max_seconds"), int(beats - in_time), int(beats))


def announced(server: ServerProcess, data_dir: Path) -> Announcement:
    """Raises `TimeoutError` when the server does not answer in time, and `RuntimeError` when it ends."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        server.check_running()
        if (announced := find(data_dir)) is not None:
            return announced
        time.sleep(_POLL_S)
    raise TimeoutError(f"the server does not answer after {START_LIMIT_S:g} s")


def _role(process: psutil.Process) -> str:
    return process.name()
