"""The cost of a server that nobody uses, by the number of small collections it has.

Each count has a server of its own, on an empty directory and settings as they come. The collections have a
few rows each and are loaded, or released again. The client is gone while the processor time is taken, and the
server has had `SETTLE_S` to flush what was written.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import psutil
from pymilvus import MilvusClient

from benchmarks.processes import ServerProcess, wait_for_quiet
from elanus.server.announce import find

DIM = 8
ROWS = 20
START_LIMIT_S = 60.0
QUIET_LIMIT_S = 180.0
SETTLE_S = 60.0
STOP_GRACE_S = 30.0
ROLES = ("online", "pipeline", "jvm")
_POLL_S = 0.05


class Idle(msgspec.Struct, frozen=True):
    """Percent of one core over ``seconds``, by part of the server."""

    collections: int
    loaded: bool
    seconds: float
    cpu_percent: dict[str, float]


def measure(
    counts: Sequence[int], seconds: float, say: Callable[[str], None], *, loaded: bool = True
) -> list[Idle]:
    """One server after the other. ``say`` is called with a line for each."""
    found = []
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="elanus-idle-") as directory:
            found.append(_measure_one(Path(directory), count, seconds, loaded=loaded))
        parts = ", ".join(f"{role} {found[-1].cpu_percent.get(role, 0.0):.2f} %" for role in ROLES)
        say(f"{count} collections {'loaded' if loaded else 'released'}: {parts}")
    return found


def _measure_one(directory: Path, count: int, seconds: float, *, loaded: bool) -> Idle:
    data_dir = directory / "data"
    command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(data_dir)]
    command += ["--port", "0", "--set", "metrics.port=0"]
    server = ServerProcess(command, directory / "server.log", role_of)
    try:
        _fill(address_of(server, data_dir), count, loaded=loaded)
        time.sleep(SETTLE_S)
        wait_for_quiet(server.usage, QUIET_LIMIT_S, ROLES, quiet_s=5)
        before, began_s = server.usage(), time.monotonic()
        time.sleep(seconds)
        after, took_s = server.usage(), time.monotonic() - began_s
    finally:
        server.stop(STOP_GRACE_S)
    share = {role: 100 * (s - before.cpu_s.get(role, 0.0)) / took_s for role, s in after.cpu_s.items()}
    return Idle(count, loaded, took_s, share)


def role_of(process: psutil.Process) -> str:
    if "java" in process.name():
        return "jvm"
    arguments = process.cmdline()
    if "serve" in arguments:
        return "online"
    return "pipeline" if "pipeline" in arguments else "workers"


def address_of(server: ServerProcess, data_dir: Path) -> str:
    """Raises `TimeoutError` when the server does not answer in time, and `RuntimeError` when it ends."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        server.check_running()
        if (announced := find(data_dir)) is not None:
            return f"http://{announced.address}"
        time.sleep(_POLL_S)
    raise TimeoutError(f"the server does not answer after {START_LIMIT_S:g} s")


def _fill(uri: str, count: int, *, loaded: bool) -> None:
    chance = np.random.default_rng(1)
    client = MilvusClient(uri)
    for number in range(count):
        name = f"idle_{number}"
        client.create_collection(name, dimension=DIM)
        vectors = chance.random((ROWS, DIM), dtype=np.float32)
        client.insert(name, [{"id": key, "vector": vector} for key, vector in enumerate(vectors)])
        if not loaded:
            client.release_collection(name)
    client.close()
