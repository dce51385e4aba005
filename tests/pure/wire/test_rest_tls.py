"""The REST API with certificates: clients trust the server's, and show their own where it asks for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import trustme
from fake_verbs import FakeVerbs
from rest_client import rest_front

from elanus.proxy.rest.server import RestServer
from elanus.rpc.security import FrontSecurity


def write_files(directory: Path, ca: trustme.CA) -> None:
    """Write the CA, the server's certificate and key, and a client's own in one file."""
    served, own = ca.issue_cert("localhost"), ca.issue_cert("client@elanus.example")
    ca.cert_pem.write_to_path(str(directory / "ca"))
    served.cert_chain_pems[0].write_to_path(str(directory / "cert"))
    served.private_key_pem.write_to_path(str(directory / "key"))
    own.private_key_and_cert_chain_pem.write_to_path(str(directory / "own"))


@pytest.mark.parametrize("asks_clients", [False, True])
def test_only_clients_that_fit_are_served(tmp_path: Path, asks_clients: bool) -> None:
    ca = trustme.CA()
    write_files(tmp_path, ca)
    paths = {name: str(tmp_path / name) for name in ("ca", "own")}
    tls = FrontSecurity(tmp_path / "cert", tmp_path / "key", tmp_path / "ca" if asks_clients else None)
    with ThreadPoolExecutor(2) as workers:
        front = rest_front(FakeVerbs())
        server = RestServer(front, workers, "127.0.0.1", 0, body_max_bytes=1000, tls=tls)
        url = server.start()
        path = f"https://localhost:{url.rpartition(':')[2]}/v2/vectordb/collections/list"
        try:
            assert url.startswith("https://")
            with requests.Session() as client:
                answer = client.post(path, json={}, verify=paths["ca"], cert=paths["own"], timeout=30)
                assert answer.json()["code"] == 0
                large = client.post(path, b" " * 8_000_000, verify=paths["ca"], cert=paths["own"], timeout=30)
                assert (large.status_code, large.json()["code"]) == (413, 413)
            with requests.Session() as stranger:
                if asks_clients:
                    with pytest.raises(requests.ConnectionError):
                        stranger.post(path, json={}, verify=paths["ca"], timeout=30)
                else:
                    assert stranger.post(path, json={}, verify=paths["ca"], timeout=30).status_code == 200
                with pytest.raises(requests.ConnectionError):
                    stranger.post(path.replace("https", "http"), json={}, timeout=30)
        finally:
            server.stop(grace_s=0)
