"""The front with a certificate: the client library connects with TLS, and not without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trustme
from fake_verbs import FakeVerbs
from pymilvus import MilvusClient
from wire_calls import calls_of

from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.security import FrontSecurity

NAME = "elanus.example"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The port, and the file with the CA that clients trust."""
    ca = trustme.CA()
    cert = ca.issue_cert(NAME)
    security = FrontSecurity(tmp_path / "cert.pem", tmp_path / "key.pem")
    cert.cert_chain_pems[0].write_to_path(security.certificate)
    cert.private_key_pem.write_to_path(security.key)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", 0, max_workers=4, security=security)
    yield server.start(), str(tmp_path / "ca.pem")
    server.stop(grace_s=0)


def test_a_client_that_trusts_the_ca_is_served(served: tuple[int, str]) -> None:
    port, ca = served
    client = MilvusClient(f"https://127.0.0.1:{port}", secure=True, server_pem_path=ca, server_name=NAME)
    assert client.list_collections() == []
    client.close()


def test_a_client_without_tls_is_not(served: tuple[int, str]) -> None:
    port, _ = served
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        send = channel.unary_unary("/milvus.proto.milvus.MilvusService/GetVersion")
        with pytest.raises(grpc.RpcError) as refusal:
            send(b"", timeout=10)
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
