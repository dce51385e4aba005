"""The cost of inserts, upserts and deletes for the server, by shards, connections and rows in a call.

Each cell is a number of calls from some connections at once, each waiting for its answer, and ends when a
query at Strong has seen all of them: so a cell has the processor time of the whole path to memory. Spark is
switched off. The clients are threads of one process and need more processor time than the server; so the
rows per second are what clients and server reach together on this machine, and the processor time per row is
the server's alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from pymilvus import DataType, MilvusClient

from benchmarks.limits.server import LimitServer, count, load_collection, serving
from benchmarks.results import circumstances_line

DIM = 128
_NAME = "ingest"
_SETTINGS = {"pipeline.enabled": False, "http.enabled": False, "backpressure.growing_soft_mb": 2000}
KINDS = ("insert", "upsert", "delete")


@dataclass(frozen=True, slots=True)
class Extent:
    """The cells to measure. ``calls_max``, ``rows_max``: of one cell and kind, whichever comes first."""

    shards: Sequence[int]
    connections: Sequence[int]
    batches: Sequence[int]
    calls_max: int
    rows_max: int

    def calls(self, connections: int, batch: int) -> int:
        """Return the calls of each connection in a cell, at least one."""
        return max(1, min(self.calls_max, self.rows_max // batch) // connections)


WHOLE = Extent((1, 4, 16), (1, 4, 16), (1, 100, 1000, 10_000), 1000, 80_000)
QUICK = Extent((1, 16), (1, 4), (1, 1000), 40, 8000)


@dataclass(frozen=True, slots=True)
class Cell:
    """``cpu_us``: of the server, per row."""

    kind: str
    shards: int
    connections: int
    batch: int
    rows: int
    took_s: float
    cpu_us: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.took_s


def measure(extent: Extent, say: Callable[[str], None]) -> list[Cell]:
    """Measure all cells on one server; ``say`` gets a line for each."""
    cells = []
    with serving(0, _SETTINGS) as server:
        _warm_up(server)
        for shards in extent.shards:
            for connections in extent.connections:
                for cell in _cells(server, extent, shards, connections):
                    cells.append(cell)
                    say(
                        f"{cell.kind}, {shards} shards, {connections} connections, {cell.batch} in a call: "
                        f"{cell.cpu_us:.1f} µs a row, {cell.rows_per_s:,.0f} rows/s"
                    )
    return cells


def page(cells: Sequence[Cell], facts: Mapping[str, str]) -> str:
    """Return Markdown: a table for each kind, processor time per row and rows per second.

    ``facts``: of the machine and the moment (`benchmarks.results.moment`).
    """
    lines = ["# Ingest", "", "*Made by `python -m benchmarks ingest`.*", ""]
    lines += [(__doc__ or "").partition("\n\n")[2].strip(), "", circumstances_line(facts), ""]
    connections = sorted({cell.connections for cell in cells})
    for kind in KINDS:
        lines += [f"## {kind}", "", "µs of the server's processor time per row (rows per second)", ""]
        heads = [f"{number} connection{'s' * (number > 1)}" for number in connections]
        lines += ["| shards | rows in a call | " + " | ".join(heads) + " |", "|---" * (2 + len(heads)) + "|"]
        found = {(c.shards, c.batch, c.connections): c for c in cells if c.kind == kind}
        for shards, batch in sorted({(shards, batch) for shards, batch, _ in found}):
            row = [found[shards, batch, number] for number in connections]
            texts = [f"{cell.cpu_us:,.1f} ({cell.rows_per_s:,.0f})" for cell in row]
            lines.append(f"| {shards} | {batch:,} | " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join(lines)


def _warm_up(server: LimitServer) -> None:
    """The first calls of a server import and compile what all others have."""
    for _ in _cells(server, Extent((1,), (1,), (1, 100), 20, 2000), 1, 1):
        pass


def _cells(server: LimitServer, extent: Extent, shards: int, connections: int) -> Iterator[Cell]:
    """Yield the cells of a new collection, which is dropped at the end."""
    client = server.client
    _create(client, shards)
    clients = [MilvusClient(f"http://{server.address}", timeout=60) for _ in range(connections)]
    try:
        with ThreadPoolExecutor(connections) as pool:
            first = 0
            for batch in extent.batches:
                calls = extent.calls(connections, batch)
                for kind in KINDS:
                    yield _cell(server, pool, clients, kind, shards, batch, first, calls)
                first += connections * calls * batch
    finally:
        for other in clients:
            other.close()
        client.drop_collection(_NAME)


def _cell(
    server: LimitServer,
    pool: ThreadPoolExecutor,
    clients: Sequence[MilvusClient],
    kind: str,
    shards: int,
    batch: int,
    first: int,
    calls: int,
) -> Cell:
    vectors = np.random.default_rng(first).random((batch, DIM), np.float32)

    def run(number: int) -> None:
        for call in range(calls):
            begin = first + (number * calls + call) * batch
            keys = range(begin, begin + batch)
            if kind == "delete":
                clients[number].delete(_NAME, ids=list(keys))
            else:
                rows = [{"id": key, "v": vector} for key, vector in zip(keys, vectors, strict=True)]
                getattr(clients[number], kind)(_NAME, rows)

    before, began_s = server.running.usage().cpu_s["online"], time.monotonic()
    list(pool.map(run, range(len(clients))))
    took_s = time.monotonic() - began_s
    rows = len(clients) * calls * batch
    left = 0 if kind == "delete" else rows  # earlier cells have deleted their rows
    if (there := count(server.client, _NAME)) != left:
        raise RuntimeError(f"{there} rows are there after the cell {kind}, and {left} should be")
    cpu_s = server.running.usage().cpu_s["online"] - before
    return Cell(kind, shards, len(clients), batch, rows, took_s, 1e6 * cpu_s / rows)


def _create(client: MilvusClient, shards: int) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection(_NAME, schema=schema, num_shards=shards)
    client.create_index(_NAME, index)
    load_collection(client, _NAME)
