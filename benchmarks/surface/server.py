"""A server whose rows come from one Parquet file, and timed calls on it."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pymilvus import BulkInsertState, CollectionSchema, MilvusClient
from pymilvus.milvus_client.index import IndexParams

from benchmarks.idle import role_of
from benchmarks.processes import ServerProcess
from elanus.server.announce import Announcement, find

CALL_S = 600.0
IMPORT_LIMIT_S = 3600.0
START_LIMIT_S = 120.0
STOP_GRACE_S = 60.0
BATCH_ROWS = 100_000
_POLL_S = 0.2


class Served:
    """One data directory, and the server on it. ``settings``: as ``--set`` takes them."""

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        self.directory = directory
        self._settings = settings
        self._process: ServerProcess | None = None
        self._announced: Announcement | None = None
        self._client: MilvusClient | None = None

    def start(self, before: str = "") -> None:
        """Start it. ``before``: a shell command that the server's process runs first.

        Raises `TimeoutError`, and `RuntimeError` with the end of its log when it ended.
        """
        data_dir = self.directory / "data"
        command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(data_dir), "--port", "0"]
        command += ["--set", "metrics.port=0", "--set", "http.port=0"]
        command += ["--set", f"imports.root={self.directory}"]
        for setting in self._settings:
            command += ["--set", setting]
        if before:
            command = ["sh", "-c", f'{before} && exec "$0" "$@"', *command]
        self._process = ServerProcess(command, self.directory / "server.log", role_of)
        until_s = time.monotonic() + START_LIMIT_S
        while self._announced is None:
            self._process.check_running()
            found = find(data_dir)
            self._announced = found if found is not None and found.pid == self._process.pid else None
            if time.monotonic() > until_s:
                raise TimeoutError(f"the server could not be called after {START_LIMIT_S:g} s")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None:
            self._process.stop(STOP_GRACE_S)
        self._process = self._announced = self._client = None

    @property
    def client(self) -> MilvusClient:
        if self._announced is None:
            raise RuntimeError("the server is not running")
        if self._client is None:
            self._client = MilvusClient(f"http://{self._announced.address}", timeout=CALL_S)
        return self._client

    @property
    def rss_mb(self) -> float:
        """Resident memory of the online process now, in megabytes (10⁶ bytes)."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return float(psutil.Process(self._process.pid).memory_info().rss / 1e6)

    @property
    def cpu_s(self) -> float:
        """Processor time of the online process so far, in seconds."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def fill(
        self,
        name: str,
        schema: CollectionSchema,
        index: IndexParams,
        batches: Iterator[pa.RecordBatch],
        say: Callable[[str], None],
    ) -> dict[str, float]:
        """Create a collection, import the batches, index it and load it. Returns the seconds of each step.

        A directory that an earlier run has kept holds the collection already: it is only loaded, and the
        result has no other step. Raises `RuntimeError` when the import failed, and `TimeoutError`.
        """
        known = self.directory / f"{name}.kept"
        took_s = {} if known.exists() else self._build(name, schema, index, batches, say)
        known.touch()
        self._await_indexes(name)
        say(f"{name}: loading")
        began_s = time.monotonic()
        self.client.load_collection(name)
        return {**took_s, "load": time.monotonic() - began_s}

    def _build(
        self,
        name: str,
        schema: CollectionSchema,
        index: IndexParams,
        batches: Iterator[pa.RecordBatch],
        say: Callable[[str], None],
    ) -> dict[str, float]:
        path = self.directory / f"{name}.parquet"
        first = next(batches)
        with pq.ParquetWriter(path, first.schema) as writer:
            for batch in (first, *batches):
                writer.write_batch(batch)
        self.client.create_collection(name, schema=schema)
        took_s = {}
        say(f"{name}: importing {path.stat().st_size / 1e6:,.0f} MB")
        began_s = time.monotonic()
        self._import(name, path)
        took_s["import"] = time.monotonic() - began_s
        path.unlink()
        say(f"{name}: building")
        began_s = time.monotonic()
        self.client.create_index(name, index, timeout=CALL_S * 6)
        self._await_indexes(name)
        took_s["build"] = time.monotonic() - began_s
        return took_s

    def _await_indexes(self, name: str) -> None:
        for one in self.client.list_indexes(name):
            while self.client.describe_index(name, one)["state"] != "Finished":
                time.sleep(_POLL_S)

    def _import(self, name: str, path: Path) -> None:
        connection = self.client._get_connection()
        job = connection.do_bulk_insert(name, "", [path.name])
        until_s = time.monotonic() + IMPORT_LIMIT_S
        while (state := connection.get_bulk_insert_state(job)).state != BulkInsertState.ImportCompleted:
            if state.state == BulkInsertState.ImportFailed:
                raise RuntimeError(f"the import failed: {state.failed_reason}")
            if time.monotonic() > until_s:
                raise TimeoutError(f"the import took more than {IMPORT_LIMIT_S:g} s")
            time.sleep(_POLL_S)


@contextmanager
def served(home: Path | None, settings: Sequence[str] = ()) -> Iterator[Served]:
    """A server, ended with the block. ``home``: a directory that is kept; None takes a temporary one."""
    with ExitStack() as opened:
        if home is None:
            home = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="elanus-surface-")))
        home.mkdir(parents=True, exist_ok=True)
        server = Served(home, settings)
        opened.callback(server.stop)
        server.start()
        yield server


def p50_ms(call: Callable[[int], object], calls: int) -> float:
    """The median time of so many calls, one after the other, in milliseconds."""
    times = []
    for number in range(calls):
        began_s = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - began_s)
    return 1e3 * sorted(times)[calls // 2]


def in_turn(calls: Sequence[Callable[[int], object]], each: int, rounds: int) -> list[list[float]]:
    """The median milliseconds of each call in each round; the calls take turns."""
    for call in calls:
        p50_ms(call, min(each, 50))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, found, strict=True):
            times.append(p50_ms(call, each))
    return found
