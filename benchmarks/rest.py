"""REST next to gRPC on one server: the median time of a search, and the server's CPU for JSON rows and for a
tab of the console.

Both clients keep one connection. They take turns, so a busy machine slows both; compare the figures of one
run only. The server runs without Spark.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from pymilvus import MilvusClient

from benchmarks.heartbeat import announced
from benchmarks.processes import ServerProcess

DIM = 768
ROWS = 1000
INSERTS = 5
SEARCHES = 500
LIMIT = 10
WATCHED_S = 20.0
TAB_INTERVAL_S = 3.0
"""How often the pages of the console that ask most do so."""
STOP_GRACE_S = 30.0
_COLLECTION = "rest"
_MS = 1000


class Rest:
    """A client with one connection."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)

    def send(self, path: str, body: bytes) -> Any:
        headers = {"content-type": "application/json"}
        self._connection.request("POST", f"/v2/vectordb/{path}", body, headers)
        answer = json.loads(self._connection.getresponse().read())
        if answer["code"]:
            raise RuntimeError(answer["message"])
        return answer["data"]

    def get(self, path: str) -> Any:
        self._connection.request("GET", path)
        return json.loads(self._connection.getresponse().read())

    def post(self, path: str, **body: Any) -> Any:
        return self.send(path, json.dumps(body).encode())


class Figures(NamedTuple):
    """Milliseconds: the server's processor time for `ROWS` rows as JSON, the median times of a search, and
    the server's processor time per second for an open tab of the console."""

    json_cpu_ms: float
    search_ms: float
    grpc_search_ms: float
    tab_ms: float


def measure(say: Callable[[str], None]) -> Figures:
    """``say`` is called with a line for each figure."""
    with tempfile.TemporaryDirectory(prefix="elanus-rest-") as name:
        directory = Path(name)
        command = [
            sys.executable,
            "-m",
            "elanus",
            "serve",
            "--data-dir",
            str(directory / "data"),
            "--port",
            "0",
        ]
        for setting in ("metrics.port=0", "http.port=0", "pipeline.enabled=false"):
            command += ["--set", setting]
        server = ServerProcess(command, directory / "server.log", psutil.Process.name)
        try:
            found = announced(server, directory / "data")
            rest, grpc = Rest(found.http_url), MilvusClient(f"http://{found.address}")
            rest.post("collections/create", collectionName=_COLLECTION, dimension=DIM)
            process = psutil.Process(found.pid)
            json_cpu_ms = _insert(rest, grpc, process, say)
            search_ms, grpc_search_ms = _search(rest, grpc, say)
            return Figures(json_cpu_ms, search_ms, grpc_search_ms, _console(rest, process, say))
        finally:
            server.stop(STOP_GRACE_S)


def _insert(rest: Rest, grpc: MilvusClient, server: psutil.Process, say: Callable[[str], None]) -> float:
    vectors = np.random.default_rng(1).random((INSERTS * ROWS, DIM), dtype=np.float32)
    by_rest, by_grpc = [], []
    for number in range(INSERTS):
        part = vectors[number * ROWS : (number + 1) * ROWS]
        rows = [{"id": number * ROWS + n, "vector": vector.tolist()} for n, vector in enumerate(part)]
        body = json.dumps({"collectionName": _COLLECTION, "data": rows}).encode()
        by_rest.append(_cpu_s(server, partial(rest.send, "entities/insert", body)))
        others = [{"id": row["id"] + INSERTS * ROWS, "vector": row["vector"]} for row in rows]
        by_grpc.append(_cpu_s(server, partial(grpc.insert, _COLLECTION, others)))
    ms, grpc_ms = min(by_rest) * _MS, min(by_grpc) * _MS
    say(f"server CPU for {ROWS} rows of dimension {DIM}: {ms:.0f} ms as JSON, {grpc_ms:.0f} ms by gRPC")
    return ms


def _cpu_s(server: psutil.Process, work: Callable[[], object]) -> float:
    before = server.cpu_times()
    work()
    after = server.cpu_times()
    return float(after.user + after.system - before.user - before.system)


def _search(rest: Rest, grpc: MilvusClient, say: Callable[[str], None]) -> tuple[float, float]:
    queries = np.random.default_rng(2).random((SEARCHES, DIM), dtype=np.float32)
    by_rest, by_grpc = [], []
    for query in queries:
        body = {"collectionName": _COLLECTION, "data": [query.tolist()], "limit": LIMIT}
        encoded = json.dumps(body).encode()
        by_rest.append(_seconds(partial(rest.send, "entities/search", encoded)))
        by_grpc.append(_seconds(partial(grpc.search, _COLLECTION, [query], limit=LIMIT)))
    ms, grpc_ms = statistics.median(by_rest) * _MS, statistics.median(by_grpc) * _MS
    say(f"median search: {ms:.2f} ms by REST (body already encoded), {grpc_ms:.2f} ms by gRPC")
    return ms, grpc_ms


def _console(rest: Rest, server: psutil.Process, say: Callable[[str], None]) -> float:
    """The page that asks most often is a tab's cost: the status, as often as `TAB_INTERVAL_S`."""
    idle_s = _cpu_s(server, partial(time.sleep, WATCHED_S))

    def watch() -> None:
        for _ in range(round(WATCHED_S / TAB_INTERVAL_S)):
            started_s = time.monotonic()
            rest.get("/ui/api/status")
            time.sleep(max(0.0, started_s + TAB_INTERVAL_S - time.monotonic()))

    tab_s = _cpu_s(server, watch)
    ms = (tab_s - idle_s) / WATCHED_S * _MS
    say(f"server CPU for an open tab of the console: {ms:.1f} ms a second")
    return ms


def _seconds(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
