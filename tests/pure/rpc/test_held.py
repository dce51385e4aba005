"""Large requests are counted together, and refused beyond their limit. So are answers that nobody reads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from polling import until

from elanus.rpc.serving.choice import Serving, grpc_server
from elanus.rpc.serving.held import SMALL_MAX_BYTES, Held, HeldAnswers, HeldBytes, Holding

LIMIT_S = 60.0
LARGE = bytes(1 << 20)
ANSWER_BYTES = 24 << 20
"""More than the buffers of a connection hold."""


def test_small_pieces_count_when_they_add_up() -> None:
    held = HeldBytes(200_000)
    with Holding(held) as one, Holding(held) as other:
        assert one.add(SMALL_MAX_BYTES)
        assert held.held_bytes == 0, "it is small as far as is known"
        assert one.add(150_000)
        assert held.held_bytes == 150_000
        assert other.add(SMALL_MAX_BYTES)
        assert not other.add(50_001)
        assert held.held_bytes == 150_000
        assert held.refusal().startswith("requests of 0 MB are being received or answered, and proxy.req")
    assert held.held_bytes == 0


class Slow:
    """A server whose handlers wait until ``go_on``; ``held`` has room for two large requests.

    grpcio's own server does not receive a request before a thread takes it, so it has one for each.
    """

    def __init__(self, serving: Serving, workers: int) -> None:
        self.go_on = threading.Event()
        both = Held.up_to(2 * len(LARGE), 2 * ANSWER_BYTES)
        self.held, self.answers = both.requests, both.answers
        self.workers = ThreadPoolExecutor(workers)
        handlers = {
            "Wait": grpc.unary_unary_rpc_method_handler(self._wait),
            "Stream": grpc.unary_stream_rpc_method_handler(self._stream),
            "Read": grpc.unary_unary_rpc_method_handler(lambda *_: bytes(ANSWER_BYTES)),
            "Write": grpc.unary_unary_rpc_method_handler(lambda *_: bytes(ANSWER_BYTES)),
            "Decode": grpc.unary_unary_rpc_method_handler(self._wait, request_deserializer=bytes.decode),
        }
        generic = grpc.method_handlers_generic_handler("slow", handlers)
        options = (("grpc.max_receive_message_length", 1 << 24),)
        kinds: Callable[[str], Callable[[object], str] | None] = lambda path: (  # noqa: E731
            (lambda _: path) if path.endswith("Read") else None
        )
        self.server = grpc_server(serving, (generic,), self.workers, options, kinds, 1 << 24, both)
        self.port = self.server.open("127.0.0.1:0", None)
        self.server.start()

    def _wait(self, request: bytes, _: object) -> bytes:
        assert self.go_on.wait(LIMIT_S)
        return str(len(request)).encode()

    def _stream(self, _: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        given_up = threading.Event()
        assert context.add_callback(given_up.set)
        yield b"begun"
        assert given_up.wait(LIMIT_S)


@contextmanager
def served(serving: Serving, workers: int) -> Iterator[Slow]:
    slow = Slow(serving, workers)
    yield slow
    slow.go_on.set()
    slow.server.stop(1.0)
    slow.workers.shutdown()


@pytest.fixture(params=[("loop", 1), ("grpc", 6)], ids=["loop", "grpc"])
def slow(request: pytest.FixtureRequest) -> Iterator[Slow]:
    with served(*request.param) as slow:
        yield slow


def ended(calls: list[grpc.Future], count: int) -> list[grpc.Future]:
    """Return the calls that end first."""
    until(lambda: sum(call.done() for call in calls) >= count, f"{count} calls have ended")
    return [call for call in calls if call.done()]


def ended_holding(slow: Slow) -> None:
    """Wait until nothing is held: an answer may arrive a moment before."""
    until(lambda: not slow.held.held_bytes, "nothing is held")


def test_large_requests_beyond_the_limit_are_refused_and_small_ones_are_not(slow: Slow) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{slow.port}") as channel:
        call = channel.unary_unary("/slow/Wait")
        large = [call.future(LARGE, timeout=LIMIT_S) for _ in range(5)]
        small = call.future(b"123", timeout=LIMIT_S)
        refused = ended(large, 3)
        assert {one.code() for one in refused} == {grpc.StatusCode.UNAVAILABLE}
        assert "proxy.requests_max_mb allows 2: retry" in refused[0].details()
        assert slow.held.held_bytes == 2 * len(LARGE)
        slow.go_on.set()
        assert small.result(LIMIT_S) == b"3"
        answers = [one.result(LIMIT_S) for one in large if one not in refused]
        assert answers == [str(len(LARGE)).encode()] * 2
        assert call(LARGE, timeout=LIMIT_S) == str(len(LARGE)).encode()
    ended_holding(slow)


def test_nothing_is_held_for_clients_that_gave_up(slow: Slow) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{slow.port}") as channel:
        call = channel.unary_unary("/slow/Wait")
        for one in [call.future(LARGE, timeout=0.5) for _ in range(2)]:
            assert one.exception(LIMIT_S).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        slow.go_on.set()
        assert call(b"1", timeout=LIMIT_S) == b"1"
    ended_holding(slow)


@pytest.mark.parametrize("serving", ["loop", "grpc"])
def test_the_request_of_a_stream_is_held_until_its_end(serving: Serving) -> None:
    with served(serving, 6) as slow, grpc.insecure_channel(f"127.0.0.1:{slow.port}") as channel:
        call = channel.unary_stream("/slow/Stream")
        answered = call(LARGE, timeout=LIMIT_S)
        assert next(answered) == b"begun"
        assert slow.held.held_bytes == len(LARGE)
        assert slow.held.add(len(LARGE))
        with pytest.raises(grpc.RpcError, match=r"proxy\.requests_max_mb allows 2: retry"):
            next(call(LARGE, timeout=LIMIT_S))
        slow.held.remove(len(LARGE))
        answered.cancel()
        ended_holding(slow)


def test_nothing_is_held_for_a_request_that_cannot_be_decoded(slow: Slow) -> None:
    slow.go_on.set()
    with grpc.insecure_channel(f"127.0.0.1:{slow.port}") as channel:
        with pytest.raises(grpc.RpcError) as refusal:
            channel.unary_unary("/slow/Decode")(b"\xff" * len(LARGE), timeout=LIMIT_S)
        assert refusal.value.code() is grpc.StatusCode.INTERNAL
        assert refusal.value.details() == "Exception deserializing request!"
    ended_holding(slow)


class Unread:
    """A relay to the server whose clients get the beginning of what it sends, until they are to ``read``."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self.read = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._open = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, stalls: bool) -> None:
        passed_bytes = 0
        while True:
            if stalls and passed_bytes > 100_000:
                self.read.wait(LIMIT_S)
            try:
                data = one.recv(1 << 16)
                other.sendall(data)
            except OSError:
                return
            if not data:
                return
            passed_bytes += len(data)

    def close(self) -> None:
        for one in self._open:
            one.close()


