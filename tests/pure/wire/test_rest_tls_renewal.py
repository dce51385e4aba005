"""The files of the REST API's certificates are replaced while it serves, asked over real sockets."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import trustme
from fake_verbs import FakeVerbs
from rest_client import rest_front
from structlog.testing import capture_logs
from test_rest_tls import write_files

from elanus.proxy.rest.server import RestServer
from elanus.rpc.security import FrontSecurity

PATH = "/v2/vectordb/collections/list"
Port = int


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Directories with the files of two CAs, and one with what the server uses: at first of the CA one."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_files(tmp_path / name, trustme.CA())
    shutil.copytree(tmp_path / "one", tmp_path / "used")
    return tmp_path


@contextmanager
def serving(used: Path, *, asks_clients: bool = False) -> Iterator[Port]:
    tls = FrontSecurity(used / "cert", used / "key", used / "ca" if asks_clients else None)
    with ThreadPoolExecutor(2) as workers:
        server = RestServer(rest_front(FakeVerbs()), workers, "127.0.0.1", 0, body_max_bytes=1000, tls=tls)
        port = int(server.start().rpartition(":")[2])
        try:
            yield port
        finally:
            server.stop(grace_s=0)


def trusting(ca: Path, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if own is not None:
        context.load_cert_chain(own)
    return context


def asked(connection: HTTPSConnection) -> int:
    """The HTTP status of one request; the connection stays open."""
    connection.request("POST", PATH, b"{}", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def connected(port: Port, context: ssl.SSLContext) -> HTTPSConnection:
    return HTTPSConnection("localhost", port, context=context, timeout=30)


def answers(port: Port, context: ssl.SSLContext) -> bool:
    """Whether a new connection gets an answer."""
    connection = connected(port, context)
    try:
        return asked(connection) == 200
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        connection.close()


def install(source: Path, target: Path, *names: str) -> None:
    """Put files in place as a renewal does: each at once."""
    for name in names:
        shutil.copy(source / name, target / f"{name}.new")
        (target / f"{name}.new").rename(target / name)


def test_new_connections_see_a_renewed_certificate_and_old_ones_go_on(made: Path) -> None:
    one, two = (trusting(made / name / "ca") for name in ("one", "two"))
    with serving(made / "used") as port:
        old = connected(port, one)
        assert asked(old) == 200
        assert answers(port, one)
        install(made / "two", made / "used", "cert", "key")
        assert answers(port, two)
        assert not answers(port, one)
        assert asked(old) == 200
        old.close()


def test_unusable_files_leave_the_former_certificate_and_one_warning(made: Path) -> None:
    one, two, used = trusting(made / "one" / "ca"), trusting(made / "two" / "ca"), made / "used"
    with serving(used) as port, capture_logs() as lines:
        install(made / "two", used, "cert")
        assert [answers(port, one) for _ in range(3)] == [True] * 3
        (warning,) = lines
        assert (warning["log_level"], warning["port"]) == ("warning", "HTTP")
        assert "does not belong to the certificate" in warning["error"]
        install(made / "two", used, "key")
        assert answers(port, two)
        assert [line["event"] for line in lines[1:]] == ["certificate renewed"]
        (used / "cert").unlink()
        assert answers(port, two)
        assert "cannot be read" in lines[2]["error"]


def test_a_changed_ca_of_clients_counts_for_new_connections_alone(made: Path) -> None:
    """A client that was let in under the former CA cannot resume its session."""
    used, ca = made / "used", made / "one" / "ca"
    former, new = trusting(ca, made / "one" / "own"), trusting(ca, made / "two" / "own")
    with serving(used, asks_clients=True) as port:
        old = connected(port, former)
        assert asked(old) == 200
        resumed = ResumedConnection(port, former, old.sock.session)
        assert asked(resumed) == 200
        assert resumed.sock.session_reused
        assert not answers(port, new)
        install(made / "two", used, "ca")
        assert answers(port, new)
        assert not answers(port, former)
        again = ResumedConnection(port, former, old.sock.session)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            asked(again)
        assert asked(old) == 200
        for connection in (old, resumed, again):
            connection.close()


class ResumedConnection(HTTPSConnection):
    """A connection that resumes the TLS session of another."""

    def __init__(self, port: Port, context: ssl.SSLContext, session: ssl.SSLSession) -> None:
        super().__init__("localhost", port, context=context, timeout=30)
        self._tls, self._session = context, session

    def connect(self) -> None:
        super(HTTPSConnection, self).connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname="localhost", session=self._session)
