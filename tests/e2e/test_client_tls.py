"""`elanus serve` with a certificate: what clients see, and what ends its start."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import certificates
import pytest
from harness import Server
from pymilvus import MilvusClient

pytestmark = [pytest.mark.e2e]

NewServer = Callable[..., Server]
NAME = "elanus.example"


def test_clients_connect_with_tls(new_server: NewServer, tmp_path: Path) -> None:
    files = certificates.make(tmp_path / "certificates", NAME)
    tls = {"proxy.tls_cert": files["cert"], "proxy.tls_key": files["key"]}
    server = new_server({"pipeline.enabled": "false", **tls}).start()
    client = MilvusClient(
        f"https://{server.address}", secure=True, server_pem_path=files["ca"], server_name=NAME
    )
    client.create_collection("rows", dimension=4, metric_type="L2", consistency_level="Strong")
    client.insert("rows", [{"id": n, "vector": [float(n)] * 4} for n in range(10)])
    (hits,) = client.search("rows", [[3.0] * 4], limit=1)
    assert hits[0]["id"] == 3
    client.close()


def test_a_certificate_without_its_key_ends_the_start(new_server: NewServer, tmp_path: Path) -> None:
    files = certificates.make(tmp_path / "one", NAME)
    other = certificates.make(tmp_path / "other", NAME)
    tls = {"proxy.tls_cert": files["cert"], "proxy.tls_key": other["key"]}
    server = new_server({"pipeline.enabled": "false", **tls})
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"the key in {other['key']} does not belong to the certificate in {files['cert']}" in done.stderr
    assert "Traceback" not in done.stderr
