"""Handlers and clients cannot distinguish the serving loop from grpcio's own server."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import structlog

from elanus.rpc.serving import calls, choice, loop
from elanus.rpc.serving.choice import Serving, grpc_server
from elanus.rpc.serving.loop import LoopServer
from elanus.rpc.serving.placement import Placement
from elanus.rpc.serving.pooled import PooledServer
from elanus.rpc.serving.queue import TESTED_RELEASE
from elanus.rpc.serving.selftest import fault_of, loop_fault
from elanus.rpc.serving.waiting import about_to_wait, client_of_thread

LIMIT_S = 60.0
"""For a broken server only."""
WORKERS = 2


class Handlers:
    """The service of the tests. A call of ``stay`` says when it began, and ends when ``gate`` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)
        self.given_up = threading.Event()
        self.is_gone: Callable[[], bool] | None = None
        self.threads: list[str] = []
        self.after = 0
        """Calls of ``count`` that were run."""

    def echo(self, request: bytes, _: Any) -> bytes:
        self.threads.append(threading.current_thread().name)
        return request

    def describe(self, _: bytes, context: Any) -> bytes:
        headers = dict(context.invocation_metadata())
        left_s, peer = context.time_remaining(), context.peer()
        active = context.is_active()
        return repr(
            (headers["name"], headers["data-bin"], 0 < left_s < 2 * LIMIT_S, peer.split(":")[0], active)
        ).encode()

    def endless(self, _: bytes, context: Any) -> bytes:
        return repr(context.time_remaining() > 1e9).encode()

    def refuse(self, request: bytes, context: Any) -> None:
        context.set_trailing_metadata((("reason", "known"), ("data-bin", b"\x00")))
        context.abort(grpc.StatusCode[request.decode()], "no: größer")

    def status(self, request: bytes, context: Any) -> bytes:
        context.set_code(grpc.StatusCode.ABORTED)
        context.set_details("set")
        return request

    def fail(self, _: bytes, context: Any) -> bytes:
        raise ValueError("broken")

    def number(self, request: str, _: Any) -> int:
        return int(request)

    def count(self, request: bytes, _: Any) -> bytes:
        self.after += 1
        return request

    def stay(self, request: bytes, context: Any) -> bytes:
        context.add_callback(self.given_up.set)
        self.is_gone = client_of_thread()
        self.began.release()
        assert self.gate.wait(LIMIT_S)
        return request

    def wait(self, request: bytes, context: Any) -> bytes:
        self.began.release()
        about_to_wait()
        assert self.gate.wait(LIMIT_S)
        return request

    def open(self, request: bytes, _: Any) -> bytes:
        self.gate.set()
        return request

    def chat(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            if request == b"stop":
                context.abort(grpc.StatusCode.OUT_OF_RANGE, "stopped")
            yield request

    def several(self, request: bytes, _: Any) -> Iterator[bytes]:
        for _ in range(3):
            yield request

    def total(self, requests: Iterator[bytes], _: Any) -> bytes:
        return b"".join(requests)

    def generic(self) -> grpc.GenericRpcHandler:
        unary = ["echo", "describe", "endless", "refuse", "status", "fail", "count", "stay", "wait", "open"]
        handlers = {name: grpc.unary_unary_rpc_method_handler(getattr(self, name)) for name in unary}
        handlers["number"] = grpc.unary_unary_rpc_method_handler(
            self.number, bytes.decode, lambda number: number.to_bytes(1, "big")
        )
        handlers["chat"] = grpc.stream_stream_rpc_method_handler(self.chat)
        handlers["several"] = grpc.unary_stream_rpc_method_handler(self.several)
        handlers["total"] = grpc.stream_unary_rpc_method_handler(self.total)
        return grpc.method_handlers_generic_handler("test", handlers)


Start = Callable[..., grpc.Channel]


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture(params=["loop", "grpc"])
def serving(request: pytest.FixtureRequest) -> Serving:
    found: Serving = request.param
    return found


@pytest.fixture
def start(handlers: Handlers, serving: Serving) -> Iterator[Start]:
    """``start(options=…)`` starts a server and returns a channel to it."""
    ends: list[Callable[[], object]] = []

    def started(options: tuple[tuple[str, Any], ...] = ()) -> grpc.Channel:
        workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="worker")
        server = grpc_server(
            serving, (handlers.generic(),), workers, options, lambda path: lambda _: path, 1000
        )
        port = server.open("127.0.0.1:0", None)
        server.start()
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        ends.extend((channel.close, lambda: server.stop(0.0), workers.shutdown))
        channel.server = server
        return channel

    yield started
    handlers.gate.set()
    for end in ends:
        end()


