"""`elanus dev-cluster`: one command, and a client has a cluster to talk to."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from harness import until
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from elanus.devcluster.process import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.services, pytest.mark.jvm]

ROWS = 500
READY_S = 180


def test_one_command_and_a_client_has_a_cluster(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "elanus", "dev-cluster", "--dir", str(tmp_path), "--port", str(port)]
    command += ["--data-nodes", "2"]
    with (tmp_path / "said").open("w") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until(lambda: _is_ready(running, tmp_path), READY_S, "the cluster is ready", poll_s=0.2)
        family = psutil.Process(running.pid).children(recursive=True)
        client = MilvusClient(f"http://127.0.0.1:{port}")
        client.create_collection("rows", dimension=8, consistency_level="Strong")
        vectors = np.random.default_rng(1).random((ROWS, 8), dtype=np.float32)
        client.insert("rows", [{"id": n, "vector": v} for n, v in enumerate(vectors)])
        client.flush("rows")
        assert client.query("rows", output_fields=["count(*)"])[0]["count(*)"] == ROWS
        _kill_query_node(family)
        until(
            lambda: "query node 1 is ready again" in _said(tmp_path), READY_S, "the node is back", poll_s=0.2
        )
        assert "query node 1 has ended by signal 9" in _said(tmp_path)
        assert running.poll() is None
        until(lambda: _count(client) == ROWS, READY_S, "its rows are served", poll_s=0.5)
        client.close()
        said = re.search(r"elanus (status --url \S+)", (tmp_path / "said").read_text())
        assert said is not None
        status = [sys.executable, "-m", "elanus", *said[1].split()]
        shown = subprocess.run(status, capture_output=True, text=True, timeout=60, check=True).stdout
        assert len(re.findall(r"querynode +\d+", shown)) == 2
        assert len(re.findall(r"datanode +\d+", shown)) == 2
        family = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        _, alive = psutil.wait_procs(family, timeout=15)
        assert alive == []
    finally:
        running.kill()
        running.wait()


def _kill_query_node(family: list[psutil.Process]) -> None:
    """The first one that was started."""
    alive = [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    nodes = [p for p in alive if "querynode" in p.cmdline()]
    min(nodes, key=lambda p: p.create_time()).kill()


def _count(client: MilvusClient) -> int | None:
    """The cluster's count; ``None`` while it answers with an error."""
    try:
        return int(client.query("rows", output_fields=["count(*)"])[0]["count(*)"])
    except MilvusException:
        return None


def _said(directory: Path) -> str:
    return (directory / "said").read_text()


def _is_ready(running: subprocess.Popen[bytes], directory: Path) -> bool:
    said = (directory / "said").read_text()
    assert running.poll() is None, said
    return "ready in" in said
