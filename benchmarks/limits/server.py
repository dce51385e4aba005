"""A server that is looked at, stopped, and started again on the same data."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from benchmarks.limits.figures import Look
from benchmarks.processes import ServerProcess, wait_for_quiet
from elanus.cli import remote
from elanus.server.announce import Announcement, find

DIM = 8
CALL_S = 60.0
"""How long a call may take before it counts as what gave."""
START_LIMIT_S = 300.0
STOP_GRACE_S = 60.0
ROLES = ("online", "pipeline", "jvm")
_POLL_S = 0.02
_QUIET_S = 5
_QUIET_LIMIT_S = 45.0
"""A server that is never quiet is looked at after this time."""


class LimitServer:
    """One data directory and the server on it. ``open_files_max``: its ``ulimit -n``, both soft and hard."""

    def __init__(
        self,
        directory: Path,
        idle_s: float,
        settings: Mapping[str, object],
        open_files_max: int | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self._log = directory / "server.log"
        self._idle_s = idle_s
        own = {"proxy.port": 0, "metrics.port": 0, "http.port": 0, **settings}
        assignments = [part for item in own.items() for part in ("--set", "{}={}".format(*item))]
        command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(self.data_dir), *assignments]
        if open_files_max is not None:
            command = ["sh", "-c", f'ulimit -n {open_files_max}; exec "$0" "$@"', *command]
        self._command = command
        self._process: ServerProcess | None = None
        self._client: MilvusClient | None = None
        self._announced: Announcement | None = None

    # its life

    def start(self) -> float:
        """Start it, and return after how many seconds it could be called.

        Raises `TimeoutError`, and `RuntimeError` with the end of its log when it ended.
        """
        began_s = time.monotonic()
        self._process = ServerProcess(self._command, self._log, _role)
        while time.monotonic() < began_s + START_LIMIT_S:
            self._process.check_running()
            found = find(self.data_dir)
            if found is not None and found.pid == self._process.pid:
                self._announced = found
                return time.monotonic() - began_s
            time.sleep(_POLL_S)
        raise TimeoutError(f"the server could not be called after {START_LIMIT_S:g} s")

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            self._process.stop(STOP_GRACE_S)
            self._process = None

    def restart(self, answers: Callable[[MilvusClient], bool]) -> float:
        """Stop it, start it, and return the seconds from the start to the first answer.

        Raises as `start` does, and `TimeoutError` when it does not answer.
        """
        self.stop()
        return self.started(answers)

    def started(self, answers: Callable[[MilvusClient], bool]) -> float:
        """Start it, and return the seconds until ``answers`` is true. Raises as `restart` does."""
        began_s = time.monotonic()
        self.start()
        said = "nothing"
        while time.monotonic() < began_s + START_LIMIT_S:
            self.running.check_running()
            try:
                if answers(self.client):
                    return time.monotonic() - began_s
                said = "another answer than before"
            except (MilvusException, grpc.RpcError) as error:
                said = str(error)
            time.sleep(_POLL_S)
        raise TimeoutError(f"no answer {START_LIMIT_S:g} s after the start; the last one was: {said}")

    @property
    def running(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    @property
    def address(self) -> str:
        if self._announced is None:
            raise RuntimeError("the server is not running")
        return self._announced.address

    @property
    def observe_url(self) -> str:
        """Where its metrics and its status are."""
        if self._announced is None:
            raise RuntimeError("the server is not running")
        return self._announced.observe_url

    @property
    def client(self) -> MilvusClient:
        """The one connection of the benchmark."""
        if self._client is None:
            self._client = MilvusClient(f"http://{self.address}", timeout=CALL_S)
        return self._client

    # looking at it

    def look(self, answers: Callable[[MilvusClient], bool] | None = None) -> Look:
        """Look at it while nobody uses it; with ``answers`` then see how long a restart takes."""
        wait_for_quiet(self.running.usage, _QUIET_LIMIT_S, ROLES, quiet_s=_QUIET_S)
        before, began_s = self.running.usage(), time.monotonic()
        time.sleep(self._idle_s)
        self.running.check_running()
        after, took_s = self.running.usage(), time.monotonic() - began_s
        open_files = psutil.Process(self.running.pid).num_fds()
        restart_s = None if answers is None else round(self.restart(answers), 1)
        return Look(
            idle_percent=round(100 * (after.cpu_s["online"] - before.cpu_s["online"]) / took_s, 1),
            idle_all_percent=round(100 * (after.total_cpu_s - before.total_cpu_s) / took_s, 1),
            rss_mb=round(after.rss_mb["online"], 1),
            open_files=open_files,
            restart_s=restart_s,
        )

    def growing_bytes(self) -> float:
        """Growing data in its memory, from its metrics."""
        text = remote.get(self.observe_url + "/metrics").decode()
        found = re.search(r"^elanus_growing_bytes (\S+)$", text, re.MULTILINE)
        if found is None:
            raise RuntimeError("the server's metrics have no elanus_growing_bytes")
        return float(found[1])


@contextmanager
def serving(
    idle_s: float, settings: Mapping[str, object] | None = None, open_files_max: int | None = None
) -> Iterator[LimitServer]:
    """A server on an empty directory, ended with the block."""
    with tempfile.TemporaryDirectory(prefix="elanus-limits-") as directory:
        server = LimitServer(Path(directory), idle_s, settings or {}, open_files_max)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def create(client: MilvusClient, name: str, shards: int = 1, *, load: bool) -> None:
    """Create a collection of an integer key and a vector of `DIM`; with ``load`` wait until it is served."""
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    connection = client._get_connection()
    connection.create_collection(name, schema, num_shards=shards, timeout=CALL_S)
    if load:
        index = {"index_type": "FLAT", "metric_type": "L2", "params": {}}
        connection.create_index(name, "v", index, sync=False, timeout=CALL_S)
        load_collection(client, name)


def load_collection(client: MilvusClient, name: str, limit_s: float = CALL_S) -> None:
    """Load, and wait; pymilvus' own wait looks every half second. Raises `TimeoutError`."""
    connection = client._get_connection()
    connection.load_collection(name, _async=True, timeout=CALL_S)
    until_s = time.monotonic() + limit_s
    while connection.get_loading_progress(name, timeout=CALL_S) < 100:
        if time.monotonic() > until_s:
            raise TimeoutError(f"the collection {name} was not loaded within {limit_s:g} s")
        time.sleep(_POLL_S / 4)


def count(client: MilvusClient, name: str) -> int:
    """Rows of a loaded collection, read at Strong."""
    answer = client.query(
        name, output_fields=["count(*)"], consistency_level="Strong", timeout=CALL_S, filter=""
    )
    return int(answer[0]["count(*)"])


def _role(process: psutil.Process) -> str:
    if "java" in process.name():
        return "jvm"
    arguments = process.cmdline()
    if "serve" in arguments:
        return "online"
    return "pipeline" if "pipeline" in arguments else "workers"
