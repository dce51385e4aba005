"""Searches at rest: one client and several, recall 0.95 and 0.99, one vector per call and a hundred."""

from __future__ import annotations

from benchmarks.bench import Bench, Values
from benchmarks.measures.searching import Asked, choose_ef, named, timed_search


def measure_search_95(bench: Bench) -> Values:
    """One client at recall 0.95."""
    return _one_client(bench, "search95", 0.95)


def measure_search_99(bench: Bench) -> Values:
    """One client at recall 0.99."""
    return _one_client(bench, "search99", 0.99)


def measure_clients(bench: Bench) -> Values:
    """Several client processes at once, at recall 0.95."""
    with bench.more_clients(bench.settings.clients_many) as workers:
        return named("clients", *timed_search(bench, workers, Asked(ef_95(bench))))


def measure_batches(bench: Bench) -> Values:
    """Many query vectors per call, at recall 0.95; the rate is in query vectors, not calls."""
    batch = bench.settings.batch_queries
    found, cost = timed_search(bench, [bench.main], Asked(ef_95(bench), batch=batch))
    return {
        "batch.queries_per_s": found.calls_per_s * batch,
        "batch.p50_ms": found.p50_ms,
        "batch.cpu_ms_per_query": cost["cpu_ms"] / batch,
    }


def ef_95(bench: Bench) -> int:
    """The search width that `measure_search_95` chose.

    Raises:
        KeyError: that measure has not run, or failed.
    """
    return int(bench.values["search95.ef"])


def _one_client(bench: Bench, prefix: str, wanted: float) -> Values:
    choice = choose_ef(bench, wanted, bench.settings.recall_queries)
    figures = named(prefix, *timed_search(bench, [bench.main], Asked(choice.ef)))
    return {f"{prefix}.recall": choice.recall, f"{prefix}.ef": choice.ef, **figures}
