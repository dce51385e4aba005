"""`elanus explain`: what it sends to the REST API, and what it says of refusals and of certificates."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from elanus.cli.app import app

Serve = Callable[..., str]
EXPLAINED = {"code": 0, "data": [], "explain": {"text": "Search: 1 ms"}}


@contextmanager
def rest_api(
    answer: dict[str, object], status: int, files: Path | None, bodies: list[object]
) -> Iterator[str]:
    """The URL of a REST API that gives every request this answer; ``files``: of `elanus tls init`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"]))))
            body = msgspec.json.encode(answer)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that refuses the certificate ends the handshake: nothing to say."""

    server, scheme = Server(("127.0.0.1", 0), Handler), "http"
    if files is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files / "server.pem", files / "server.key")
        server.socket, scheme = context.wrap_socket(server.socket, server_side=True), "https"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


@pytest.fixture
def bodies() -> list[object]:
    return []


@pytest.fixture
def serve(bodies: list[object]) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda answer, status=200, files=None: stack.enter_context(
            rest_api(answer, status, files, bodies)
        )


def explained(*arguments: object) -> Result:
    # wide enough that no message is folded
    return CliRunner().invoke(app, ["explain", "books", *map(str, arguments)], env={"COLUMNS": "400"})


def test_keys_and_texts_that_look_like_numbers_are_sent_as_texts(serve: Serve, bodies: list[object]) -> None:
    url = serve(EXPLAINED)
    assert explained("--like", 5, "--uri", url).output == "Search: 1 ms\n"
    explained("--vector", 2024, "--uri", url)
    explained("--vector", "[0.5, 1]", "--uri", url)
    explained("--vector", '{"3": 0.5}', "--uri", url)
    sent = [body.get("ids") or body["data"] for body in bodies if isinstance(body, dict)]
    assert sent == [["5"], ["2024"], [[0.5, 1]], [{"3": 0.5}]]


def test_a_refusal_with_an_http_status_is_shown_like_others(serve: Serve) -> None:
    refusal: dict[str, object] = {"code": 1100, "message": "field dnse not found"}
    for status in (200, 400):
        done = explained("--uri", serve(refusal, status))
        assert (done.exit_code, done.output) == (1, "query failed with code 1100: field dnse not found\n")
    done = explained("--uri", serve({}, 404))
    assert "no REST API answers at" in done.output
    assert "404" in done.output


def test_the_certificate_is_checked_by_the_ca_and_the_name_that_are_given(
    serve: Serve, tmp_path: Path
) -> None:
    files = tmp_path / "tls"
    assert CliRunner().invoke(app, ["tls", "init", str(files), "--name", "elanus.example"]).exit_code == 0
    url = serve(EXPLAINED, files=files)
    trusted = ("--uri", url, "--tls-ca", files / "ca.pem")
    done = explained(*trusted, "--tls-server-name", "elanus.example")
    assert (done.exit_code, done.output) == (0, "Search: 1 ms\n")
    for options in (trusted, (*trusted, "--tls-server-name", "other.example"), ("--uri", url)):
        refused = explained(*options)
        assert refused.exit_code == 1
        assert f"the certificate of {url}" in refused.output
        assert "--tls-ca" in refused.output
        assert "--tls-server-name" in refused.output


def test_a_ca_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    done = explained("--uri", "https://127.0.0.1:1", "--tls-ca", missing)
    assert done.exit_code == 2
    assert "ca.pem" in done.output
    assert explained("--uri", "http://127.0.0.1:1", "--tls-ca", missing).exit_code == 2