@pytest.fixture
def unread() -> Iterator[tuple[Slow, Unread]]:
    with served("loop", 2) as slow:
        relay = Unread(slow.port)
        yield slow, relay
        relay.read.set()
        relay.close()


def call_each(port: int, method: str, count: int) -> tuple[list[grpc.Channel], list[grpc.Future]]:
    """Call a method over as many connections."""
    options = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(count)]
    return channels, [one.unary_unary(f"/slow/{method}").future(b"", timeout=LIMIT_S) for one in channels]


def test_unread_answers_of_reads_are_held_up_to_their_limit(unread: tuple[Slow, Unread]) -> None:
    slow, relay = unread
    channels, calls = call_each(relay.port, "Read", 3)
    (withheld,) = ended(calls, 1)
    assert withheld.code() is grpc.StatusCode.UNAVAILABLE
    assert "answers of 48 MB wait for their clients to read them" in withheld.details()
    assert "proxy.answers_max_mb allows 48: retry" in withheld.details()
    assert slow.answers.held_bytes == 2 * ANSWER_BYTES
    relay.read.set()
    assert [len(one.result(LIMIT_S)) for one in calls if one is not withheld] == [ANSWER_BYTES] * 2
    until(lambda: not slow.answers.held_bytes, "nothing is held")
    for channel in channels:
        channel.close()


def test_what_is_done_is_answered_whatever_is_held(unread: tuple[Slow, Unread]) -> None:
    slow, relay = unread
    channels, calls = call_each(relay.port, "Write", 4)
    until(lambda: slow.answers.held_bytes == 4 * ANSWER_BYTES, "all answers are held")
    relay.read.set()
    assert [len(one.result(LIMIT_S)) for one in calls] == [ANSWER_BYTES] * 4
    until(lambda: not slow.answers.held_bytes, "nothing is held")
    for channel in channels:
        channel.close()


def test_nothing_is_held_for_clients_that_left_without_reading(unread: tuple[Slow, Unread]) -> None:
    slow, relay = unread
    channels, _ = call_each(relay.port, "Read", 2)
    until(lambda: slow.answers.held_bytes == 2 * ANSWER_BYTES, "both answers are held")
    for channel in channels:
        channel.close()
    relay.read.set()
    until(lambda: not slow.answers.held_bytes, "nothing is held")


def test_an_answer_next_to_which_no_other_waits_is_never_withheld() -> None:
    answers = HeldAnswers(100)
    assert answers.add(101, may_withhold=True)
    assert not answers.add(1, may_withhold=True)
    answers.remove(101)
    assert answers.add(1, may_withhold=True)
