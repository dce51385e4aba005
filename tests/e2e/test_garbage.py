"""Dropped collections leave the disk: through the unmodified client, tolerances at zero, under kills."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from harness import SPARK_DEADLINE_S, Server, until
from pymilvus import MilvusClient

from elanus.api.gc import GcReport, GcStatus
from elanus.cli import remote
from elanus.core.gc import Verdict

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

log = logging.getLogger(__name__)

DIM = 64
ROWS = 4000
SETTINGS = {
    "gc.drop_tolerance_s": 0,
    "gc.missing_tolerance_s": 0,
    "indexcoord.index_rows_min": 200,
}


def make(client: MilvusClient, name: str) -> None:
    """An indexed, loaded collection, all of it in files."""
    client.create_collection(name, dimension=DIM, index_params=None)
    write(client, name, "_default", 0)
    client.create_partition(name, "other")
    write(client, name, "other", ROWS)
    client.flush(name)
    (index,) = client.list_indexes(name)
    until(
        lambda: client.describe_index(name, index)["indexed_rows"] == 2 * ROWS,
        SPARK_DEADLINE_S,
        "every segment has its index",
    )


def write(client: MilvusClient, name: str, partition: str, first: int) -> None:
    vectors = np.random.default_rng(first).random((ROWS, DIM), dtype=np.float32)
    rows = [{"id": first + n, "vector": vector} for n, vector in enumerate(vectors)]
    client.insert(name, rows, partition_name=partition)


def collect(server: Server, *, dry: bool = False) -> GcReport:
    """A round, to its end."""
    before = status(server).rounds
    remote.collect_garbage(server.observe_url, dry=dry)
    until(lambda: status(server).rounds > before, SPARK_DEADLINE_S, "the round ends", poll_s=0.1)
    report = status(server).last
    assert report is not None
    return report


def status(server: Server) -> GcStatus:
    return msgspec.json.decode(remote.get(f"{server.observe_url}/gc"), type=GcStatus)


def disk_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def disk_is_as_it_was(server: Server, files: Path, most_bytes: int) -> bool:
    """After one more round. A round that left too much says who holds it."""
    report = collect(server)
    excess_bytes = disk_bytes(files) - most_bytes
    if excess_bytes > 0:
        sizes = {str(path.relative_to(files)): disk_bytes(path) for path in sorted(files.glob("*/*"))}
        held_by = report.pinned, report.held
        log.warning("%d bytes too many: %s %s %s", excess_bytes, held_by, report.error, sizes)
    return report.error == "" and excess_bytes <= 0


def is_let_go(report: GcReport) -> bool:
    return all(finding.verdict is not Verdict.PINNED for finding in report.findings)


def rows_in(client: MilvusClient, name: str) -> int:
    client.load_collection(name)
    return int(client.query(name, "", output_fields=["count(*)"], consistency_level="Strong")[0]["count(*)"])


def test_the_disk_shrinks_to_what_lives(new_server: Callable[..., Server]) -> None:
    server = new_server(SETTINGS).start().wait_for_spark()
    client = server.client()
    files = server.data_dir / "files"
    make(client, "kept")
    assert rows_in(client, "kept") == 2 * ROWS
    collect(server)
    alone_bytes = disk_bytes(files)
    make(client, "dropped")
    assert rows_in(client, "dropped") == 2 * ROWS
    both_bytes = disk_bytes(files)
    assert both_bytes > 1.8 * alone_bytes

    client.release_partitions("dropped", ["other"])
    client.drop_partition("dropped", "other")
    until(lambda: status(server).waiting_bytes > 0, 30, "the partition's segments are dropped")
    # what a node has not let go of yet is kept back, in one round and not in the next
    until(lambda: is_let_go(collect(server, dry=True)), 60, "no node holds the partition's segments")
    rows_bytes = disk_bytes(files / "insert_log")  # the dropped segments' indexes go by themselves
    dry = collect(server, dry=True)
    assert disk_bytes(files / "insert_log") == rows_bytes
    assert (dry.error, dry.reclaimed_bytes) == ("", 0)
    report = collect(server)
    assert report.error == ""
    assert {f.verdict: f.objects for f in report.findings} == {f.verdict: f.objects for f in dry.findings}
    assert disk_bytes(files) < both_bytes - 0.2 * alone_bytes
    assert rows_in(client, "dropped") == ROWS

    client.drop_collection("dropped")
    # the data node has to read the message first
    until(
        lambda: disk_is_as_it_was(server, files, int(1.02 * alone_bytes)),
        SPARK_DEADLINE_S,
        "the disk is as it was",
    )
    assert rows_in(client, "kept") == 2 * ROWS
    server.restart()
    assert rows_in(server.client(), "kept") == 2 * ROWS


def test_a_kill_amid_a_round_loses_nothing(
    new_server: Callable[..., Server],
) -> None:
    server = new_server(SETTINGS).start().wait_for_spark()
    client = server.client()
    make(client, "kept")
    make(client, "dropped")
    client.drop_collection("dropped")
    until(lambda: status(server).waiting_bytes > 0, 30, "its segments are dropped")
    killer = threading.Timer(0.3, server.kill_pipeline)
    killer.start()
    report = collect(server)
    killer.join()
    remote.collect_garbage(server.observe_url, dry=False)
    server.kill()
    server.start().wait_for_spark()
    client = server.client()
    report = collect(server)
    assert report.error == ""
    assert status(server).waiting_bytes == 0
    owners = {path.name for path in (server.data_dir / "files" / "insert_log").iterdir()}
    assert len(owners) == 1
    assert rows_in(client, "kept") == 2 * ROWS
