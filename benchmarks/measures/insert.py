"""Rows per second until the acknowledgement, and what a thousand rows cost the server."""

from __future__ import annotations

from benchmarks.bench import MAIN, Bench, Values, cpu_metrics


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
