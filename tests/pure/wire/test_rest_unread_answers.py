"""Large answers of the HTTP port are sent in pieces, and counted until their clients have read them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
import requests
from fake_verbs import FakeVerbs
from polling import until
from rest_client import rest_front

from elanus.core.errors import Unavailable
from elanus.proxy.rest import sending
from elanus.proxy.rest.front import Reply
from elanus.proxy.rest.sending import PIECE_BYTES, SentReply
from elanus.proxy.rest.server import RestServer
from elanus.rpc.serving.held import Held, HeldAnswers

NAMES = [chr(ord("a") + number) * (1 << 20) for number in range(24)]
"""An answer of 24 MB: more than the buffers of a connection hold."""
ANSWER_BYTES = sum(map(len, NAMES))
LIST = "/v2/vectordb/databases/list"
REQUEST = f"POST {LIST} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}".encode()
LIMIT_S = 60.0


@pytest.fixture
def held() -> Held:
    return Held.up_to(1 << 20, 1 << 20)


@pytest.fixture
def port(verbs: FakeVerbs, held: Held) -> Iterator[int]:
    (database,) = verbs.list_databases()
    verbs.list_databases = lambda: [replace(database, name=name) for name in NAMES]  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as workers:
        server = RestServer(rest_front(verbs), workers, "127.0.0.1", 0, body_max_bytes=1000, held=held)
        yield int(server.start().rpartition(":")[2])
        server.stop(grace_s=0)


def test_a_large_answer_arrives_whole(port: int, held: Held) -> None:
    answer = requests.post(f"http://127.0.0.1:{port}{LIST}", json={}, timeout=LIMIT_S)
    assert answer.json() == {"code": 0, "data": NAMES}
    until(lambda: not held.answers.held_bytes, "nothing is held")


def test_it_is_held_until_its_client_leaves(port: int, held: Held) -> None:
    """It is no answer of a read, so it is never withheld."""
    with (
        socket.create_connection(("127.0.0.1", port)) as one,
        socket.create_connection(("127.0.0.1", port)) as two,
    ):
        for client in (one, two):
            client.sendall(REQUEST)
        until(lambda: held.answers.held_bytes > 2 * 100 * len(NAMES), "both answers are held")
    until(lambda: not held.answers.held_bytes, "nothing is held")


def test_a_client_that_does_not_read_loses_its_connection(
    port: int, held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "READ_WAIT_S", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        client.sendall(REQUEST)
        until(lambda: held.answers.held_bytes > 0, "the answer is held")
        until(lambda: not held.answers.held_bytes, "the server gives up")
        received_bytes = 0
        try:
            while data := client.recv(1 << 20):
                received_bytes += len(data)
        except ConnectionResetError:
            pass
        assert received_bytes < ANSWER_BYTES
    assert caplog.records == [], "clients must not fill the log"
    monkeypatch.undo()
    assert requests.post(f"http://127.0.0.1:{port}{LIST}", json={}, timeout=LIMIT_S).status_code == 200


def sent(reply: Reply, answers: HeldAnswers, *, may_withhold: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is received")

    scope = {"type": "http"}
    asyncio.run(SentReply(reply, answers, may_withhold=may_withhold)(scope, receive, send))
    return messages


@pytest.mark.parametrize("may_withhold", [True, False])
def test_an_answer_of_a_read_is_withheld_if_others_wait(may_withhold: bool) -> None:
    body = bytes(range(256)) * 4096
    answers = HeldAnswers(len(body))
    assert answers.add(1, may_withhold=False)
    start, *pieces = sent(Reply(HTTPStatus.OK, body), answers, may_withhold=may_withhold)
    received = b"".join(piece["body"] for piece in pieces)
    assert answers.held_bytes == 1
    if may_withhold:
        assert start["status"] == 503
        refusal = json.loads(received)
        assert refusal["code"] == Unavailable.code
        assert "proxy.answers_max_mb allows 1: retry" in refusal["message"]
    else:
        assert (start["status"], received) == (200, body)
        assert [len(piece["body"]) for piece in pieces] == [PIECE_BYTES] * 4
        assert [piece["more_body"] for piece in pieces] == [True, True, True, False]
