"""Searches over one, two and four query nodes, and on a standalone server; segments spread over four nodes;
what a cluster with hundreds of collections costs when nobody asks anything of it."""

from __future__ import annotations

import os
import platform
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt
import psutil
from pymilvus import DataType, MilvusClient

from benchmarks.freshness import serving
from benchmarks.scaling.cluster import Cluster, running
from benchmarks.scaling.figures import Balance, Cost, Idle, Reads, Scaling
from elanus import __version__

DIM = 128
ROWS = 40_000
BALANCED_SEGMENTS = 100
_BATCH_ROWS = 2000
_SEALED_S = 600.0
_POLL_S = 0.2
_CREATED_AT_ONCE = 8
_SMALL_SEGMENTS: Mapping[str, Mapping[str, object]] = {
    "datacoord": {"segment_size_max_mb": 1},
    "compaction": {"enabled": False},
    "indexcoord": {"index_rows_min": 1 << 20},
}
"""Segments of some 1,400 rows, which are searched exactly."""
Vectors = npt.NDArray[np.float32]


def measure(turns: int, collections: int, report: Callable[[str], None]) -> Scaling:
    machine = f"{os.cpu_count()} processors, {platform.system()}"
    reads, costs = measure_all_reads(turns, report)
    balance = measure_balance()
    report(f"balance: {balance}")
    return Scaling(__version__, machine, DIM, reads, costs, balance, measure_all_idle(collections, report))


def measure_all_reads(turns: int, report: Callable[[str], None]) -> tuple[list[Reads], list[Cost]]:
    reads, costs = [], []
    for query_nodes in (1, 2, 4):
        found, cost = measure_reads(query_nodes, turns)
        reads.append(found)
        costs.append(cost)
        report(f"{query_nodes} query nodes: {found}, {cost}")
    return reads, costs


def measure_all_idle(collections: int, report: Callable[[str], None]) -> list[Idle]:
    idle = []
    for interval_ms in (200, 50):
        idle.append(measure_idle(collections, 2, interval_ms))
        report(f"idle: {idle[-1]}")
    return idle


def measure_reads(query_nodes: int, turns: int) -> tuple[Reads, Cost]:
    vectors = np.random.default_rng(1).random((ROWS, DIM), dtype=np.float32)
    small = {f"{s}.{n}": v for s, section in _SMALL_SEGMENTS.items() for n, v in section.items()}
    with (
        tempfile.TemporaryDirectory(prefix="elanus-scaling-") as directory,
        serving(Path(directory) / "data", 1, small) as alone,
        running(query_nodes, _SMALL_SEGMENTS) as cluster,
    ):
        clients = [MilvusClient(cluster.uri), MilvusClient(f"http://{alone.address}")]
        for client in clients:
            _fill(client, vectors)
        spread = _spread(clients[0])
        times = {
            (level, n): _Times(client, level)
            for level in ("Bounded", "Strong")
            for n, client in enumerate(clients)
        }
        for turn in range(turns):
            for timed in times.values():
                timed.search(vectors[turn % ROWS])
        medians = [round(statistics.median(timed.ms), 3) for timed in times.values()]
        searched = [vectors[turn % ROWS] for turn in range(turns)]
        cpu_ms = _cpu_of_reads(_pids(cluster), times["Bounded", 0], searched)
        alone_ms = _cpu_of_reads({"server": alone.pid}, times["Bounded", 1], searched)["server"]
        for client in clients:
            client.close()
        rows, segments = [rows for rows, _ in spread], sum(count for _, count in spread)
        bounded, bounded_alone, strong, strong_alone = medians
        reads = Reads(query_nodes, ROWS, segments, rows, bounded, bounded_alone, strong, strong_alone)
        return reads, Cost(query_nodes, cpu_ms, alone_ms)


def _cpu_of_reads(pids: Mapping[str, int], timed: _Times, vectors: Sequence[Vectors]) -> dict[str, float]:
    """Milliseconds of processor time that one search takes, by process; ``client`` is this one."""

    def used_s() -> dict[str, float]:
        return {"client": time.process_time(), **{name: _cpu_s(pid) for name, pid in pids.items()}}

    before = used_s()
    for vector in vectors:
        timed.search(vector)
    return {name: round(1000 * (s - before[name]) / len(vectors), 3) for name, s in used_s().items()}


class _Times:
    def __init__(self, client: MilvusClient, level: str) -> None:
        self._client = client
        self._level = level
        self.ms: list[float] = []
        for _ in range(20):  # first calls pay for connections and caches
            self.search(np.zeros(DIM, np.float32))
        self.ms.clear()

    def search(self, vector: Vectors) -> None:
        began_s = time.perf_counter()
        self._client.search("rows", data=[vector], limit=10, consistency_level=self._level)
        self.ms.append(1000 * (time.perf_counter() - began_s))


