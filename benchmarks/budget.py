"""Where the processor time of a small search goes: by thread of the server, and by step of the answer.

A server is filled, and the bytes of searches for one vector each are replayed to it over one connection, one
call after the other. Rounds of two kinds alternate. In the first the calls are plain: the kernel's counters
say how long each thread of the server ran, and how often it slept. In the second the client asks for
explanations, which say how long each step of the answer took; the first step of each contains what the
explanation itself costs. The rest of the plain rounds is the gRPC library, the kernel, and the decoding and
encoding of messages.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import grpc
import msgspec
from pymilvus import DataType, MilvusClient

from benchmarks.dataset import Dataset, Floats
from benchmarks.limits.server import CALL_S, LimitServer, load_collection, serving
from elanus.core.explanation import Explanation
from elanus.proxy.wire.status import EXPLANATION_KEY
from elanus.proxy.wire.stubs import SERVICE, common_pb2, milvus_pb2

_NAME, _VECTOR, _HITS = "budget", "vector", 10
_INSERTED_AT_ONCE = 5000
_BUILD_LIMIT_S = 1800.0
_EXPLAINED = (("elanus-explain", "json"),)
QUERIES = 200
_NOTHING = (0.0, 0.0)
_NODES_STEP = "search on query nodes"
_INDEX_PART = "of these, the index"
Send = Callable[..., bytes]


class ThreadShare(msgspec.Struct, frozen=True):
    """Of one search: microseconds that threads of a name ran, and how often they slept."""

    name: str
    cpu_us: float
    sleeps: float


class Budget(msgspec.Struct, frozen=True):
    """Medians over the rounds, per search. ``steps``: microseconds of processor time by step, in their order.

    ``call_us``: until the client has the answer.
    """

    rows: int
    dim: int
    call_us: float
    threads: Sequence[ThreadShare]
    steps: dict[str, float]

    def lines(self) -> list[str]:
        cpu_us = sum(share.cpu_us for share in self.threads)
        known_us = sum(us for name, us in self.steps.items() if name != _INDEX_PART)
        shares = (f"{one.name}: {one.cpu_us:.1f} µs, sleep {one.sleeps:.2f} times" for one in self.threads)
        return [
            f"{self.rows:,} x {self.dim}: a call takes {self.call_us:.0f} µs, {cpu_us:.0f} µs of it CPU",
            *(f"  threads {share}" for share in shares),
            *(f"  step {name}: {us:.1f} µs" for name, us in self.steps.items()),
            f"  steps together {known_us:.1f} µs, the rest {cpu_us - known_us:.1f} µs",
        ]


def measure(data: Dataset, rounds: int, calls: int, say: Callable[[str], None]) -> Budget:
    """Fill a server with the data and measure it. ``calls``: per round. Raises `TimeoutError`."""
    requests = [search_bytes(query) for query in data.test[:QUERIES]]
    with serving(0, {"http.enabled": False}) as server:
        say(f"building an index over {len(data.train):,} rows")
        _fill(server.client, data.train)
        with grpc.insecure_channel(server.address) as channel:
            send = channel.unary_unary(f"/{SERVICE.full_name}/Search")
            _until_indexed(send, requests[0])
            _replay(send, requests, calls)
            found = [(_plain(server, send, requests, calls), _steps(send, requests)) for _ in range(rounds)]
    plain, steps = zip(*found, strict=True)
    names = sorted({name for one in plain for name in one.threads})
    threads = [
        ThreadShare(
            name,
            median(one.threads.get(name, _NOTHING)[0] for one in plain),
            median(one.threads.get(name, _NOTHING)[1] for one in plain),
        )
        for name in names
    ]
    return Budget(
        len(data.train),
        data.train.shape[1],
        median(one.call_us for one in plain),
        sorted(threads, key=lambda share: -share.cpu_us),
        {name: median(one[name] for one in steps) for name in steps[0]},
    )


class _Round(msgspec.Struct, frozen=True):
    """``threads``: by name, microseconds that they ran and how often they slept, per search."""

    call_us: float
    threads: dict[str, tuple[float, float]]


def _plain(server: LimitServer, send: Send, requests: Sequence[bytes], calls: int) -> _Round:
    before = _threads(server.running.pid)
    call_us = _replay(send, requests, calls)
    after = _threads(server.running.pid)
    used: dict[str, tuple[float, float]] = {}
    for thread, (name, ran_ns, slept) in after.items():
        _, ran_before_ns, slept_before = before.get(thread, (name, 0, 0))
        cpu_us, sleeps = used.get(name, _NOTHING)
        cpu_us += (ran_ns - ran_before_ns) / 1000 / calls
        used[name] = cpu_us, sleeps + (slept - slept_before) / calls
    return _Round(call_us, used)


def _threads(pid: int) -> dict[int, tuple[str, int, int]]:
    """Return name, nanoseconds on a processor, and sleeps of each thread so far.

    Threads of Python have the name of the program; one that ends meanwhile is left out.
    """
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = (thread / "status").read_text().splitlines()
            slept = next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
            ran_ns = int((thread / "schedstat").read_text().split()[0])
            found[int(thread.name)] = (thread / "comm").read_text().strip(), ran_ns, slept
    return found


def _replay(send: Send, requests: Sequence[bytes], calls: int) -> float:
    """Return microseconds per call, the median."""
    took_us = []
    for number in range(calls):
        began_s = time.perf_counter()
        answer = send(requests[number % len(requests)], timeout=CALL_S)
        took_us.append(1e6 * (time.perf_counter() - began_s))
    result = milvus_pb2.SearchResults.FromString(answer)
    if result.status.code or len(result.results.scores) != _HITS:
        raise RuntimeError(f"a search found {len(result.results.scores)} rows: {result.status.reason}")
    return median(took_us)


def _steps(send: Send, requests: Sequence[bytes]) -> dict[str, float]:
    """Return microseconds of processor time by step, the medians over the requests.

    The proxy's step that waits for the node is divided into the node's own steps and what remains of it.
    """
    taken = defaultdict(list)
    for request in requests:
        explained = _explained(send, request)
        inside = [step for node in explained.nodes for step in node.steps]
        of_nodes_ms = sum(step.cpu_ms or 0.0 for step in inside)
        for step in explained.steps:
            left_ms = (step.cpu_ms or 0.0) - (of_nodes_ms if step.name == _NODES_STEP else 0.0)
            taken[step.name].append(1000 * left_ms)
        for step in inside:
            taken[f"node: {step.name}"].append(1000 * (step.cpu_ms or 0.0))
        index_ms = sum(part.cpu_ms or 0.0 for node in explained.nodes for part in node.segments)
        taken[_INDEX_PART].append(1000 * index_ms)
    return {name: median(values) for name, values in taken.items()}


def _explained(send: Send, request: bytes) -> Explanation:
    answer = milvus_pb2.SearchResults.FromString(send(request, timeout=CALL_S, metadata=_EXPLAINED))
    return msgspec.json.decode(answer.status.extra_info[EXPLANATION_KEY], type=Explanation)


def _until_indexed(send: Send, request: bytes) -> None:
    """Wait until all rows are searched through one graph. Raises `TimeoutError`."""
    until_s = time.monotonic() + _BUILD_LIMIT_S
    while True:
        parts = [part for node in _explained(send, request).nodes for part in node.segments]
        if parts and all(part.state == "sealed" and "graph" in str(part.methods) for part in parts):
            return
        if time.monotonic() > until_s:
            raise TimeoutError(f"the index was not served after {_BUILD_LIMIT_S:g} s")
        time.sleep(0.5)


def search_bytes(vector: Floats) -> bytes:
    """A search at the collection's level for one vector, as pymilvus sends it."""
    value = common_pb2.PlaceholderValue(
        tag="$0", type=common_pb2.PlaceholderType.FloatVector, values=[vector.tobytes()]
    )
    request = milvus_pb2.SearchRequest(
        collection_name=_NAME,
        placeholder_group=common_pb2.PlaceholderGroup(placeholders=[value]).SerializeToString(),
        dsl_type=common_pb2.DslType.BoolExprV1,
        nq=1,
        output_fields=["id"],
        use_default_consistency=True,
    )
    sent = {"anns_field": _VECTOR, "topk": str(_HITS), "params": '{"ef": 16}', "round_decimal": "-1"}
    for key, text in sent.items():
        request.search_params.add(key=key, value=text)
    data: bytes = request.SerializeToString()
    return data


def _fill(client: MilvusClient, vectors: Floats) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field(_VECTOR, DataType.FLOAT_VECTOR, dim=vectors.shape[1])
    index = client.prepare_index_params()
    index.add_index(_VECTOR, index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 200})
    client.create_collection(_NAME, schema=schema)
    for begin in range(0, len(vectors), _INSERTED_AT_ONCE):
        part = vectors[begin : begin + _INSERTED_AT_ONCE]
        client.insert(_NAME, [{"id": begin + n, _VECTOR: vector} for n, vector in enumerate(part)])
    client.flush(_NAME, timeout=_BUILD_LIMIT_S)
    client.create_index(_NAME, index, timeout=_BUILD_LIMIT_S)
    load_collection(client, _NAME, _BUILD_LIMIT_S)
