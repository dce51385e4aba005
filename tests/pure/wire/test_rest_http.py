"""The REST API on its port: HTTP as such, and what hostile or broken clients send."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import importlib.util
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymilvus
import pytest
from fake_verbs import FakeVerbs
from polling import until
from rest_client import rest_front
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from elanus.core.access import first_policy
from elanus.core.errors import Unavailable
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.rest import entrance, v1
from elanus.proxy.rest import server as rest_server
from elanus.proxy.rest.server import RestServer
from elanus.proxy.rest.table import PREFIX, TABLE
from elanus.rpc.serving.waiting import client_of_thread

BODY_MAX_BYTES = 100_000
LIST = "/v2/vectordb/collections/list"
Answer = tuple[int, dict[str, Any]]


async def _page(request: object) -> PlainTextResponse:
    return PlainTextResponse("console")


@pytest.fixture
def port(verbs: FakeVerbs) -> Iterator[int]:
    with ThreadPoolExecutor(4) as workers:
        server = RestServer(
            rest_front(verbs),
            workers,
            "127.0.0.1",
            0,
            body_max_bytes=BODY_MAX_BYTES,
            mounts=[Route("/ui", _page)],
        )
        url = server.start()
        yield int(url.rpartition(":")[2])
        server.stop(grace_s=0)


def ask(port: int, path: str, body: bytes = b"{}", method: str = "POST", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = {"content-type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
    try:
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        content = response.read()
        assert response.headers["access-control-allow-origin"] is None
    finally:
        connection.close()
    answer: dict[str, Any] = json.loads(content)
    return response.status, answer


def test_requests_on_one_connection(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for path, body in (
        ("collections/create", {"collectionName": "c", "dimension": 2}),
        ("entities/insert", {"collectionName": "c", "data": [{"id": 1, "vector": [1, 0]}]}),
        ("collections/list", {}),
    ):
        connection.request(
            "POST", f"/v2/vectordb/{path}", json.dumps(body), {"content-type": "application/json"}
        )
        answer = json.loads(connection.getresponse().read())
        assert answer["code"] == 0, answer
    assert answer["data"] == ["c"]
    connection.close()


def test_the_first_generation(port: int) -> None:
    def post(path: str, **body: Any) -> Any:
        status, answer = ask(port, f"/v1/vector/{path}", json.dumps({"collectionName": "c", **body}).encode())
        assert (status, answer["code"]) == (200, 200), answer
        return answer["data"]

    assert post("collections/create", dimension=2) == {}
    assert ask(port, "/v1/vector/collections?dbName=default", b"", "GET") == (
        200,
        {"code": 200, "data": ["c"]},
    )
    _, described = ask(port, "/v1/vector/collections/describe?collectionName=c", b"", "GET")
    assert described["data"]["collectionName"] == "c"
    assert described["data"]["autoId"]
    keys = post("insert", data={"vector": [1, 0], "n": 5})["insertIds"]
    assert post("search", vector=[1, 0], outputFields=["n"], limit=1) == [
        {"n": 5, "id": keys[0], "distance": 0.0}
    ]
    assert [row["n"] for row in post("query", limit=1)] == [5]
    post("delete", id=keys)
    assert post("query", limit=1) == []
    post("collections/drop")
    assert ask(port, "/v1/vector/collections", b"{}", "POST")[0] == 405
    assert ask(port, "/v1/vector/search", b"", "GET")[0] == 405
    assert ask(port, "/v1/vector/none", b"{}")[0] == 404
    assert ask(port, "/v1/vector/delete", b'{"collectionName": "c"}')[1]["code"] == 1802


def test_the_openapi_document_is_served(port: int) -> None:
    status, document = ask(port, "/openapi.json", b"", "GET")
    assert (status, document["openapi"]) == (200, "3.1.0")


def test_with_users_nothing_but_pages_answers_without_a_token(verbs: FakeVerbs) -> None:
    sign_in = SignIn(first_policy, "Milvus")
    with ThreadPoolExecutor(2) as workers:
        rest = RestServer(
            rest_front(verbs, sign_in=sign_in), workers, "127.0.0.1", 0, body_max_bytes=BODY_MAX_BYTES
        )
        port = int(rest.start().rpartition(":")[2])
        try:
            paths = [("POST", PREFIX + path) for path in TABLE]
            paths += [("GET" if path in v1.READS else "POST", v1.PREFIX + path) for path in v1.TABLE]
            paths.append(("GET", "/openapi.json"))
            for method, path in paths:
                assert ask(port, path, b"{}", method)[1]["code"] == 1800, path
            for token, status in (("root:Milvus", 200), ("root:wrong", 401), ("elk_0_none", 401)):
                sent = f"Bearer {token}"
                assert ask(port, "/openapi.json", b"", "GET", authorization=sent)[0] == status
            assert ask(port, "/openapi.json", b"", "GET", authorization="Basic %%%")[0] == 400
        finally:
            rest.stop(grace_s=0)


@pytest.mark.parametrize("name", ["Authorization", "DB-Name"])
def test_a_request_has_one_token_and_one_database(port: int, name: str) -> None:
    line = f"{name}: x\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nhost: localhost\r\n%s%s\r\n" % (LIST.encode(), line, line))
        assert client.recv(12) == b"HTTP/1.1 400"


def test_what_anybody_sends_does_not_fill_the_log(port: int, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n"
    for sent in (b"no request\r\n\r\n", b"GET /ui HTTP/1.1\r\nhost: localhost\r\n" + upgrade + b"\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(sent)
            assert client.recv(12).startswith(b"HTTP/1.1 ")
    assert [record.message for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_other_applications_can_be_mounted(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/ui")
    assert connection.getresponse().read() == b"console"
    connection.close()


@pytest.mark.parametrize(
    ("path", "body", "method", "headers", "status", "code"),
    [
        ("/v2/vectordb/none/list", b"{}", "POST", {}, 404, 404),
        ("/v2/vectordb/", b"{}", "POST", {}, 404, 404),
        ("/v3", b"{}", "POST", {}, 404, 404),
        (LIST, b"", "GET", {}, 405, 405),
        (LIST, b"", "OPTIONS", {}, 405, 405),
        (LIST, b"{", "POST", {}, 200, 1801),
        (LIST, b"[]", "POST", {}, 200, 1801),
        (LIST, b"null", "POST", {}, 200, 1801),
        (LIST, b"\xff\xfe", "POST", {}, 200, 1801),
        (LIST, b'{"dbName": "\\ud800"}', "POST", {}, 200, 1801),
        (LIST, b"[" * 50_000, "POST", {}, 200, 1801),
        (LIST, b'{"dbName": ' * 5_000 + b"1" + b"}" * 5_000, "POST", {}, 200, 1801),
        (LIST, b'{"dbName": NaN}', "POST", {}, 200, 1801),
        (LIST, b"{}", "POST", {"content_type": "text/plain;charset=UTF-8"}, 200, 0),
        (LIST, b"{}", "POST", {"content_type": "application/x-www-form-urlencoded"}, 200, 0),
        (LIST, b"a=1", "POST", {"content_type": "application/x-www-form-urlencoded"}, 200, 1801),
        (LIST, b"{}", "POST", {"content_type": "text/plain", "sec_fetch_site": "cross-site"}, 415, 1801),
        (LIST, b"{}", "POST", {"content_type": "text/plain", "referer": "http://evil.example/"}, 415, 1801),
        (LIST, b"{}", "POST", {"content_type": "multipart/form-data", "cookie": "a=1"}, 415, 1801),
        (LIST, b"{}", "POST", {"content_type": "application/json; charset=utf-8"}, 200, 0),
        (LIST, b"{}", "POST", {"content_encoding": "identity"}, 200, 0),
        (LIST, gzip.compress(b"{}", mtime=0), "POST", {"content_encoding": "gzip"}, 415, 1801),
        (LIST, b"{}", "POST", {"origin": "http://evil.example"}, 403, 403),
        (LIST, b"{}", "POST", {"origin": "null"}, 403, 403),
        (LIST, b"{}", "POST", {"host": "evil.example"}, 403, 403),
        (LIST, b"{}", "POST", {"host": "localhost:1"}, 200, 0),
        ("/openapi.json", b"", "GET", {"host": "evil.example"}, 403, 403),
        (LIST, b" " * (BODY_MAX_BYTES + 1), "POST", {}, 413, 413),
        (LIST, b"{}", "POST", {"request_timeout": "soon"}, 200, 1801),
        (LIST, b"{}", "POST", {"request_timeout": "nan"}, 200, 1801),
        (LIST, b"{}", "POST", {"accept_type_allow_int64": "maybe"}, 200, 1801),
        (LIST, b"{}", "POST", {"authorization": "Basic %%%"}, 200, 1801),
        (LIST, b"", "POST", {}, 200, 0),
    ],
)
def test_what_is_refused_has_a_status_and_a_body(
    port: int, path: str, body: bytes, method: str, headers: dict[str, str], status: int, code: int
) -> None:
    found, answer = ask(port, path, body, method, **headers)
    assert (found, answer["code"]) == (status, code), answer
    assert code == 0 or answer["message"]


def test_the_servers_own_pages_may_call_it(port: int) -> None:
    status, _ = ask(port, LIST, origin=f"http://127.0.0.1:{port}", host=f"127.0.0.1:{port}")
    assert status == 200


def test_a_body_in_chunks_is_limited_too(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(
            f"POST {LIST} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        chunk = b" " * 60_000
        for _ in range(2):
            client.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        assert b" 413 " in client.recv(200)


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 10, b"PRI * HTTP/2"]
)
def test_bytes_that_are_no_request_do_not_end_the_server(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(sent)
    assert ask(port, LIST)[0] == 200


def test_slow_bodies_take_no_thread_and_are_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "BODY_WAIT_S", 0.2)
    slow = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(10)]
    for client in slow:
        client.sendall(
            f"POST {LIST} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "content-length: 50\r\n\r\n{".encode()
        )
    assert ask(port, LIST)[0] == 200
    for client in slow:
        assert b" 408 " in client.recv(200)
        client.close()


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"GET /" + b"a" * 500_000, id="path"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, id="many headers"),
        pytest.param(b"GET / HTTP/1.1\r\nx: " + b"y" * 500_000, id="long header"),
        pytest.param(
            f"POST {LIST} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n".encode()
            + b"x: y\r\n" * 100_000,
            id="trailers",
        ),
    ],
)
def test_a_head_that_does_not_end_is_given_up(port: int, piece: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        try:
            client.sendall(piece)
            assert b" 400 " in client.recv(200)
        except ConnectionError:  # closed while it is sent
            pass
    assert ask(port, LIST)[0] == 200


def test_a_body_may_be_larger_than_a_head(port: int) -> None:
    body = b" " * (BODY_MAX_BYTES - 2) + b"{}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(4):  # on one connection, so the sizes of its messages would add up
        connection.request("POST", LIST, body, {"content-type": "application/json"})
        assert json.loads(connection.getresponse().read())["code"] == 0
    connection.close()


def test_the_head_of_a_later_request_is_given_up_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 10 + b"\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        monkeypatch.setattr(rest_server, "HEAD_WAIT_S", 0.2)
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: loc")
        while client.recv(1 << 16):
            pass  # the rest of the first answer, then the end of the connection


def test_a_request_names_one_host(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nhost: example.org\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 400"


def bulk_writer() -> Any:
    """The client's module of bulk imports; its package needs clients of object stores, too."""
    path = Path(pymilvus.__file__).parent / "bulk_writer" / "bulk_import.py"
    spec = importlib.util.spec_from_file_location("bulk_import", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bulk_writer_of_the_client_starts_and_follows_an_import(port: int, verbs: FakeVerbs) -> None:
    client = bulk_writer()
    url = f"http://127.0.0.1:{port}"
    ask(port, "/v2/vectordb/collections/create", b'{"collectionName": "c", "dimension": 2}')
    started = client.bulk_import(url=url, collection_name="c", files=[["a.parquet"]], api_key="root:Milvus")
    job = started.json()["data"]["jobId"]
    assert client.get_import_progress(url=url, job_id=job).json()["data"]["state"] == "Pending"
    records = client.list_import_jobs(url=url, collection_name="c").json()["data"]["records"]
    assert [record["jobId"] for record in records] == [job]


def test_a_port_that_is_taken(verbs: FakeVerbs, port: int) -> None:
    with ThreadPoolExecutor(1) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", port, body_max_bytes=1)
        with pytest.raises(Unavailable, match=str(port)):
            server.start()


def test_requests_in_progress_are_answered_when_the_server_stops(verbs: FakeVerbs) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slowly(database: str) -> list[Any]:
        entered.set()
        assert leave.wait(30)
        return []

    verbs.list_collections = slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1000)
        port = int(server.start().rpartition(":")[2])
        asked = workers.submit(ask, port, LIST)
        assert entered.wait(30)
        stopped = workers.submit(server.stop, 20)
        leave.set()
        assert asked.result(30) == (200, {"code": 0, "data": []})
        stopped.result(60)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_what_has_not_begun_when_its_client_leaves_is_not_done(verbs: FakeVerbs) -> None:
    entered, leave = threading.Event(), threading.Event()
    seen: list[str] = []

    def slowly(database: str) -> list[Any]:
        seen.append(database)
        entered.set()
        assert leave.wait(30)
        return []

    class Workers(ThreadPoolExecutor):
        def submit(self, *work: Any, **named: Any) -> Future[Any]:
            given.append(super().submit(*work, **named))
            return given[-1]

    given: list[Future[Any]] = []
    verbs.list_collections = slowly  # type: ignore[method-assign]
    with Workers(1) as workers, capture_logs() as logs, contextlib.ExitStack() as stack:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1_000_000)
        port = int(server.start().rpartition(":")[2])
        connections = []
        for name in ("begun", "left", "waits"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connections.append(stack.enter_context(contextlib.closing(connection)))
            body = json.dumps({"dbName": name}) + " " * 500_000
            connection.request("POST", LIST, body, {"content-type": "application/json"})
            until(lambda: len(given) == len(connections), "the request waits for a thread")
            assert entered.wait(30)
        for connection in connections[:2]:
            connection.close()
        until(given[1].cancelled, "the request is given up")
        leave.set()
        assert json.loads(connections[2].getresponse().read())["code"] == 0
        server.stop(grace_s=0)
    assert (seen, logs) == (["begun", "waits"], [])


def test_what_has_begun_sees_that_its_client_has_left(verbs: FakeVerbs) -> None:
    seen: list[bool] = []
    entered, done = threading.Event(), threading.Event()

    def long(database: str) -> list[Any]:
        is_gone = client_of_thread()
        assert is_gone is not None
        seen.append(is_gone())
        entered.set()
        until(is_gone, "the client has left")
        seen.append(is_gone())
        done.set()
        return []

    verbs.list_collections = long  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1000)
        port = int(server.start().rpartition(":")[2])
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("POST", LIST, "{}", {"content-type": "application/json"})
            assert entered.wait(30)
        assert done.wait(30)
        assert workers.submit(client_of_thread).result() is None, "the thread serves nobody any more"
        server.stop(grace_s=0)
    assert seen == [False, True]


