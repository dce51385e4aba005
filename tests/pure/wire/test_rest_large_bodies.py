"""A body above the limit is answered, however the client sends it, and its connection does not last."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from fake_verbs import FakeVerbs
from polling import until
from rest_client import rest_front

from elanus.core.errors import Unavailable
from elanus.proxy.rest import entrance, lingering
from elanus.proxy.rest.server import RestServer
from elanus.rpc.serving.held import Held

BODY_MAX_BYTES = 1024 * 1024
LIST = "/v2/vectordb/collections/list"
LARGE = b" " * (16 * BODY_MAX_BYTES)
"""More than the buffers of sockets."""
HEAD = f"POST {LIST} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
MESSAGE = "the body is larger than 1 MB (proxy.message_max_mb): insert fewer rows at a time"


@pytest.fixture
def port(verbs: FakeVerbs) -> Iterator[int]:
    with ThreadPoolExecutor(2) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=BODY_MAX_BYTES)
        yield int(server.start().rpartition(":")[2])
        server.stop(grace_s=0)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def rest_of(client: socket.socket) -> bytes:
    """Everything until the server's end of the connection."""
    received = b""
    while piece := client.recv(1 << 16):
        received += piece
    return received


def check_refused(received: bytes) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 "), received[:500]
    assert b"connection: close" in head.lower()
    assert json.loads(body) == {"code": 413, "message": MESSAGE}


def test_a_client_that_sends_all_of_its_body_before_it_reads_gets_the_answer(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(3):
        connection.request("POST", LIST, LARGE, {"content-type": "application/json"})
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["message"]) == (413, MESSAGE)
    connection.close()


@pytest.mark.parametrize("in_chunks", [False, True])
def test_requests_gets_the_answer(port: int, in_chunks: bool) -> None:
    body = iter([LARGE[: 1 << 20]] * 16) if in_chunks else LARGE
    answer = requests.post(f"http://127.0.0.1:{port}{LIST}", data=body, timeout=30)
    assert (answer.status_code, answer.json()["message"]) == (413, MESSAGE)


def test_a_body_in_chunks_without_an_end_is_answered(port: int) -> None:
    with connect(port) as client:
        client.sendall(f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode() + CHUNK * 256)
        check_refused(rest_of(client))


def test_a_client_that_asks_first_sends_nothing(port: int) -> None:
    with connect(port) as client:
        client.sendall(f"{HEAD}content-length: {len(LARGE)}\r\nexpect: 100-continue\r\n\r\n".encode())
        check_refused(rest_of(client))


def test_a_client_that_asks_first_and_does_not_say_how_much_is_stopped_at_the_limit(port: int) -> None:
    with connect(port) as client:
        client.sendall(f"{HEAD}transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n".encode())
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(CHUNK * 64)
        check_refused(rest_of(client))


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [("/v2/vectordb/none", "application/json", 404), ("/none", "text/plain", 404), (LIST, "text/plain", 415)],
)
def test_other_refusals_are_received_too(port: int, path: str, kind: str, status: int) -> None:
    url = f"http://127.0.0.1:{port}{path}"
    headers = {"content-type": kind, "sec-fetch-site": "same-origin"}
    assert requests.post(url, LARGE, headers=headers, timeout=30).status_code == status


def is_closed(client: socket.socket) -> bool:
    """Whether the server takes nothing any more: the second piece meets the reset that the first one got."""
    try:
        client.send(b" ")
        time.sleep(0.1)
        client.send(b" ")
    except OSError:
        return True
    return False


def takes_nothing(client: socket.socket) -> bool:
    """Whether the server does not take anything any more."""
    try:
        client.send(b" ")
    except OSError:
        return True
    return False


def test_a_connection_ends_for_a_client_that_goes_on_sending(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.5)
    with connect(port) as client:
        began_s = time.monotonic()
        client.sendall(f"{HEAD}content-length: {len(LARGE)}\r\n\r\n".encode())
        check_refused(rest_of(client))
        until(lambda: takes_nothing(client), "the connection is closed")
        assert time.monotonic() - began_s >= 0.5


def test_a_connection_ends_for_a_client_that_sends_nothing_more(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "IDLE_S", 0.2)
    with connect(port) as client:
        client.sendall(f"{HEAD}content-length: {len(LARGE)}\r\n\r\n".encode())
        check_refused(rest_of(client))
        until_s = time.monotonic() + 20
        while not is_closed(client):  # which sends something: each look begins the idle time again
            assert time.monotonic() < until_s
            time.sleep(0.6)


def test_a_connection_ends_for_a_client_that_sends_too_much(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_MAX_BYTES", 2 * BODY_MAX_BYTES)
    with connect(port) as client:
        client.sendall(f"{HEAD}content-length: {10**12}\r\n\r\n".encode())
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            client.sendall(LARGE * 20)


def test_a_body_that_arrives_after_its_answer_does_not_keep_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the head is complete, and then one byte comes now and then, or none."""
    monkeypatch.setattr(lingering, "LINGER_S", 0.3)
    with connect(port) as client:
        client.sendall(f"POST /none HTTP/1.1\r\nhost: localhost\r\ncontent-length: {10**9}\r\n\r\n1".encode())
        assert rest_of(client).startswith(b"HTTP/1.1 404 ")
        until(lambda: takes_nothing(client), "the connection is closed")


def test_a_slow_body_is_answered_and_ends(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "BODY_WAIT_S", 0.2)
    with connect(port) as client:
        client.sendall(f"{HEAD}content-length: 1000\r\n\r\n{{".encode())
        assert rest_of(client).startswith(b"HTTP/1.1 408 ")
    answer = requests.post(f"http://127.0.0.1:{port}{LIST}", json={}, timeout=30)
    assert answer.json()["code"] == 0


def test_large_bodies_are_limited_together(verbs: FakeVerbs) -> None:
    both = Held.up_to(2 * BODY_MAX_BYTES, BODY_MAX_BYTES)
    held = both.requests
    half = LARGE[: BODY_MAX_BYTES * 3 // 4]
    head = f"{HEAD}content-length: {BODY_MAX_BYTES}\r\n\r\n".encode()
    with ThreadPoolExecutor(2) as workers:
        server = RestServer(
            rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=BODY_MAX_BYTES, held=both
        )
        port = int(server.start().rpartition(":")[2])
        url = f"http://127.0.0.1:{port}{LIST}"
        try:
            slow = [connect(port) for _ in range(2)]
            for client in slow:
                client.sendall(head + half)
            until(lambda: held.held_bytes > BODY_MAX_BYTES, "a body is held")
            answer = requests.post(url, LARGE[: BODY_MAX_BYTES - 2] + b"{}", timeout=30)
            assert (answer.status_code, answer.json()["code"]) == (503, Unavailable.code)
            assert "proxy.requests_max_mb allows 2: retry" in answer.json()["message"]
            assert requests.post(url, json={}, timeout=30).json()["code"] == 0
            for client in slow:
                client.close()
            until(lambda: held.held_bytes == 0, "nothing is held")
            answer = requests.post(url, LARGE[: BODY_MAX_BYTES - 2] + b"{}", timeout=30)
            assert answer.json()["code"] == 0
            assert held.held_bytes == 0
        finally:
            server.stop(grace_s=0)