@pytest.fixture
def channel(start: Start) -> grpc.Channel:
    return start()


def call(channel: grpc.Channel, name: str, request: bytes = b"x", **more: Any) -> bytes:
    answer: bytes = channel.unary_unary(f"/test/{name}")(request, timeout=LIMIT_S, **more)
    return answer


def refusal(channel: grpc.Channel, name: str, request: bytes = b"x") -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, name, request)
    return caught.value.code(), caught.value.details()


def test_requests_of_all_sizes_are_answered(channel: grpc.Channel) -> None:
    for size in (0, 1, 999, 1001, 100_000, 3_000_000) * 2:
        assert call(channel, "echo", b"a" * size) == b"a" * size


def test_handlers_get_metadata_deadline_and_peer(channel: grpc.Channel) -> None:
    headers = (("name", "value"), ("data-bin", b"\x00\xff"))
    for _ in range(3):
        answer = call(channel, "describe", metadata=headers)
        assert answer == repr(("value", b"\x00\xff", True, "ipv4", True)).encode()
    assert channel.unary_unary("/test/endless")(b"", wait_for_ready=True) == b"True"


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED"])
def test_an_aborted_call_has_code_text_and_trailing_metadata(channel: grpc.Channel, code: str) -> None:
    for _ in range(3):
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, "refuse", code.encode())
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode[code], "no: größer")
        assert list(map(tuple, caught.value.trailing_metadata())) == [
            ("reason", "known"),
            ("data-bin", b"\x00"),
        ]


def test_failures_are_grpc_errors(channel: grpc.Channel) -> None:
    code = grpc.StatusCode
    for _ in range(3):
        assert refusal(channel, "fail") == (code.UNKNOWN, "Exception calling application: broken")
        assert refusal(channel, "refuse", b"OK")[0] is code.UNKNOWN
        assert refusal(channel, "status") == (code.ABORTED, "set")
        assert call(channel, "number", b"255") == b"\xff"
        assert refusal(channel, "number", b"\xff") == (code.INTERNAL, "Exception deserializing request!")
        assert refusal(channel, "number", b"256") == (code.INTERNAL, "Failed to serialize response!")
        assert refusal(channel, "unknown") == (code.UNIMPLEMENTED, "Method not found!")
    assert call(channel, "echo") == b"x", "the server goes on"