def test_answers_do_not_wait_for_acknowledgements(verbs: FakeVerbs) -> None:
    """asyncio switches Nagle's algorithm off for sockets that name their protocol."""
    with ThreadPoolExecutor(1) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1)
        with server._listen() as listener:
            assert listener.proto == socket.IPPROTO_TCP


def test_connections_beyond_the_limit_are_refused_with_a_text_and_the_others_go_on(verbs: FakeVerbs) -> None:
    with ThreadPoolExecutor(2) as workers, contextlib.ExitStack() as stack, capture_logs() as logs:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=100, connections_max=2)
        port = int(server.start().rpartition(":")[2])
        stack.callback(server.stop, 0)
        first, second = (_connected(stack, port) for _ in range(2))
        assert (_status(first), _status(second)) == (200, 200)
        status, answer = ask(port, LIST)
        assert (status, answer["code"]) == (503, Unavailable.code)
        assert "2 client connections, and may have no more" in answer["message"]
        _until_connected(server, 2)
        spare = _connected(stack, port)
        _until_connected(server, 3)
        with pytest.raises(ConnectionError):
            _status(_connected(stack, port))
        _until_connected(server, 3)
        assert (_status(first), _status(spare)) == (200, 503), "the connected go on"
        second.close()
        _until_connected(server, 1)
        assert _status(_connected(stack, port)) == 200, "there is room again"
    assert [line["port"] for line in logs if "connections refused" in line["event"]] == ["http"]


def _until_connected(server: RestServer, count: int) -> None:
    """Wait until the server has noticed what has come and gone."""
    until(lambda: len(server._server.server_state.connections) == count, f"{count} connections")


def _connected(stack: contextlib.ExitStack, port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    stack.callback(connection.close)
    return connection


def _status(connection: http.client.HTTPConnection) -> int:
    connection.request("POST", LIST, b"{}", {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_the_server_waits_without_waking_up(verbs: FakeVerbs) -> None:
    """uvicorn looks ten times a second whether to stop; this server's loop has nothing scheduled."""
    with ThreadPoolExecutor(1) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1000)
        server.start()
        loop = server._server._loop
        assert loop is not None

        async def scheduled() -> int:
            return len(loop._scheduled)  # type: ignore[attr-defined]

        assert asyncio.run_coroutine_threadsafe(scheduled(), loop).result(30) == 0
        server.stop(grace_s=0)
