"""Processor time of the gRPC server per small call: the serving loop against grpcio's own server.

Both run in processes of their own with the same handler, options and number of workers, and answer the same
clients in turns. Each round measures both, one after the other, in changing order, so that other work on
the machine affects them alike. The result is the ratio within a round: absolute times are the machine's.

Where pygrpc-native is installed (a gRPC server in Rust, which Elanus does not use: docs/front-end.md says
why), a third process serves with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from statistics import median
from typing import Any, Literal, NamedTuple

import grpc
import msgspec

from elanus.rpc.library_settings import library_settings
from elanus.rpc.serving.choice import grpc_server

SERVINGS = ("loop", "grpc", *(["native"] if find_spec("pygrpc_native") else []))
REQUEST_BYTES = 3242
"""A search for one vector of 768 dimensions, with a token and an output field."""
RESPONSE_BYTES = 300
WORKERS = 32
_METADATA = (("authorization", "cm9vdDpNaWx2dXM="), ("client-request-unixmsec", "1700000000000"))
_SERVICE = "elanus.Front"
_START_LIMIT_S = 30.0
_WARM_UP_CALLS = 200


class Rounds(msgspec.Struct, frozen=True):
    """Of one number of clients: per round, milliseconds of the server's processor time per call, by
    server."""

    clients: int
    cpu_ms: dict[str, list[float]]

    def ratios(self, serving: str) -> list[float]:
        """The server's time as a part of grpcio's, per round, the smallest first."""
        pairs = zip(self.cpu_ms[serving], self.cpu_ms["grpc"], strict=True)
        return sorted(own / other for own, other in pairs)

    def summary(self) -> str:
        lines = []
        for serving in self.cpu_ms:
            if serving != "grpc":
                found = self.ratios(serving)
                lines.append(
                    f"{self.clients} clients, {serving}: {median(found):.2f} of grpcio's server "
                    f"({found[0]:.2f} to {found[-1]:.2f} in {len(found)} rounds)"
                )
        return "\n".join(lines)


def measure(
    clients: Sequence[int], rounds: int, calls: int, say: Callable[[str], None] = lambda _: None
) -> list[Rounds]:
    """Start both servers and measure them. ``calls``: per round and server. ``say`` gets a line per
    result."""
    servers = {serving: _Process(serving) for serving in SERVINGS}
    try:
        for server in servers.values():
            server.cpu_ms(1, _WARM_UP_CALLS)
        found = []
        for count in clients:
            cpu_ms: dict[str, list[float]] = {serving: [] for serving in SERVINGS}
            for number in range(rounds):
                for serving in SERVINGS if number % 2 else SERVINGS[::-1]:
                    cpu_ms[serving].append(servers[serving].cpu_ms(count, calls))
            found.append(Rounds(count, cpu_ms))
            say(found[-1].summary())
        return found
    finally:
        for server in servers.values():
            server.stop()


class _Process:
    """A server in a process of its own, and clients in this one."""

    def __init__(self, serving: str) -> None:
        command = [sys.executable, "-m", "benchmarks.front", serving]
        environment = {**os.environ, **library_settings(os.environ)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        self._address = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def cpu_ms(self, clients: int, calls: int) -> float:
        """Return the server's processor time per call."""
        with grpc.insecure_channel(self._address) as channel:
            grpc.channel_ready_future(channel).result(_START_LIMIT_S)
            spent_s = channel.unary_unary(f"/{_SERVICE}/Spent")
            before_s = float(spent_s(b""))
            threads = [threading.Thread(target=self._call, args=(calls // clients,)) for _ in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return 1000 * (float(spent_s(b"")) - before_s) / (calls // clients * clients)

    def _call(self, calls: int) -> None:
        body = bytes(REQUEST_BYTES)
        with grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            method = channel.unary_unary(f"/{_SERVICE}/Answer")
            for _ in range(calls):
                assert len(method(body, timeout=60, metadata=_METADATA)) == RESPONSE_BYTES

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_START_LIMIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def serve(serving: str) -> None:
    """Print the port, and serve until the input ends."""
    with _native_port() if serving == "native" else _port("loop" if serving == "loop" else "grpc") as port:
        print(port, flush=True)
        sys.stdin.read()


@contextmanager
def _port(serving: Literal["loop", "grpc"]) -> Iterator[int]:
    workers = ThreadPoolExecutor(WORKERS)
    handlers = {
        "Answer": grpc.unary_unary_rpc_method_handler(_answer),
        "Spent": grpc.unary_unary_rpc_method_handler(_spent),
    }
    handler = grpc.method_handlers_generic_handler(_SERVICE, handlers)
    server = grpc_server(serving, (handler,), workers, (), lambda path: lambda _: path, 1 << 20)
    port = server.open("127.0.0.1:0", None)
    server.start()
    yield port
    server.stop(1.0)


class _NativeCall(NamedTuple):
    """The part of `grpc.ServicerContext` that handlers read."""

    metadata: Sequence[tuple[str, str | bytes]]
    address: str
    remaining_s: float | None

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self.metadata

    def peer(self) -> str:
        return self.address

    def time_remaining(self) -> float | None:
        return self.remaining_s


@contextmanager
def _native_port() -> Iterator[int]:
    from pygrpc_native import EVENT_CALL, NativeGrpcFront

    handlers = (_answer, _spent)
    paths = [(f"/{_SERVICE}/{name}", False) for name in ("Answer", "Spent")]
    front = NativeGrpcFront("127.0.0.1:0", paths, call_details=True)

    def answer_all() -> None:
        while (events := front.recv_batch_details(4)) is not None:
            for kind, call, method, request, _, details in events:
                if kind == EVENT_CALL:
                    front.respond(call, handlers[method](request, _NativeCall(*details)))

    front.start()
    threading.Thread(target=answer_all, daemon=True).start()
    yield front.bound_port
    front.close()


def _answer(request: bytes, context: Any) -> bytes:
    """Read the context as every handler of a proxy does, and do a little work."""
    assert dict(context.invocation_metadata())
    assert context.time_remaining()
    assert context.peer()
    return zlib.crc32(request).to_bytes(4, "little") + bytes(RESPONSE_BYTES - 4)


def _spent(_request: bytes, _context: Any) -> bytes:
    return repr(time.process_time()).encode()


if __name__ == "__main__":
    serve(sys.argv[1])