def _fill(client: MilvusClient, vectors: Vectors) -> None:
    """Returns when everything is served from sealed segments."""
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = MilvusClient.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection("rows", schema=schema, index_params=index, num_shards=2)
    for begin in range(0, len(vectors), _BATCH_ROWS):
        part = vectors[begin : begin + _BATCH_ROWS]
        client.insert("rows", [{"id": begin + n, "v": v} for n, v in enumerate(part)])
    client.flush("rows")
    deadline_s = time.monotonic() + _SEALED_S
    while sum(rows for rows, _ in _spread(client)) != len(vectors):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not all sealed after {_SEALED_S:g} s: {_spread(client)}")
        time.sleep(_POLL_S)


def _spread(client: MilvusClient) -> list[tuple[int, int]]:
    """Rows and number of sealed segments of each query node that serves any."""
    rows: Counter[int] = Counter()
    segments: Counter[int] = Counter()
    for segment in client._get_connection().get_query_segment_info("rows"):
        if segment.state == 3:
            rows.update(dict.fromkeys(segment.nodeIds, segment.num_rows))
            segments.update(segment.nodeIds)
    return [(rows[node], segments[node]) for node in sorted(rows)]


def measure_balance() -> Balance:
    """Some hundred segments over four nodes: by a load, and with three nodes when the fourth joins."""
    rows = round(BALANCED_SEGMENTS * 1024 * 1024 * 0.75 / (4 * DIM + 24))
    vectors = np.random.default_rng(1).random((rows, DIM), dtype=np.float32)
    with running(4, _SMALL_SEGMENTS) as cluster:
        client = MilvusClient(cluster.uri)
        _fill(client, vectors)
        client.release_collection("rows")
        client.load_collection("rows")
        loaded = [count for _, count in _spread(client)]
        fourth = cluster.processes["query node 4"]
        fourth.stop()
        _until(lambda: len(_spread(client)) == 3 and _whole(client, rows))
        fourth.start()
        began_s = time.monotonic()
        _until(lambda: len(_spread(client)) == 4 and _is_even(client))
        joined_s = time.monotonic() - began_s
        joined = [count for _, count in _spread(client)]
        client.close()
    return Balance(sum(loaded), loaded, joined, round(joined_s, 1))


def _whole(client: MilvusClient, rows: int) -> bool:
    return sum(count for count, _ in _spread(client)) == rows


def _is_even(client: MilvusClient) -> bool:
    counts = [count for _, count in _spread(client)]
    return max(counts) <= 1.1 * statistics.mean(counts) and min(counts) >= 0.9 * statistics.mean(counts)


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _SEALED_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"it did not come to pass within {_SEALED_S:g} s")
        time.sleep(_POLL_S)


def measure_idle(collections: int, shards: int, tick_interval_ms: int, seconds: float = 30.0) -> Idle:
    more = {"proxy": {"time_tick_interval_ms": tick_interval_ms}}
    with running(2, more) as cluster:
        client = MilvusClient(cluster.uri)
        create = partial(client.create_collection, dimension=8, num_shards=shards)
        with ThreadPoolExecutor(_CREATED_AT_ONCE) as pool:
            list(pool.map(create, (f"c{number}" for number in range(collections))))
        client.close()
        time.sleep(10.0)
        before = _Counted(cluster)
        time.sleep(seconds)
        return before.until_now(collections, shards, tick_interval_ms)


class _Counted:
    """The counters of processes and etcd at one moment."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._at_s = time.monotonic()
        self._cpu_s = {name: _cpu_s(pid) for name, pid in _pids(cluster).items()}
        self._writes = _etcd_writes(cluster)
        self._ticks = _ticks(cluster)

    def until_now(self, collections: int, shards: int, tick_interval_ms: int) -> Idle:
        now = _Counted(self._cluster)
        took_s = now._at_s - self._at_s
        cpu = {name: round((s - self._cpu_s[name]) / took_s, 4) for name, s in now._cpu_s.items()}
        writes_per_s = round((now._writes - self._writes) / took_s, 2)
        ticking = sum(tick != self._ticks.get(pchannel) for pchannel, tick in now._ticks.items())
        ticks_per_s = ticking * 1000 / tick_interval_ms
        return Idle(collections, shards, tick_interval_ms, cpu, writes_per_s, ticks_per_s)


def _pids(cluster: Cluster) -> dict[str, int]:
    members = {**cluster.processes, "etcd": cluster.etcd, "NATS": cluster.nats}
    return {name: process.pid for name, process in members.items() if process.pid is not None}


def _cpu_s(pid: int) -> float:
    """Processor time of a process and its children."""
    root = psutil.Process(pid)
    return float(sum(sum(member.cpu_times()[:2]) for member in [root, *root.children(recursive=True)]))


def _etcd_writes(cluster: Cluster) -> float:
    with urlopen(f"http://{cluster.etcd.endpoint}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r"^etcd_(?:mvcc_put_total|mvcc_delete_total) (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def _ticks(cluster: Cluster) -> dict[str, int]:
    channels: Sequence[dict[str, object]] = cluster.status()["channels"]
    return {str(c["pchannel"]): int(str(c["tick"])) for c in channels}
