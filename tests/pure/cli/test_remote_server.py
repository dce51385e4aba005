"""Addresses at which no server of this release answers: one line that says why, and no traceback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from elanus.cli import remote
from elanus.cli.explain import Explained, explain
from elanus.cli.remote import NoAnswer

HTTP2_SETTINGS = b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\4\0"
"""The first bytes of a gRPC server."""


@pytest.fixture
def other_protocol() -> Iterator[str]:
    """The URL of a server that does not speak HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # the test has ended
                    return
                with connection:
                    connection.sendall(HTTP2_SETTINGS)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1000):  # a connection that is closed before is reset
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_a_port_of_another_protocol_is_named(other_protocol: str) -> None:
    for ask in (remote.get, lambda url: explain(url, "", Explained("default", "books"))):
        with pytest.raises(NoAnswer, match=r"what answers at http://127.0.0.1:\d+ does not speak HTTP"):
            ask(other_protocol)


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://[::1", "http://a b"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    for ask in (
        remote.get,
        lambda url: remote.cancel_job(url, "7"),
        lambda url: explain(url, "", Explained("default", "books")),
    ):
        with pytest.raises(NoAnswer, match="is no address of a server"):
            ask(url)


def test_the_port_of_the_rest_api_is_not_taken_for_the_metrics_port() -> None:
    class NothingThere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), NothingThere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(NoAnswer, match=r"404 Not Found: that is not the metrics port .*metrics\.port"):
            remote.get(f"http://127.0.0.1:{server.server_port}/status")
        server.shutdown()
