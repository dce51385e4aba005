"""Requests to S3 that fail for a while, made to a server on loopback that fails on request."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from elanus.core.errors import Unavailable
from elanus.storage import s3
from elanus.storage.s3 import S3Store

PAGE = 2
AWAY, BROKEN, NO_SUCH_REQUEST = "closes the connection", "half a body", "501"


class Server(ThreadingHTTPServer):
    """A bucket. ``faults``: how the next requests of a kind go wrong, one each; the last one stays if
    ``for_good``. ``asked``: the kinds of the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.names: list[str] = []
        self.faults: dict[str, list[str]] = {}
        self.for_good = False
        self.asked: list[str] = []

    def fault(self, kind: str) -> str:
        self.asked.append(kind)
        faults = self.faults.get(kind, [])
        if not faults:
            return ""
        return faults[0] if self.for_good and len(faults) == 1 else faults.pop(0)

    def handle_error(self, *_: object) -> None:
        """A client that closes its connection is no failure of a test."""


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" not in asked:
            self.answer("get", b"content", ETag='"1"', **{"Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT"})
            return
        after = asked.get("continuation-token", asked.get("start-after", [""]))[0]
        at = self.server.names.index(after) + 1 if after else 0
        page, left = self.server.names[at : at + PAGE], self.server.names[at + PAGE :]
        entries = "".join(
            f"<Contents><Key>{name}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
            "</Contents>"
            for name in page
        )
        more = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if left else ""
        self.answer("list", f"<ListBucketResult>{entries}{more}</ListBucketResult>".encode())

    def do_PUT(self) -> None:
        self.received()
        self.answer("put", b"", ETag='"1"')

    def do_POST(self) -> None:
        keys = re.findall("<Key>(.*?)</Key>", self.received())
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer("delete many", f"<DeleteResult>{deleted}</DeleteResult>".encode(), gone=keys)

    def do_DELETE(self) -> None:
        self.answer("delete", b"", gone=[unquote(self.path).removeprefix("/bucket/")])

    def received(self) -> str:
        return self.rfile.read(int(self.headers["Content-Length"])).decode()

    def answer(self, kind: str, body: bytes, gone: Sequence[str] = (), **headers: str) -> None:
        """``gone``: the names that the request deletes, if nothing goes wrong."""
        fault = self.server.fault(kind)
        if fault == AWAY:
            return
        if not fault:
            self.server.names = [name for name in self.server.names if name not in gone]
        self.send_response(501 if fault == NO_SUCH_REQUEST else 200)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault == BROKEN else body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(server: Server, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(s3, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(s3, "_LONGEST_PAUSE_S", 0.002)
    monkeypatch.setattr(s3, "_LIST_CHUNK", PAGE)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    host, port = server.server_address[:2]
    return S3Store(f"s3://bucket?region=us-east-1&endpoint=http://{host!s}:{port}")


def test_a_listing_that_breaks_off_continues_behind_its_last_object(server: Server, store: S3Store) -> None:
    server.names = [f"a/{number}" for number in range(7)]
    server.faults["list"] = ["", BROKEN, BROKEN, "", BROKEN]
    assert [info.path for info in store.list("a")] == server.names


def test_a_listing_without_order_that_breaks_off_is_refused(server: Server, store: S3Store) -> None:
    """The names behind its last object are not known."""
    server.names = ["a/3", "a/1", "a/2", "a/4"]
    assert [info.path for info in store.list("a")] == server.names
    server.faults["list"] = ["", BROKEN]
    with pytest.raises(Unavailable, match="does not answer for a: "):
        list(store.list("a"))


@pytest.mark.parametrize("kind", ["get", "list", "put", "delete", "delete many"])
def test_a_store_that_is_away_for_some_tries_is_asked_again(
    server: Server, store: S3Store, kind: str
) -> None:
    server.names = ["a/1", "a/2"]
    server.faults[kind] = [AWAY] * 12
    store.put("a/3", b"content")
    assert store.get("a/1").to_pybytes() == b"content"
    assert [info.path for info in store.list("a")] == ["a/1", "a/2"]
    store.delete("a/1")
    store.delete_all(["a/2"])
    assert server.names == []
    assert server.asked.count(kind) == 13


@pytest.mark.parametrize("kind", ["list", "put", "delete", "delete many"])
def test_a_store_that_stays_away_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, store: S3Store, kind: str
) -> None:
    server.for_good = True
    server.faults[kind] = [BROKEN if kind == "list" else AWAY]
    monkeypatch.setattr(s3, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(s3, "_BRIEF_PATIENCE_S", 0.01)
    store = S3Store(store.url)
    calls: dict[str, Callable[[], object]] = {
        "list": lambda: list(store.list("")),
        "put": lambda: store.put("a", b""),
        "delete": lambda: store.delete("a"),
        "delete many": lambda: store.delete_all(["a"]),
    }
    with pytest.raises(Unavailable, match="does not answer"):
        calls[kind]()


def test_a_store_without_requests_for_many_deletes_one_by_one(
    server: Server, monkeypatch: pytest.MonkeyPatch, store: S3Store
) -> None:
    server.names = [f"a/{number}" for number in range(6)]
    server.for_good = True
    server.faults["delete many"] = [NO_SUCH_REQUEST]
    monkeypatch.setattr(s3, "_BRIEF_PATIENCE_S", 0.01)
    store = S3Store(store.url)
    store.delete_all([f"a/{number}" for number in range(3)])
    assert server.names == ["a/3", "a/4", "a/5"]
    asked = server.asked.count("delete many")
    store.delete_all(["a/3", "a/4"])
    assert server.names == ["a/5"]
    assert server.asked.count("delete many") == asked, "it is known by now"
