"""A trial of the loop before it serves: every way that a call can take, on a port of loopback.

The loop depends on a part of grpcio that may change with every release. So releases other than the one it was
tested with are refused outright, since a mistake there ends the process. With the right one, a server
is started and must answer, abort, refuse, stream, notice a client that gives up, and end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import grpc

from elanus.rpc.serving import queue
from elanus.rpc.serving.calls import UnaryCall
from elanus.rpc.serving.loop import LoopServer
from elanus.rpc.serving.waiting import about_to_wait

_SERVICE = "elanus.SelfTest"
_TIMEOUT_S = 10.0
_OPTIONS = (("grpc.so_reuseport", 0),)
_CLIENT_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


@cache
def loop_fault() -> str:
    """Return why the loop cannot be used in this process, "" if it can. Found out once, in some
    milliseconds."""
    return fault_of(grpc.__version__, _try_out)


def fault_of(release: str, try_out: Callable[[], None]) -> str:
    """The same for a release of grpcio and a trial, which raises if anything is wrong."""
    if release != queue.TESTED_RELEASE:
        return f"grpcio is {release}, the loop was tested with {queue.TESTED_RELEASE}"
    try:
        try_out()
    except Exception as error:  # noqa: BLE001 - whatever it is, the loop is not to be used
        return f"the trial failed: {type(error).__name__}: {error}"
    return ""


class _Trial:
    """The methods of the trial. `given_up` is set when the client of `Stay` is gone."""

    def __init__(self) -> None:
        self.given_up = threading.Event()
        self.arrived = threading.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        unary = {"Echo": self.echo, "Wait": self.wait, "Refuse": self.refuse, "Stay": self.stay}
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in unary.items()}
        handlers["Chat"] = grpc.stream_stream_rpc_method_handler(self.chat)
        return grpc.method_handlers_generic_handler(_SERVICE, handlers)

    def echo(self, request: bytes, context: UnaryCall) -> bytes:
        values = dict(context.invocation_metadata())
        return request + str(values["trial"]).encode() + (b"+" if context.time_remaining() > 0 else b"-")

    def wait(self, request: bytes, _: UnaryCall) -> bytes:
        about_to_wait()
        return request

    def refuse(self, _: bytes, context: UnaryCall) -> None:
        context.set_trailing_metadata((("trial", "over"),))
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "as agreed")

    def stay(self, request: bytes, context: UnaryCall) -> bytes:
        context.add_callback(self.given_up.set)
        self.arrived.set()
        self.given_up.wait(_TIMEOUT_S)
        return request

    def chat(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        yield from requests


def _try_out() -> None:
    trial = _Trial()
    workers = ThreadPoolExecutor(2, thread_name_prefix="trial")
    server = LoopServer((trial.handler(),), workers, _OPTIONS, lambda path: lambda _: path)
    port = server.open("127.0.0.1:0", None)
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=_CLIENT_OPTIONS) as channel:
            _call_all(channel, trial)
    finally:
        server.stop(_TIMEOUT_S)
        workers.shutdown(wait=False)


def _call_all(channel: grpc.Channel, trial: _Trial) -> None:
    def method(name: str) -> Any:
        return channel.unary_unary(f"/{_SERVICE}/{name}")

    for number in range(3):  # the first in a worker, the others in the reading thread
        data = bytes([number]) * 1000 * number
        answer = method("Echo")(data, timeout=_TIMEOUT_S, metadata=(("trial", "sent"),))
        _expect(answer == data + b"sent+", "a call was answered wrongly")
        _expect(method("Wait")(data, timeout=_TIMEOUT_S) == data, "a waiting call was answered wrongly")
    refusal = _refusal(lambda: method("Refuse")(b"", timeout=_TIMEOUT_S))
    _expect(refusal.code() is grpc.StatusCode.PERMISSION_DENIED, "a refusal has another code")
    _expect(refusal.details() == "as agreed", "a refusal has another text")
    _expect(("trial", "over") in map(tuple, refusal.trailing_metadata()), "trailing metadata is lost")
    unknown = _refusal(lambda: method("Unknown")(b"", timeout=_TIMEOUT_S))
    _expect(unknown.code() is grpc.StatusCode.UNIMPLEMENTED, "an unknown method has another code")
    chat = channel.stream_stream(f"/{_SERVICE}/Chat")(iter([b"1", b"2"]), timeout=_TIMEOUT_S)
    _expect(list(chat) == [b"1", b"2"], "a stream was answered wrongly")
    staying = method("Stay").future(b"", timeout=2 * _TIMEOUT_S)
    _expect(trial.arrived.wait(_TIMEOUT_S), "a call did not arrive")
    staying.cancel()
    _expect(trial.given_up.wait(_TIMEOUT_S), "a client that gave up was not noticed")


def _refusal(call: Callable[[], object]) -> grpc.RpcError:
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("a call that must be refused was answered")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
