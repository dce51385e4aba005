"""Searches under a filter that keeps 1, 10 or 50 percent of the rows."""

from __future__ import annotations

from benchmarks.bench import Bench, Values
from benchmarks.measures.searching import Asked, choose_ef, named, timed_search

WANTED_RECALL = 0.95


def measure_filters(bench: Bench) -> Values:
    """One client per selectivity, at the system's smallest ef with recall 0.95 under that filter.

    Where no ef of the grid reaches it, the widest is timed and its recall reported: the figure to look at
    first. A bucket holds one percent of the rows, so ``bucket < s`` keeps s percent.
    """
    values: Values = {}
    for percent in bench.settings.selectivities_percent:
        choice = choose_ef(bench, WANTED_RECALL, bench.settings.filter_recall_queries, percent)
        prefix = f"filter{percent}"
        figures = named(prefix, *timed_search(bench, [bench.main], Asked(choice.ef, bucket_below=percent)))
        values |= {f"{prefix}.recall": choice.recall, f"{prefix}.ef": choice.ef, **figures}
    return values
