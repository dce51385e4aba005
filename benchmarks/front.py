"""Processor time of the gRPC server per small call: the serving loop against grpcio's own server.

Both run in processes of their own with the same handler, options and number of workers, and answer the same
clients in turns. Each round measures both, one after the other, in changing order, so that other work on
the machine affects them alike. The result is the ratio within a round: absolute times are the machine's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import grpc
import msgspec

from elanus.rpc.library_settings import library_settings
from elanus.rpc.serving.choice import Serving, grpc_server

SERVINGS: tuple[Serving, ...] = ("loop", "grpc")
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

    @property
    def ratios(self) -> list[float]:
        """The loop's time as a part of grpcio's, per round, the smallest first."""
        pairs = zip(self.cpu_ms["loop"], self.cpu_ms["grpc"], strict=True)
        return sorted(loop / other for loop, other in pairs)

    def summary(self) -> str:
        found = self.ratios
        return (
            f"{self.clients} clients: {median(found):.2f} of grpcio's server "
            f"({found[0]:.2f} to {found[-1]:.2f} in {len(found)} rounds)"
        )


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
                for serving in SERVINGS if number % 2 else reversed(SERVINGS):
                    cpu_ms[serving].append(servers[serving].cpu_ms(count, calls))
            found.append(Rounds(count, cpu_ms))
            say(found[-1].summary())
        return found
    finally:
        for server in servers.values():
            server.stop()


class _Process:
    """A server in a process of its own, and clients in this one."""

    def __init__(self, serving: Serving) -> None:
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


def serve(serving: Serving) -> None:
    """Print the port, and serve until the input ends."""
    workers = ThreadPoolExecutor(WORKERS)
    handlers = {
        "Answer": grpc.unary_unary_rpc_method_handler(_answer),
        "Spent": grpc.unary_unary_rpc_method_handler(lambda _request, _: repr(time.process_time()).encode()),
    }
    handler = grpc.method_handlers_generic_handler(_SERVICE, handlers)
    server = grpc_server(serving, (handler,), workers, (), lambda path: lambda _: path, 1 << 20)
    port = server.open("127.0.0.1:0", None)
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(1.0)


def _answer(request: bytes, context: Any) -> bytes:
    """Read the context as every handler of a proxy does, and do a little work."""
    assert dict(context.invocation_metadata())
    assert context.time_remaining()
    assert context.peer()
    return zlib.crc32(request).to_bytes(4, "little") + bytes(RESPONSE_BYTES - 4)


if __name__ == "__main__":
    serve("loop" if sys.argv[1] == "loop" else "grpc")
