"""How soon a write is seen: strong reads right after an insert, compared with eventual ones.

One client writes single rows through one proxy and reads through another (through the same one where there
is only one), with fsync on and the settings otherwise as they come. Eventual and strong reads take turns, so
that what else the machine does falls on both alike. An eventual read may miss the row; a strong one that does
is an error.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import msgspec
import numpy as np
import numpy.typing as npt
from pymilvus import DataType, MilvusClient

from elanus import __version__
from elanus.server.announce import Announcement, find

COLLECTION = "fresh"
DIM = 128
ROWS = 10_000
START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 30.0
_POLL_S = 0.05
_NOTHING: Mapping[str, object] = {}


class Round(msgspec.Struct, frozen=True, array_like=True):
    """Milliseconds of one turn: two inserts, each followed by a search for the new row.

    ``visible_ms``: from the beginning of an insert to the end of the strong search that found its row.
    """

    insert_ms: float
    eventual_ms: float
    strong_ms: float
    visible_ms: float


class ProxyFigures(msgspec.Struct, frozen=True):
    """All turns with so many proxies."""

    proxies: int
    rounds: list[Round]

    def median_ms(self, name: str) -> float:
        return statistics.median(self.values_ms(name))

    def values_ms(self, name: str) -> list[float]:
        return [float(getattr(turn, name)) for turn in self.rounds]


class Freshness(msgspec.Struct, frozen=True):
    """The results of `measure`. ``machine``: processors, and the operating system's name."""

    version: str
    machine: str
    rows: int
    dim: int
    figures: list[ProxyFigures]


@dataclass(frozen=True, slots=True)
class Stretch:
    """When a call began and ended."""

    began_s: float
    ended_s: float

    @property
    def ms(self) -> float:
        return 1000 * (self.ended_s - self.began_s)


def measure(turns: int) -> Freshness:
    """Take so many turns with one proxy, and with three."""
    figures = [measure_proxies(proxies, turns) for proxies in (1, 3)]
    machine = f"{os.cpu_count()} processors, {platform.system()}"
    return Freshness(__version__, machine, ROWS, DIM, figures)


def measure_proxies(proxies: int, turns: int) -> ProxyFigures:
    """Run a fresh server with so many proxies, and take that many turns."""
    with (
        tempfile.TemporaryDirectory(prefix="elanus-freshness-") as directory,
        serving(Path(directory) / "data", proxies) as announced,
        ExitStack() as connections,
    ):
        clients = []
        for address in (announced.address, *announced.other_addresses):
            clients.append(MilvusClient(f"http://{address}"))
            connections.callback(clients[-1].close)
        return ProxyFigures(proxies, list(_turns(clients, turns)))


@contextmanager
def serving(data: Path, proxies: int, more: Mapping[str, object] = _NOTHING) -> Iterator[Announcement]:
    """A server on free ports with these settings, its pipeline up; ended with the block."""
    settings = {"proxy.port": 0, "metrics.port": 0, "proxy.count": proxies, **more}
    assignments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(data), *assignments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield _ready(process, data)
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], data: Path) -> Announcement:
    deadline_s = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        announced = find(data)
        if announced is not None and _pipeline_is_up(announced):
            return announced
        time.sleep(_POLL_S)
    raise TimeoutError(f"the server was not up within {START_DEADLINE_S:g} s")


def _pipeline_is_up(announced: Announcement) -> bool:
    try:
        with urlopen(f"{announced.observe_url}/status") as answer:
            return bool(msgspec.json.decode(answer.read())["pipeline"]["state"] == "Healthy")
    except URLError:
        return False


def _turns(clients: Sequence[MilvusClient], turns: int) -> Iterator[Round]:
    vectors = np.random.default_rng(1).random((ROWS + 2 * turns, DIM), dtype=np.float32)
    _fill(clients[0], vectors)
    for turn in range(turns):
        writer, reader = clients[turn % len(clients)], clients[(turn + 1) % len(clients)]
        key = ROWS + 2 * turn
        _insert(writer, vectors, key)
        eventual, _ = _search(reader, vectors[key], "Eventually")
        insert = _insert(writer, vectors, key + 1)
        strong, nearest = _search(reader, vectors[key + 1], "Strong")
        if nearest != key + 1:
            raise RuntimeError(f"a strong search found row {nearest}, not {key + 1} that was just written")
        visible = Stretch(insert.began_s, strong.ended_s)
        yield Round(*(round(stretch.ms, 3) for stretch in (insert, eventual, strong, visible)))


def _fill(client: MilvusClient, vectors: npt.NDArray[np.float32]) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = MilvusClient.prepare_index_params()
    index.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 200})
    client.create_collection(COLLECTION, schema=schema, index_params=index)
    client.insert(COLLECTION, [{"key": key, "v": vectors[key]} for key in range(ROWS)])
    for _ in range(20):  # first calls pay for connections and caches
        _search(client, vectors[0], "Strong")


def _insert(client: MilvusClient, vectors: npt.NDArray[np.float32], key: int) -> Stretch:
    began_s = time.perf_counter()
    client.insert(COLLECTION, [{"key": key, "v": vectors[key]}])
    return Stretch(began_s, time.perf_counter())


def _search(client: MilvusClient, vector: npt.NDArray[np.float32], level: str) -> tuple[Stretch, int]:
    began_s = time.perf_counter()
    hits = client.search(COLLECTION, data=[vector], limit=1, consistency_level=level)
    return Stretch(began_s, time.perf_counter()), int(hits[0][0]["key"])
