"""How long a strong read right after a write takes, and whether its answer is right."""

from __future__ import annotations

from benchmarks.bench import ADDED_KEYS, MAIN, Bench, Values
from benchmarks.metrics import percentile


def measure_freshness(bench: Bench) -> Values:
    """Insert a row and read it, again and again; then delete old rows, sealed and indexed, and look for each.

    The times are of the read alone, from the write's acknowledgement on. ``wrong`` counts reads that missed
    an inserted row or found a deleted one; at Strong consistency there may be none.
    """
    repeats = bench.settings.strong_reads
    first_key = {"insert": ADDED_KEYS, "delete": len(bench.data.train) - repeats}
    values: Values = {}
    for kind, key in first_key.items():
        done = bench.main.call(f"read_after_{kind}", collection=MAIN, first_key=key, repeats=repeats)
        values |= {
            f"after_{kind}.read_p50_ms": percentile(done["read_ms"], 50),
            f"after_{kind}.read_p99_ms": percentile(done["read_ms"], 99),
            f"after_{kind}.write_p50_ms": percentile(done["write_ms"], 50),
            f"after_{kind}.wrong": done["wrong"],
        }
    return values
