"""A day in the life of a server, in a minute: the content of its disk while everything happens to it.

Rows are inserted, deleted and flushed, segments indexed, compacted and collected, a second collection is
dropped; retention and tolerances are zero. At the end the disk must hold little more than the rows that are
left: within `SURPLUS_MAX` of their size, log, metadata and logs of the processes included.

The yardstick knows nothing of Elanus: eight bytes for a row's key and four for each float of its vector, and
the size of the same index as raw faiss writes it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
from pymilvus import DataType, MilvusClient

from benchmarks.freshness import serving

SURPLUS_MAX = 0.15
DIM = 256
BATCHES, BATCH_ROWS = 4, 8_000
INDEX_M, EF_CONSTRUCTION = 16, 100
SETTINGS: Mapping[str, object] = {
    "datacoord.retention_s": 0,
    "gc.drop_tolerance_s": 0,
    "gc.missing_tolerance_s": 0,
    "gc.interval_s": 3600,
    "compaction.interval_s": 3600,
}
PARTS = ("log", "files", "metadata", "else")
KEPT, DROPPED = "kept", "dropped"
STEP_DEADLINE_S = 120.0
_SAMPLE_S = 0.25
_KEY_BYTES = 8
_BLOCK_BYTES = 512
_POLL_S = 0.1
_LEDGER_COLUMNS = 150


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes on disk by `PARTS`, so many seconds after the beginning."""

    at_s: float
    sizes_bytes: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes_bytes)


@dataclass(slots=True)
class Day:
    """The observations: samples, what began when, and the ledger as `elanus jobs` prints it.

    ``live_bytes``: the size of the rows that are left, by the yardstick.
    """

    live_bytes: int
    samples: list[Sample] = field(default_factory=list)
    steps: list[tuple[float, str]] = field(default_factory=list)
    ledger: str = ""

    @property
    def surplus(self) -> float:
        """The bytes on disk at the end beyond the live data, as a part of it."""
        return self.samples[-1].total_bytes / self.live_bytes - 1

    @property
    def is_clean(self) -> bool:
        return self.surplus <= SURPLUS_MAX


def live() -> Day:
    """Live through the day on a server of its own. Raises `TimeoutError` when a step does not end."""
    vectors = np.random.default_rng(1).random((BATCHES * BATCH_ROWS, DIM), dtype=np.float32)
    day = Day(_size_bytes(vectors[~_is_deleted(np.arange(len(vectors)))]))
    with (
        tempfile.TemporaryDirectory(prefix="elanus-day-") as directory,
        serving(Path(directory) / "data", 1, SETTINGS) as announced,
    ):
        data = Path(directory) / "data"
        client = MilvusClient(f"http://{announced.address}")
        try:
            with _watched(data, day) as begin:
                _fill(client, vectors, begin)
                _tidy(client, begin)
                begin("collect")
                _collect(data, day)
            day.ledger = _elanus("jobs", data)
        finally:
            client.close()
    return day


def _is_deleted(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """The first half of every batch."""
    return keys % BATCH_ROWS < BATCH_ROWS // 2


def _size_bytes(vectors: npt.NDArray[np.float32]) -> int:
    graph = faiss.IndexHNSWFlat(DIM, INDEX_M)
    graph.hnsw.efConstruction = EF_CONSTRUCTION
    graph.add(vectors)
    return len(vectors) * _KEY_BYTES + vectors.nbytes + len(faiss.serialize_index(graph))


@contextlib.contextmanager
def _watched(data: Path, day: Day) -> Iterator[Callable[[str], None]]:
    """Samples the disk in a thread of its own while the block runs; gives what notes that a step begins."""
    ended = threading.Event()
    began_s = time.monotonic()

    def sample() -> None:
        while not ended.wait(_SAMPLE_S):
            day.samples.append(Sample(time.monotonic() - began_s, disk_use(data)))

    with ThreadPoolExecutor(1) as threads:
        sampling = threads.submit(sample)
        try:
            yield lambda name: day.steps.append((time.monotonic() - began_s, name))
        finally:
            ended.set()
        sampling.result()
    day.samples.append(Sample(time.monotonic() - began_s, disk_use(data)))


def disk_use(data: Path) -> tuple[int, ...]:
    """Bytes that the directory's files take on disk, by `PARTS`."""
    sizes = dict.fromkeys(PARTS, 0)
    for directory, _, names in os.walk(data):
        for name in names:
            file = Path(directory, name)
            with contextlib.suppress(FileNotFoundError):  # deleted between the two looks
                sizes[_part_of(file.relative_to(data))] += file.stat().st_blocks * _BLOCK_BYTES
    return tuple(sizes.values())


def _part_of(file: Path) -> str:
    if file.parts[0] in ("log", "files"):
        return file.parts[0]
    return "metadata" if file.parts[0].startswith("meta.db") else "else"


def _fill(client: MilvusClient, vectors: npt.NDArray[np.float32], begin: Callable[[str], None]) -> None:
    for name in (KEPT, DROPPED):
        _create(client, name)
    for batch in range(BATCHES):
        begin("insert")
        keys = range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS)
        for name in (KEPT, DROPPED):
            client.insert(name, [{"key": key, "v": vectors[key]} for key in keys])
        begin("delete")
        client.delete(KEPT, filter=f"key >= {keys.start} and key < {keys.start + BATCH_ROWS // 2}")
        begin("flush")
        for name in (KEPT, DROPPED):
            client.flush(name)


def _tidy(client: MilvusClient, begin: Callable[[str], None]) -> None:
    begin("drop")
    client.drop_collection(DROPPED)
    begin("compact")
    compaction = client.compact(KEPT)
    _until(lambda: bool(client.get_compaction_state(compaction) == "Completed"), "the compaction")
    _until(lambda: _is_indexed(client), "the index of what is left")


def _is_indexed(client: MilvusClient) -> bool:
    """Whether the compacted segment is served with its index, and no other."""
    served = [segment for segment in client.list_loaded_segments(KEPT) if segment.num_rows]
    written = {segment.segment_id for segment in client.list_persistent_segments(KEPT)}
    return {segment.segment_id for segment in served if segment.index_name} == written


def _collect(data: Path, day: Day) -> None:
    """Collect garbage, then wait for the log to be trimmed: checkpoints of idle channels move by and by.

    The wait ends when the disk holds little more than what lives, or after as long as a step may take.
    """
    deadline_s = time.monotonic() + STEP_DEADLINE_S
    _elanus("gc", data)
    while sum(disk_use(data)) > (1 + SURPLUS_MAX) * day.live_bytes and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + STEP_DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not end within {STEP_DEADLINE_S:g} s")
        time.sleep(_POLL_S)


def _elanus(command: str, data: Path) -> str:
    called = [sys.executable, "-m", "elanus", command, "--data-dir", str(data)]
    wide = os.environ | {"COLUMNS": str(_LEDGER_COLUMNS)}
    return subprocess.run(called, check=True, capture_output=True, text=True, env=wide).stdout


def _create(client: MilvusClient, name: str) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = MilvusClient.prepare_index_params()
    params = {"M": INDEX_M, "efConstruction": EF_CONSTRUCTION}
    index.add_index("v", index_type="HNSW", metric_type="L2", params=params)
    client.create_collection(name, schema=schema, index_params=index, num_shards=1)
