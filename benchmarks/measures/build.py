"""From inserted to searchable: flush, HNSW, load."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import MAIN, Bench, Values, cpu_metrics

SETTLE_LIMIT_S = 120.0


def measure_build(bench: Bench) -> Values:
    """Make the inserted rows searchable through the index, and time each step of it.

    ``build.settle_s`` is the time after load until the server says that all rows are served from sealed
    segments; a server that does not report it counts as settled.
    """
    before = bench.usage([bench.main])
    if bench.server is None:
        index_s = build_index(bench, MAIN)
        bench.main.call("save", collection=MAIN)
        steps = {"build.index_s": index_s}
    else:
        steps = _server_steps(bench)
    after = bench.usage([bench.main])
    total = {"build.total_s": sum(steps.values())}
    return {**steps, **total, **cpu_metrics("build.cpu_s", before, after, 1e-3)}


def build_index(bench: Bench, collection: str) -> float:
    """Build HNSW over one collection; returns seconds."""
    seconds: float = bench.main.call("build_index", **index_arguments(bench, collection))
    return seconds


def index_arguments(bench: Bench, collection: str) -> dict[str, Any]:
    """Arguments of a worker's ``build_index``."""
    settings = bench.settings
    return {
        "collection": collection,
        "m": settings.index_m,
        "ef_construction": settings.index_ef_construction,
    }


def _server_steps(bench: Bench) -> Values:
    flush_s = bench.main.call("flush", collection=MAIN)
    index_s = build_index(bench, MAIN)
    load_s = bench.main.call("load", collection=MAIN)
    settled = bench.main.call("settle", collection=MAIN, rows=len(bench.data.train), timeout_s=SETTLE_LIMIT_S)
    return {
        "build.flush_s": flush_s,
        "build.index_s": index_s,
        "build.load_s": load_s,
        "build.settle_s": settled["seconds"],
    }
