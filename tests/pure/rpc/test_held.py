"""Large requests are counted together, and refused beyond their limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from polling import until

from elanus.rpc.serving.choice import Serving, grpc_server
from elanus.rpc.serving.held import SMALL_MAX_BYTES, HeldBytes, Holding

LIMIT_S = 60.0
LARGE = bytes(1 << 20)


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
        self.held = HeldBytes(2 * len(LARGE))
        self.workers = ThreadPoolExecutor(workers)
        handlers = {
            "Wait": grpc.unary_unary_rpc_method_handler(self._wait),
            "Stream": grpc.unary_stream_rpc_method_handler(self._stream),
            "Decode": grpc.unary_unary_rpc_method_handler(self._wait, request_deserializer=bytes.decode),
        }
        generic = grpc.method_handlers_generic_handler("slow", handlers)
        options = (("grpc.max_receive_message_length", 1 << 24),)
        self.server = grpc_server(
            serving, (generic,), self.workers, options, lambda _: None, 1 << 24, self.held
        )
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
