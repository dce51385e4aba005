"""Memory of a server while its Spark runs, sleeps, and after it wakes, and what a wake costs a flush.

Spark sleeps after `IDLE_STOP_S` without a job here. The flush that wakes it is compared with one that finds
it awake; it is measured without and with the archive of Java classes, which the server writes while Spark
sleeps for the first time. Memory is the proportional share (PSS) of each process: pages that processes
share count once. Linux only.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from pymilvus import MilvusClient

from benchmarks.idle import address_of, role_of
from benchmarks.processes import ServerProcess

DIM = 8
ROWS = 50
IDLE_STOP_S = 5
LIMIT_S = 180.0
STOP_GRACE_S = 30.0
_POLL_S = 0.5
_MB = 1_000_000


def measure(say: Callable[[str], None]) -> None:
    """``say`` is called with a line for each step. Raises `TimeoutError` when a step does not come."""
    with tempfile.TemporaryDirectory(prefix="elanus-asleep-") as directory:
        data_dir = Path(directory) / "data"
        command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(data_dir), "--port", "0"]
        command += ["--set", "metrics.port=0", "--set", f"pipeline.idle_stop_s={IDLE_STOP_S}"]
        server = ServerProcess(command, Path(directory) / "server.log", role_of)
        try:
            _steps(server, data_dir, say)
        finally:
            server.stop(STOP_GRACE_S)


def _steps(server: ServerProcess, data_dir: Path, say: Callable[[str], None]) -> None:
    client = MilvusClient(address_of(server, data_dir))
    client.create_collection("rows", dimension=DIM)

    def step(name: str) -> None:
        took_s = _flush(client)
        say(f"{name}: flush {took_s:.2f} s; {_memory(server.pid)}")

    def asleep() -> bool:
        return "jvm" not in _roles(server.pid)

    step("first flush, while Spark starts")
    step("awake")
    _until(asleep, "Spark sleeps")
    step("woken without the archive")
    _until(lambda: any((data_dir / "scratch").glob("*.jsa")), "the archive is written")
    _until(lambda: set(_roles(server.pid)) == {"online"}, "Spark sleeps")
    say(f"asleep: {_memory(server.pid)}")
    step("woken with the archive")
    client.close()


def _flush(client: MilvusClient) -> float:
    vectors = np.random.default_rng(1).random((ROWS, DIM), dtype=np.float32)
    client.insert("rows", [{"id": key, "vector": vector} for key, vector in enumerate(vectors)])
    began_s = time.monotonic()
    client.flush("rows")
    return time.monotonic() - began_s


def _roles(pid: int) -> dict[str, float]:
    """Megabytes by role of the tree below a process."""
    found: dict[str, float] = defaultdict(float)
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            found[role_of(process)] += process.memory_full_info().pss / _MB
        except psutil.NoSuchProcess:
            continue  # it ended meanwhile
    return dict(found)


def _memory(pid: int) -> str:
    roles = _roles(pid)
    parts = ", ".join(f"{role} {mb:.0f}" for role, mb in sorted(roles.items()))
    return f"{sum(roles.values()):.0f} MB ({parts})"


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(_POLL_S)