def test_a_call_without_a_message_is_refused(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary("/test/echo")(iter(()), timeout=LIMIT_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "requires exactly one request message." in caught.value.details()


def test_streams_of_all_kinds(channel: grpc.Channel) -> None:
    parts = [b"1", b"2"]
    assert list(channel.stream_stream("/test/chat")(iter(parts), timeout=LIMIT_S)) == parts
    assert list(channel.unary_stream("/test/several")(b"s", timeout=LIMIT_S)) == [b"s"] * 3
    assert channel.stream_unary("/test/total")(iter(parts), timeout=LIMIT_S) == b"12"
    with pytest.raises(grpc.RpcError, match="stopped"):
        list(channel.stream_stream("/test/chat")(iter([b"stop"]), timeout=LIMIT_S))


def test_compressed_requests_are_read(channel: grpc.Channel) -> None:
    data = b"a" * 10_000
    assert call(channel, "echo", data, compression=grpc.Compression.Gzip) == data


def test_the_limit_of_the_library_holds(start: Start) -> None:
    channel = start(options=(("grpc.max_receive_message_length", 5000),))
    assert call(channel, "echo", b"a" * 5000)
    code, text = refusal(channel, "echo", b"a" * 5001)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max (5001 vs. 5000)" in text


def test_a_client_that_gives_up_is_noticed(channel: grpc.Channel, handlers: Handlers) -> None:
    staying = channel.unary_unary("/test/stay").future(b"")
    assert handlers.began.acquire(timeout=LIMIT_S)
    staying.cancel()
    assert handlers.given_up.wait(LIMIT_S)
    handlers.gate.set()
    assert call(channel, "echo") == b"x"


def test_a_deadline_that_passes_is_noticed(channel: grpc.Channel, handlers: Handlers) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/test/stay")(b"", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert handlers.given_up.wait(LIMIT_S)


def test_queued_calls_of_clients_that_gave_up_are_not_run(channel: grpc.Channel, handlers: Handlers) -> None:
    staying = [channel.unary_unary("/test/stay").future(b"") for _ in range(WORKERS)]
    for _ in staying:
        assert handlers.began.acquire(timeout=LIMIT_S)
    queued = [channel.unary_unary("/test/count").future(b"") for _ in range(5)]
    kept = channel.unary_unary("/test/count").future(b"kept")
    # Everything on one connection arrives in order: the cancellations before the refused calls.
    for one in queued:
        one.cancel()
    for _ in range(10):
        assert refusal(channel, "unknown")[0] is grpc.StatusCode.UNIMPLEMENTED
    handlers.gate.set()
    assert kept.result(LIMIT_S) == b"kept"
    assert [one.result(LIMIT_S) for one in staying] == [b""] * WORKERS
    assert handlers.after == 1


@pytest.mark.parametrize("path", [b"", b"/\xff"])
def test_calls_without_a_readable_path_take_no_place(channel: grpc.Channel, path: bytes) -> None:
    for _ in range(70):  # more than the calls that are asked for at a time
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(path)(b"x", timeout=0.05)
    assert call(channel, "echo") == b"x"
    with structlog.testing.capture_logs() as logs:
        channel.server.stop(0.05)
    assert logs == [], "no call is left over"


def test_a_stopping_server_waits_for_its_calls(channel: grpc.Channel, handlers: Handlers) -> None:
    staying = channel.unary_unary("/test/stay").future(b"y")
    assert handlers.began.acquire(timeout=LIMIT_S)
    stopping = threading.Thread(target=channel.server.stop, args=(LIMIT_S,))
    stopping.start()
    handlers.gate.set()
    assert staying.result(LIMIT_S) == b"y"
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()


def test_a_stopping_server_cancels_calls_that_take_too_long(
    channel: grpc.Channel, handlers: Handlers
) -> None:
    staying = channel.unary_unary("/test/stay").future(b"y")
    assert handlers.began.acquire(timeout=LIMIT_S)
    channel.server.stop(0.05)
    assert staying.exception(LIMIT_S).code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    channel.server.stop(0.05)  # again does no harm


def test_a_server_that_was_never_started_can_be_stopped(handlers: Handlers, serving: Serving) -> None:
    with ThreadPoolExecutor(1) as workers:
        server = grpc_server(serving, (handlers.generic(),), workers, (), lambda _: None, 1000)
        server.open("127.0.0.1:0", None)
        server.stop(0.0)


# the loop alone


@pytest.mark.parametrize("serving", ["loop"], indirect=True)
def test_short_calls_run_in_one_thread_that_is_no_worker(channel: grpc.Channel, handlers: Handlers) -> None:
    for _ in range(30):
        call(channel, "echo")
    assert handlers.threads[0].startswith("worker"), "not known yet"
    assert sum(not name.startswith("worker") for name in handlers.threads) > 10


class AllShort(Placement):
    def is_short(self, kind: object) -> bool:
        return True


@pytest.fixture
def hasty(handlers: Handlers) -> Iterator[grpc.Channel]:
    """A channel to a loop that takes every call for short."""
    workers = ThreadPoolExecutor(1, thread_name_prefix="worker")
    server = LoopServer((handlers.generic(),), workers, (), lambda _: id, placement=AllShort())
    with grpc.insecure_channel(f"127.0.0.1:{server.open('127.0.0.1:0', None)}") as channel:
        channel.server = server
        server.start()
        yield channel
        handlers.gate.set()
    server.stop(0.0)
    workers.shutdown()
    assert not any(name.startswith("worker") for name in handlers.threads)


@pytest.mark.parametrize("blocking", ["wait", "stay"])
def test_handlers_that_block_in_the_reading_thread_hold_up_nobody(
    hasty: grpc.Channel, handlers: Handlers, blocking: str
) -> None:
    blocked = [hasty.unary_unary(f"/test/{blocking}").future(b"") for _ in range(5)]
    for _ in blocked:
        assert handlers.began.acquire(timeout=LIMIT_S)
    assert call(hasty, "echo") == b"x"
    assert call(hasty, "open") == b"x"
    assert [one.result(LIMIT_S) for one in blocked] == [b""] * 5
    assert call(hasty, "echo") == b"x"


@pytest.mark.parametrize("blocking", ["wait", "stay"])
def test_a_server_whose_reading_thread_blocked_can_be_stopped(
    hasty: grpc.Channel, handlers: Handlers, blocking: str
) -> None:
    blocked = hasty.unary_unary(f"/test/{blocking}").future(b"")
    assert handlers.began.acquire(timeout=LIMIT_S)
    hasty.server.stop(0.0)
    assert blocked.exception(LIMIT_S).code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def test_with_many_blocked_handlers_further_calls_go_to_the_pool(
    hasty: grpc.Channel, handlers: Handlers
) -> None:
    blocked = [hasty.unary_unary("/test/wait").future(b"") for _ in range(8)]
    for _ in blocked:
        assert handlers.began.acquire(timeout=LIMIT_S)
    assert call(hasty, "open") == b"x"
    assert [one.result(LIMIT_S) for one in blocked] == [b""] * 8


def test_a_client_of_a_call_in_the_reading_thread_may_give_up(
    hasty: grpc.Channel, handlers: Handlers
) -> None:
    blocked = hasty.unary_unary("/test/stay").future(b"")
    assert handlers.began.acquire(timeout=LIMIT_S)
    assert handlers.is_gone is not None
    assert not handlers.is_gone()
    blocked.cancel()
    assert handlers.given_up.wait(LIMIT_S)
    assert handlers.is_gone()
    assert call(hasty, "echo") == b"x"


def test_a_log_that_cannot_be_written_ends_no_loop(
    hasty: grpc.Channel, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        def error(self, *_: object, **__: object) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(calls, "_log", Closed())
    monkeypatch.setattr(loop, "_log", Closed())
    for _ in range(10):
        assert refusal(hasty, "fail")[0] is grpc.StatusCode.UNKNOWN
        assert call(hasty, "echo") == b"x"


# which server serves


def test_another_release_of_grpcio_is_refused_without_a_trial() -> None:
    tried: list[int] = []
    assert "1.99.0, the loop was tested with" in fault_of("1.99.0", lambda: tried.append(1))
    assert not tried
    assert fault_of(TESTED_RELEASE, lambda: tried.append(1)) == ""
    assert tried


def test_the_loop_is_tested_with_the_release_that_is_required() -> None:
    requirements = importlib.metadata.requires("elanus") or []
    assert f"grpcio=={TESTED_RELEASE}" in [text.partition(";")[0].strip() for text in requirements]
    assert loop_fault() == ""


def test_a_failed_trial_leaves_the_calls_to_grpcio(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("no such operation")

    fault = fault_of(TESTED_RELEASE, broken)
    assert fault == "the trial failed: RuntimeError: no such operation"
    monkeypatch.setattr(choice, "loop_fault", lambda: fault)
    with ThreadPoolExecutor(1) as workers, structlog.testing.capture_logs() as logs:
        server = grpc_server("loop", (handlers.generic(),), workers, (), lambda _: None, 1000)
    assert isinstance(server, PooledServer)
    assert [line["reason"] for line in logs] == [fault]
