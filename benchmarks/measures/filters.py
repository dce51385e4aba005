"""Searches under filters that keep from a tenth of a percent to 99 percent of the rows."""

from __future__ import annotations

from benchmarks.bench import Bench, Values
from benchmarks.dataset import BUCKETS
from benchmarks.measures.searching import Asked, choose_ef, named, timed_search

WANTED_RECALL = 0.95


def measure_filters(bench: Bench) -> Values:
    """One client per selectivity, at the system's smallest ef with recall 0.95 under that filter.

    Where no ef of the grid reaches it, the widest is timed and its recall reported: the figure to look at
    first.
    """
    values: Values = {}
    for percent in bench.settings.selectivities_percent:
        below = round(percent * BUCKETS / 100)
        choice = choose_ef(bench, WANTED_RECALL, bench.settings.filter_recall_queries, below)
        prefix = f"filter{percent:g}"
        figures = named(prefix, *timed_search(bench, [bench.main], Asked(choice.ef, bucket_below=below)))
        values |= {f"{prefix}.recall": choice.recall, f"{prefix}.ef": choice.ef, **figures}
    return values
