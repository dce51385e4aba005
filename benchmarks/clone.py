"""A clone of a large collection: its time, and the bytes that it adds.

    .venv/bin/python -m benchmarks.clone [ROWS]

A server is started, filled and flushed; that takes minutes. A clone's indexes are built afterwards, as those
of any collection are: their files are counted apart. A copy of all files shows what the machine does in the
same time.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from pymilvus import DataType, MilvusClient

from benchmarks.idle import address_of, role_of
from benchmarks.processes import ServerProcess
from elanus.api.connector import ConnectorApi
from elanus.api.snapshots import RestoreJob
from elanus.cli.server_calls import Server
from elanus.cli.snapshots import asked
from elanus.core.timestamps import NO_TIMESTAMP

ROWS, DIM, CHUNK_ROWS = 1_000_000, 16, 20_000
CLONES = 5
REST_S = 3.0
"""Between two clones: of an idle collection, of which no data node has anything to report."""
STOP_GRACE_S = 30.0
_ROWS, _INDEXES = ("insert_log", "stats_log", "delta_log"), ("index_files",)


def main(rows: int = ROWS) -> None:
    """Print the bytes of the source, of its clones, and the times."""
    with tempfile.TemporaryDirectory(prefix="elanus-clone-") as directory:
        data_dir = Path(directory) / "data"
        command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(data_dir), "--port", "0"]
        command += ["--set", "metrics.port=0", "--set", "http.enabled=false"]
        server = ServerProcess(command, Path(directory) / "server.log", role_of)
        try:
            _measure(address_of(server, data_dir), data_dir, rows)
        finally:
            server.stop(STOP_GRACE_S)


def _measure(address: str, data_dir: Path, rows: int) -> None:
    _fill(MilvusClient(address), rows)
    before = _bytes(data_dir)
    server = Server(address.removeprefix("http://"))
    times_s = []
    for number in range(CLONES):
        time.sleep(REST_S)
        began_s = time.perf_counter()
        target = f"clone_{number}"
        asked(server, partial(_clone, target=target))
        times_s.append(time.perf_counter() - began_s)
    after = _bytes(data_dir)
    client = MilvusClient(address)
    client.load_collection("clone_0")
    (counted,) = client.query("clone_0", output_fields=["count(*)"])
    began_s = time.perf_counter()
    shutil.copytree(data_dir / "files", data_dir.parent / "copy")
    copied_s = time.perf_counter() - began_s
    more = {kind: after[kind] - before[kind] for kind in before}
    print(f"source: {rows:,} rows, {before['rows']:,} bytes")
    print(f"{CLONES} clones: {more['rows']:,} bytes of rows copied, {more['other']:,} bytes of manifests")
    print(f"indexes built meanwhile, of the source too: {more['indexes']:,} bytes")
    print(f"a clone: {sorted(times_s)[CLONES // 2]:.2f} s ({min(times_s):.2f} to {max(times_s):.2f})")
    print(f"a copy of the files: {copied_s:.2f} s; rows of a clone: {counted['count(*)']:,}")


async def _clone(own: ConnectorApi, target: str) -> RestoreJob:
    return await own.clone_collection("default", "source", target, NO_TIMESTAMP)


def _fill(client: MilvusClient, rows: int) -> None:
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("source", schema=schema, index_params=index)
    client.release_collection("source")
    random = np.random.default_rng(1)
    for first in range(0, rows, CHUNK_ROWS):
        vectors = random.random((min(CHUNK_ROWS, rows - first), DIM), dtype=np.float32)
        client.insert("source", [{"id": first + n, "vector": vector} for n, vector in enumerate(vectors)])
    client.flush("source", timeout=600)


def _bytes(data_dir: Path) -> dict[str, int]:
    """Return the bytes of the object store by kind."""
    files = data_dir / "files"
    found = {"rows": 0, "indexes": 0, "other": 0}
    for path in files.rglob("*"):
        if path.is_file():
            top = path.relative_to(files).parts[0]
            kind = "rows" if top in _ROWS else "indexes" if top in _INDEXES else "other"
            found[kind] += path.stat().st_size
    return found


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
