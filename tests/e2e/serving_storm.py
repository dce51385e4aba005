"""A storm on a gRPC server in its own process: cancellations, deadlines, garbage, killed clients, crowds.

A mistake in the serving loop may end the process instead of raising, so the server has its own and must end
with status 0. Between all this, some clients check every byte of their answers.

    python tests/e2e/serving_storm.py --minutes 10 [--serving grpc]

repeats the storm on one server and fails when its memory keeps growing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import psutil
import structlog

from elanus.rpc.serving.choice import Serving, grpc_server
from elanus.rpc.serving.waiting import about_to_wait

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
LIMIT_S = 120.0
"""For a broken server only."""
_MB = 1024 * 1024
_WORKERS = 16
_OWN_SOCKET = [("grpc.use_local_subchannel_pool", 1)]


class StormyServer:
    """The server's process. `stop` returns its exit status. ``environment``: None for this process's."""

    def __init__(self, serving: Serving, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, __file__, "--serve", serving]
        pipe, ignored = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=ignored, text=True, env=environment
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.usage = psutil.Process(self._process.pid)

    def stop(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(LIMIT_S)

    def kill(self) -> None:
        """End the process, if it has not ended, and close what connects to it."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(LIMIT_S)


class Storm:
    """Everything at once for ``seconds``. ``done`` counts what happened, by kind."""

    def __init__(self, port: int, seconds: float, seed: int, crowd: int) -> None:
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._port = port
        self._address = f"127.0.0.1:{port}"
        self._ends_s = time.monotonic() + seconds
        self._seed = seed
        self._crowd = crowd

    def rage(self) -> None:
        kinds: list[Callable[[random.Random], None]] = [
            self._checked,
            self._checked,
            self._given_up,
            self._too_late,
            self._garbage,
            self._killed,
            self._streams,
            self._crowds,
        ]
        threads = [
            threading.Thread(target=self._repeat, args=(kind, random.Random(self._seed * 100 + number)))
            for number, kind in enumerate(kinds)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, kind: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            while time.monotonic() < self._ends_s:
                kind(chance)
        except Exception as error:
            self.wrong.append(f"{kind.__name__}: {error!r}")
            raise

    def _checked(self, chance: random.Random) -> None:
        """Right answers on a connection of its own: short, long, waiting, refused, malformed."""
        with grpc.insecure_channel(self._address, options=_OWN_SOCKET) as channel:
            for _ in range(50):
                data = chance.randbytes(chance.choice((0, 10, 3000, 70_000)))
                name = chance.choice(("Echo", "Echo", "Echo", "Wait", "Hog", "Refuse", "Parse"))
                try:
                    answer = channel.unary_unary(f"/storm/{name}")(data, timeout=LIMIT_S)
                except grpc.RpcError as error:
                    expected = {"Refuse": grpc.StatusCode.NOT_FOUND, "Parse": grpc.StatusCode.INTERNAL}
                    if error.code() is not expected.get(name):
                        self.wrong.append(f"{name}: {error.code()} {error.details()}")
                else:
                    if answer != data[::-1] and name != "Parse":
                        self.wrong.append(f"{name}: a wrong answer of {len(answer)} bytes")
                self.done["checked"] += 1

    def _given_up(self, chance: random.Random) -> None:
        with grpc.insecure_channel(self._address, options=_OWN_SOCKET) as channel:
            for _ in range(20):
                name = chance.choice(("Echo", "Wait", "Hog"))
                calls = [channel.unary_unary(f"/storm/{name}").future(b"x" * 1000) for _ in range(5)]
                time.sleep(chance.random() * 0.004)
                for call in calls:
                    call.cancel()
                self.done["given up"] += len(calls)

    def _too_late(self, chance: random.Random) -> None:
        with grpc.insecure_channel(self._address, options=_OWN_SOCKET) as channel:
            for _ in range(20):
                name = chance.choice(("Echo", "Wait", "Hog"))
                call = channel.unary_unary(f"/storm/{name}").future(b"x", timeout=chance.random() * 0.005)
                call.exception(LIMIT_S)
                self.done["too late"] += 1

    def _garbage(self, chance: random.Random) -> None:
        """Bytes that are no HTTP/2, or only begin as such."""
        starts = (b"", PREFACE, PREFACE + SETTINGS, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00")
        with socket.create_connection(("127.0.0.1", self._port), LIMIT_S) as wire:
            try:
                wire.sendall(chance.choice(starts) + chance.randbytes(chance.randrange(2000)))
                if chance.random() < 0.3:
                    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            except OSError:
                pass  # the server has closed it
        self.done["garbage"] += 1
        time.sleep(0.002)

    def _killed(self, chance: random.Random) -> None:
        command = [sys.executable, __file__, "--client", str(self._port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
            assert client.stdout is not None
            client.stdout.readline()  # it calls
            time.sleep(chance.random() * 0.05)
            client.send_signal(signal.SIGKILL)
        self.done["killed"] += 1

    def _streams(self, chance: random.Random) -> None:
        with grpc.insecure_channel(self._address, options=_OWN_SOCKET) as channel:
            parts = [chance.randbytes(100) for _ in range(5)]
            stream = channel.stream_stream("/storm/Chat")(iter(parts), timeout=LIMIT_S)
            if chance.random() < 0.3:
                stream.cancel()
            elif list(stream) != parts:
                self.wrong.append("a stream was answered wrongly")
            self.done["streams"] += 1

    def _crowds(self, _: random.Random) -> None:
        """Very many connections that are opened, greeted and closed."""
        crowd: list[socket.socket] = []
        try:
            for _ in range(self._crowd):
                wire = socket.create_connection(("127.0.0.1", self._port), LIMIT_S)
                crowd.append(wire)
                wire.sendall(PREFACE + SETTINGS)
                self.done["connections"] += 1
        finally:
            for wire in crowd:
                wire.close()


def is_right_after(port: int) -> bool:
    """Whether the server answers again: a new connection, both kinds of calls."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        names = ["Echo"] * 30 + ["Wait"] * 3
        return all(
            channel.unary_unary(f"/storm/{name}")(b"ab", timeout=LIMIT_S, wait_for_ready=True) == b"ba"
            for name in names
        )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# the server's process


def _echo(request: bytes, _: Any) -> bytes:
    return request[::-1]


def _wait(request: bytes, _: Any) -> bytes:
    about_to_wait()
    time.sleep(0.002)
    return request[::-1]


def _hog(request: bytes, _: Any) -> bytes:
    """Blocks without a word, now and then for long."""
    time.sleep(0.03 if random.random() < 0.1 else 0.0)
    return request[::-1]


def _refuse(_: bytes, context: Any) -> None:
    context.abort(grpc.StatusCode.NOT_FOUND, "as always")


def _chat(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
    yield from requests


def _serve(serving: Serving) -> None:
    # The parent reads only the first line of the output.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    unary = {"Echo": _echo, "Wait": _wait, "Hog": _hog, "Refuse": _refuse}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in unary.items()}
    handlers["Parse"] = grpc.unary_unary_rpc_method_handler(
        _echo, lambda data: json.loads(data) and b"", lambda answer: answer
    )
    handlers["Chat"] = grpc.stream_stream_rpc_method_handler(_chat)
    generic = grpc.method_handlers_generic_handler("storm", handlers)
    workers = ThreadPoolExecutor(_WORKERS)
    server = grpc_server(serving, (generic,), workers, (), lambda path: lambda _: path, _MB)
    port = server.open("127.0.0.1:0", None)
    server.start()
    _say(str(port))
    sys.stdin.read()
    server.stop(2.0)
    workers.shutdown()


def _call_until_killed(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/storm/Echo")(b"ab", timeout=LIMIT_S) == b"ba"
        _say("calling")
        while True:
            names = ("Echo", "Wait", "Hog")
            calls = [channel.unary_unary(f"/storm/{name}").future(b"x" * 5000) for name in names]
            for call in calls:
                call.result(LIMIT_S)


def _soak(serving: Serving, minutes: float, seed: int) -> int:
    server = StormyServer(serving)
    sizes_mb: list[float] = []
    ends_s = time.monotonic() + 60 * minutes
    try:
        while time.monotonic() < ends_s:
            storm = Storm(server.port, min(20.0, 60 * minutes / 8), seed + len(sizes_mb), crowd=500)
            storm.rage()
            if storm.wrong or not is_right_after(server.port):
                _say("\n".join(("wrong:", *storm.wrong[:10])))
                return 1
            sizes_mb.append(server.usage.memory_info().rss / _MB)
            threads, files = server.usage.num_threads(), server.usage.num_fds()
            _say(f"{sizes_mb[-1]:.0f} MB, {threads} threads, {files} files: {dict(storm.done)}")
        status = server.stop()
    finally:
        server.kill()
    grown_mb = sizes_mb[-1] - sizes_mb[len(sizes_mb) // 3]
    _say(f"ended with status {status}; grown by {grown_mb:.0f} MB after the first third")
    return status or int(grown_mb > 30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=["loop", "grpc"])
    parser.add_argument("--client", type=int)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--serving", choices=["loop", "grpc"], default="loop")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.serve:
        _serve(options.serve)
    elif options.client:
        _call_until_killed(options.client)
    else:
        return _soak(options.serving, options.minutes, options.seed)
    return 0


if __name__ == "__main__":
    os.environ["GRPC_VERBOSITY"] = "NONE"  # the library reports every connection with garbage
    sys.exit(main())
