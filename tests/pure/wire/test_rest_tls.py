"""The REST API with certificates: clients trust the server's, and show their own where it asks for them."""

from __future__ import annotations

import asyncio
import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import pytest
import requests
import trustme
from fake_verbs import FakeVerbs
from rest_client import rest_front

from elanus.proxy.rest import accepting
from elanus.proxy.rest import server as rest_server
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


def test_silent_connections_give_way_and_take_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have not completed their handshake count, too: others may make any number of them."""
    monkeypatch.setattr(rest_server, "_TLS_HELLO_WAIT_S", 600.0)
    ca = trustme.CA()
    write_files(tmp_path, ca)
    tls = FrontSecurity(tmp_path / "cert", tmp_path / "key", None)
    with ThreadPoolExecutor(2) as workers, ExitStack() as opened:
        server = RestServer(
            rest_front(FakeVerbs()), workers, "127.0.0.1", 0, body_max_bytes=1000, connections_max=8, tls=tls
        )
        port = int(server.start().rpartition(":")[2])
        try:
            before = open_files()
            silent = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(200)]
            for one in silent[:190]:
                one.settimeout(30)
                with suppress(ConnectionResetError):
                    assert one.recv(1) == b""
            assert open_files() - before - len(silent) <= 8 + 1 + 8
            path = f"https://localhost:{port}/v2/vectordb/collections/list"
            assert requests.post(path, json={}, verify=str(tmp_path / "ca"), timeout=30).status_code == 200
        finally:
            server.stop(grace_s=0)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class NoFiles:
    """A listening socket whose process has no file left for a connection."""

    def __init__(self, listener: socket.socket) -> None:
        self.fileno = listener.fileno
        self.asked = 0
        self.asked_thrice = asyncio.Event()

    def accept(self) -> None:
        self.asked += 1
        if self.asked == 3:
            self.asked_thrice.set()
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_port_without_files_for_connections_asks_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "_PAUSE_S", 0.02)
    refused: list[int] = []

    async def serve(listener: socket.socket) -> None:
        full = NoFiles(listener)
        acceptor = accepting.Acceptor(
            asyncio.Protocol,
            cast(socket.socket, full),
            tls=None,
            hello_wait_s=1,
            goodbye_wait_s=1,
            connected=lambda: 0,
            most=8,
            refused=lambda: refused.append(full.asked),
        )
        await asyncio.wait_for(full.asked_thrice.wait(), 30)
        acceptor.close()

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        asyncio.run(serve(listener))
    assert refused == [1, 2, 3], "once at each attempt"
