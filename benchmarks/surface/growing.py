"""Rows that are not flushed yet: how much longer a search takes than over an index, and what inserts pay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymilvus import DataType, MilvusClient

from benchmarks.dataset import Dataset, Floats, drawn
from benchmarks.metrics import median, recall
from benchmarks.surface.figures import Line, line
from benchmarks.surface.server import Served, in_turn, served

NAME, DIM, TOP_K, EF, QUERIES, CALLS = "growing", 128, 10, 64, 300, 300
INSERTED_ROWS = 1000
HANDOFF_LIMIT_S = 7200.0
_EFFORT = {"params": {"ef": EF}}
_WITHOUT = ("querynode.interim_index_mb=0",)


def about(rows: int) -> str:
    return (
        f"{rows:,} × {DIM} float32, HNSW (M 16, efConstruction 200), top {TOP_K} at ef {EF}. Rows are "
        f"inserted by {INSERTED_ROWS:,} into two servers in turn, one of them without interim indexes, with "
        "a search after each insert. Then the rows are searched, flushed, indexed, and searched again."
    )


def measure(rows: int, rounds: int, home: Path | None, say: Callable[[str], None]) -> list[Line]:
    """``home`` is not used: a server that starts again has flushed its rows."""
    data = drawn(rows, DIM, QUERIES)
    with served(None) as server, served(None, _WITHOUT) as plain:
        servers = (server, plain)
        for one in servers:
            _create(one.client)
        say("inserting")
        slower = _inserted(servers, data, rounds)
        searches = [_search(one, data.test) for one in servers]
        say("searching growing rows")
        time.sleep(5)  # the last blocks are joined
        growing_ms, plain_ms = in_turn(searches, CALLS, rounds)
        growing_cpu_ms = _cpu_ms(server, data, rounds)
        growing_recall = _recall(searches[0], data)
        plain.stop()
        say("flushing and building")
        _index(server, rows)
        (indexed_ms,) = in_turn([_search(server, data.test)], CALLS, rounds)
        indexed_cpu_ms = _cpu_ms(server, data, rounds)
        indexed_recall = _recall(_search(server, data.test), data)
    middle, cpu_middle = median(indexed_ms), median(indexed_cpu_ms)
    return [
        line("inserts: time with interim indexes ÷ without", slower, "≤ 1.2"),
        line("growing: p50, ms", growing_ms),
        line("growing, without interim indexes: p50, ms", plain_ms),
        line("growing: recall@10", [growing_recall]),
        line("indexed: p50, ms", indexed_ms),
        line("indexed: recall@10", [indexed_recall]),
        line("growing ÷ indexed: p50", [ms / middle for ms in growing_ms], "≤ 3"),
        line("growing ÷ indexed: processor time of the server", [ms / cpu_middle for ms in growing_cpu_ms]),
    ]


def _create(client: MilvusClient) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 200})
    client.create_collection(NAME, schema=schema, index_params=index)
    client.load_collection(NAME)


def _inserted(servers: tuple[Served, Served], data: Dataset, rounds: int) -> list[float]:
    """Insert all rows into both; the servers take turns. Returns for each of ``rounds`` parts of the rows how
    much longer the first took, by the medians of its inserts."""
    took_s: list[list[float]] = [[], []]
    for first in range(0, len(data.train), INSERTED_ROWS):
        part = data.train[first : first + INSERTED_ROWS]
        batch = [{"id": first + n, "v": vector} for n, vector in enumerate(part)]
        for server, times in zip(servers, took_s, strict=True):
            began_s = time.perf_counter()
            server.client.insert(NAME, batch)
            times.append(time.perf_counter() - began_s)
            server.client.search(NAME, [data.test[0]], "", TOP_K, search_params=_EFFORT)
    size = -(-len(took_s[0]) // rounds)
    parts = [[times[at : at + size] for at in range(0, len(times), size)] for times in took_s]
    return [median(own) / median(plain) for own, plain in zip(*parts, strict=True)]


def _search(server: Served, queries: Floats) -> Callable[[int], Any]:
    client = server.client

    def search(number: int) -> Any:
        query = queries[number % QUERIES]
        return client.search(NAME, [query], "", TOP_K, search_params=_EFFORT, consistency_level="Eventually")

    return search


def _cpu_ms(server: Served, data: Dataset, rounds: int) -> list[float]:
    """The processor time that the server takes for one search, by round."""
    search = _search(server, data.test)
    found = []
    for _ in range(rounds):
        began_s = server.cpu_s
        for number in range(CALLS):
            search(number)
        found.append(1e3 * (server.cpu_s - began_s) / CALLS)
    return found


def _recall(search: Callable[[int], Any], data: Dataset) -> float:
    found = [[hit["id"] for hit in search(number)[0]] for number in range(QUERIES)]
    return recall(found, data.nearest(QUERIES, TOP_K))


def _index(server: Served, rows: int) -> None:
    """Flush, and wait until indexed segments serve all rows. Raises `TimeoutError`."""
    client = server.client
    client.flush(NAME)
    until_s = time.monotonic() + HANDOFF_LIMIT_S
    while True:
        (name,) = client.list_indexes(NAME)
        state = client.describe_index(NAME, name)
        loaded = client.list_loaded_segments(NAME)
        if (
            state["indexed_rows"] == rows
            and sum(s.num_rows for s in loaded if s.state_name == "Sealed") == rows
        ):
            return
        if time.monotonic() > until_s:
            raise TimeoutError(f"not all rows were indexed and loaded after {HANDOFF_LIMIT_S:g} s")
        time.sleep(1)
