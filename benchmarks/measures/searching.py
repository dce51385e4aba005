"""Timed searches, shared by every measure that searches: choose ef, run clients side by side, count CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench import MAIN, Bench, Values, cpu_metrics
from benchmarks.clients import Client, all_call
from benchmarks.metrics import Choice, Latencies, median, recall, smallest_ef

RECALL_BATCH = 100
WARM_UP_CALLS = 20


@dataclass(frozen=True)
class Asked:
    """One kind of search on the main collection.

    Attributes:
        ef: search width.
        batch: query vectors per call.
        bucket_below: filter, or None.
    """

    ef: int
    batch: int = 1
    bucket_below: int | None = None


def choose_ef(bench: Bench, wanted: float, queries: int, bucket_below: int | None = None) -> Choice:
    """The smallest ef of the grid at which this system reaches the recall `wanted`."""
    truth = bench.truth(queries, bucket_below)

    def recall_at(ef: int) -> float:
        found = bench.main.call(
            "search_ids",
            collection=MAIN,
            queries=len(truth),
            batch=RECALL_BATCH,
            ef=ef,
            top_k=bench.settings.top_k,
            bucket_below=bucket_below,
        )
        return recall(found, truth)

    return smallest_ef(bench.settings.ef_grid, recall_at, wanted)


def prepare(bench: Bench, workers: Sequence[Client], asked: Asked) -> None:
    """Let every worker build its queries and warm up."""
    arguments: dict[str, Any] = {
        "collection": MAIN,
        "batch": asked.batch,
        "ef": asked.ef,
        "top_k": bench.settings.top_k,
        "bucket_below": asked.bucket_below,
        "warm_up": WARM_UP_CALLS if asked.batch == 1 else 1,
    }
    all_call(workers, "prepare_search", **arguments)


def begin_search(worker: Client, seconds: float, position: int = 0, stop_file: Path | None = None) -> None:
    """Start one worker searching; `position` keeps several from asking in step."""
    stop = None if stop_file is None else str(stop_file)
    worker.begin("search_for", seconds=seconds, skip=position * 101, stop_file=stop)


def finish_search(workers: Sequence[Client]) -> Latencies:
    """Join what the workers saw."""
    runs = [worker.finish() for worker in workers]
    return Latencies.of([run["latency_us"] for run in runs], [run["seconds"] for run in runs])


def timed_search(bench: Bench, workers: Sequence[Client], asked: Asked) -> tuple[Latencies, Values]:
    """Search with all `workers` at once, several times over.

    Returns:
        The medians over the repeats, and CPU per call as ``cpu_ms`` (and ``cpu_ms@role``).
    """
    prepare(bench, workers, asked)
    runs: list[Latencies] = []
    costs: list[Values] = []
    for _ in range(bench.settings.repeats):
        before = bench.usage(workers)
        for position, worker in enumerate(workers):
            begin_search(worker, bench.settings.search_s, position)
        runs.append(finish_search(workers))
        costs.append(cpu_metrics("cpu_ms", before, bench.usage(workers), 1 / runs[-1].calls))
    return Latencies.median_of(runs), {key: median([cost[key] for cost in costs]) for key in costs[0]}


def named(prefix: str, found: Latencies, cost: Values) -> Values:
    """The figures of one timed search as metrics."""
    return {
        f"{prefix}.qps": found.calls_per_s,
        f"{prefix}.p50_ms": found.p50_ms,
        f"{prefix}.p99_ms": found.p99_ms,
        **{f"{prefix}.{key}": value for key, value in cost.items()},
    }
