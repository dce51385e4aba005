"""Rows per second until the acknowledgement, and what a thousand rows cost the server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from benchmarks.bench import MAIN, OTHER, Bench, Values, cpu_metrics
from benchmarks.clients import Client


def measure_insert(bench: Bench) -> Values:
    """Insert every training vector through one client, in batches, each acknowledged before the next."""
    rows = len(bench.data.train)
    bench.main.call("create", collection=MAIN)
    before = bench.usage([bench.main])
    done = bench.main.call("insert", collection=MAIN, rows=rows, batch_rows=bench.settings.insert_batch_rows)
    after = bench.usage([bench.main])
    return {
        "insert.rows_per_s": rows / done["seconds"],
        "insert.client_cpu_ms_per_1000_rows": done["client_cpu_s"] * 1e6 / rows,
        **cpu_metrics("insert.cpu_ms_per_1000_rows", before, after, 1000 / rows),
    }


def measure_several_writers(bench: Bench) -> Values:
    """Several client processes insert at once, each its part of the rows; medians over the repeats."""
    with bench.more_clients(bench.settings.clients_many) as writers:
        found = [_write_at_once(bench, writers) for _ in range(bench.settings.repeats)]
    return {name: statistics.median(values[name] for values in found) for name in found[0]}


def _write_at_once(bench: Bench, writers: Sequence[Client]) -> Values:
    rows_each = min(len(bench.data.train), bench.settings.written_rows_max) // len(writers)
    rows = rows_each * len(writers)
    bench.main.call("create", collection=OTHER)
    before, begun_s = bench.usage(writers), time.perf_counter()
    for number, writer in enumerate(writers):
        writer.begin(
            "insert",
            collection=OTHER,
            rows=rows_each,
            batch_rows=bench.settings.insert_batch_rows,
            first=number * rows_each,
        )
    done = [writer.finish() for writer in writers]
    seconds, after = time.perf_counter() - begun_s, bench.usage(writers)
    bench.main.call("drop", collection=OTHER)
    return {
        "writers.rows_per_s": rows / seconds,
        "writers.client_cpu_ms_per_1000_rows": sum(each["client_cpu_s"] for each in done) * 1e6 / rows,
        **cpu_metrics("writers.cpu_ms_per_1000_rows", before, after, 1000 / rows),
    }
