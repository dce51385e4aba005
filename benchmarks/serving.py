"""Searches of one and of several serving processes (`proxy.processes`), by the processor time of each.

The request bytes are made once and sent again and again, over connections of which it is known which process
has them: the kernel shares connections out, so they are opened until each process has some. Each round
searches through the main process alone and then through the further process alone, and reads the processor
time of both. So neither the load generator nor other work on the machine counts.

A process answers at most one divided by its processor time per search, a second, where it has a processor of
its own. `Model` adds these up. It knows what a further process costs the main one: its part of each search
there (nothing but the messages of the log and a look each second), measured the same way.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

import grpc
import msgspec
import numpy as np
import psutil
from pymilvus import MilvusClient

from elanus.cli import remote
from elanus.proxy.wire.stubs import SERVICE, common_pb2, milvus_pb2
from elanus.server.announce import Announcement, find

_NAME = "searched"
_ROWS, _DIM, _HITS = 2_000, 32, 10
_CLIENTS = 4
_START_LIMIT_S = 120.0
_CONNECTIONS_MAX = 64
_WARM_UP_CALLS = 200
T = TypeVar("T")


class Round(msgspec.Struct, frozen=True):
    """Milliseconds of processor time per search: of the main process for searches there; of the further
    process for searches there; and of the main process meanwhile, for each of these."""

    main_ms: float
    further_ms: float
    aside_ms: float


class Model(msgspec.Struct, frozen=True):
    """Searches a second of several processes, each with a processor of its own. Fields as in `Round`."""

    main_ms: float
    further_ms: float
    aside_ms: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Model:
        """Raises `statistics.StatisticsError` without rounds."""
        return cls(
            median(r.main_ms for r in rounds),
            median(r.further_ms for r in rounds),
            median(r.aside_ms for r in rounds),
        )

    def per_s(self, processes: int) -> float:
        """The main process has what the others leave it; if that is nothing, they share its processor."""
        others = processes - 1
        each = 1000 / self.further_ms
        left = 1 - others * each * self.aside_ms / 1000
        if left < 0:
            return 1000 / self.aside_ms
        return others * each + left * 1000 / self.main_ms

    def ratio(self, processes: int) -> float:
        """How many times the searches of one process."""
        return self.per_s(processes) / self.per_s(1)


def measure(rounds: int, calls: int, say: Callable[[str], None] = lambda _: None) -> list[Round]:
    """Start a server of two processes and measure it. ``calls``: per round and process."""
    with tempfile.TemporaryDirectory() as scratch, _Server(Path(scratch) / "data") as server:
        main, further = server.connections()
        for connections in (main, further):
            _search(connections, _WARM_UP_CALLS)
        found = []
        for number in range(rounds):
            there = server.spent_ms(main, calls)
            elsewhere = server.spent_ms(further, calls)
            found.append(Round(there[0], elsewhere[1], max(0.0, elsewhere[0])))
            say(f"round {number + 1}: {found[-1]}")
        return found


class _Server:
    def __init__(self, directory: Path) -> None:
        settings = {"proxy.port": 0, "proxy.processes": 2, "pipeline.enabled": False}
        settings |= {"metrics.port": 0, "http.enabled": False}
        assignments = [part for item in settings.items() for part in ("--set", "{}={}".format(*item))]
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "elanus", "serve", "--data-dir", str(directory), *assignments]
        )

    def __enter__(self) -> _Server:
        try:
            announced = _awaited(self._announced, "the server answers")
            self._address, self._url = announced.address, announced.observe_url
            self._fill()
            _awaited(lambda: self._state()["collections"], "the further process has a copy")
            self._main, self._further = (
                psutil.Process(self._process.pid),
                psutil.Process(self._state()["pid"]),
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_START_LIMIT_S)

    def _announced(self) -> Announcement | None:
        assert self._process.poll() is None, "the server ended"
        return find(self._directory)

    def _state(self) -> dict[str, int]:
        status = msgspec.json.decode(remote.get(self._url + "/status"))
        state: dict[str, int] = status["serving"][0]
        return state

    def _fill(self) -> None:
        client = MilvusClient(f"http://{self._address}")
        client.create_collection(_NAME, _DIM)
        rows = np.random.default_rng(1).random((_ROWS, _DIM), np.float32)
        client.insert(_NAME, [{"id": n, "vector": row} for n, row in enumerate(rows)])
        client.close()

    def connections(self) -> tuple[list[grpc.Channel], list[grpc.Channel]]:
        """Return connections to the main process and to the further one."""
        found: dict[int, list[grpc.Channel]] = {self._main.pid: [], self._further.pid: []}
        for _ in range(_CONNECTIONS_MAX):
            before = {process.pid: self._ports(process) for process in (self._main, self._further)}
            channel = grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)])
            grpc.channel_ready_future(channel).result(_START_LIMIT_S)
            for process in (self._main, self._further):
                if self._ports(process) - before[process.pid]:
                    found[process.pid].append(channel)
            if all(len(channels) >= _CLIENTS for channels in found.values()):
                main, further = found.values()
                return main[:_CLIENTS], further[:_CLIENTS]
        raise RuntimeError("the kernel gave one of the processes too few connections")

    def _ports(self, process: psutil.Process) -> set[int]:
        """The clients' ports of a process's connections."""
        port = int(self._address.rpartition(":")[2])
        found = process.net_connections("tcp")
        return {c.raddr.port for c in found if c.laddr.port == port and c.status == psutil.CONN_ESTABLISHED}

    def spent_ms(self, connections: Sequence[grpc.Channel], calls: int) -> tuple[float, float]:
        """Processor time of the main and of the further process per search over the connections."""
        before = [_cpu_s(process) for process in (self._main, self._further)]
        made = _search(connections, calls)
        after = [_cpu_s(process) for process in (self._main, self._further)]
        main, further = (1000 * (a - b) / made for a, b in zip(after, before, strict=True))
        return main, further


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _search(connections: Sequence[grpc.Channel], calls: int) -> int:
    """Send searches over all connections at once; return how many."""
    each = calls // len(connections)
    threads = [threading.Thread(target=_replay, args=(channel, each)) for channel in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return each * len(connections)


def _replay(channel: grpc.Channel, calls: int) -> None:
    send, request = channel.unary_unary(f"/{SERVICE.full_name}/Search"), search_bytes()
    for _ in range(calls):
        answer = send(request, timeout=60)
    result = milvus_pb2.SearchResults.FromString(answer)
    assert result.status.code == 0, result.status.reason
    assert len(result.results.scores) == _HITS


def search_bytes() -> bytes:
    """A Bounded search for one vector, as pymilvus sends it."""
    vector = np.full(_DIM, 0.5, np.float32).tobytes()
    value = common_pb2.PlaceholderValue(
        tag="$0", type=common_pb2.PlaceholderType.FloatVector, values=[vector]
    )
    request = milvus_pb2.SearchRequest(
        collection_name=_NAME,
        placeholder_group=common_pb2.PlaceholderGroup(placeholders=[value]).SerializeToString(),
        dsl_type=common_pb2.DslType.BoolExprV1,
        nq=1,
        use_default_consistency=True,
    )
    named = {"anns_field": "vector", "topk": str(_HITS), "params": "{}", "round_decimal": "-1"}
    for key, text in named.items():
        request.search_params.add(key=key, value=text)
    sent: bytes = request.SerializeToString()
    return sent


def _awaited(condition: Callable[[], T | None], what: str) -> T:
    deadline_s = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline_s:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"not within {_START_LIMIT_S:g} s: {what}")
