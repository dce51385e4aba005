"""The measures of every system, in their order.

A measure is a function from a `Bench` to metrics. The order matters: rows are inserted before an index is
built, searches at rest come before anything that adds rows, and the crash comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench import Bench, Values
from benchmarks.measures.build import measure_build
from benchmarks.measures.contention import measure_during_build, measure_during_insert
from benchmarks.measures.filters import measure_filters
from benchmarks.measures.freshness import measure_freshness
from benchmarks.measures.insert import measure_insert, measure_several_writers
from benchmarks.measures.restart import measure_restart
from benchmarks.measures.search import (
    measure_batches,
    measure_clients,
    measure_search_95,
    measure_search_99,
)
from benchmarks.measures.start import measure_idle, measure_start


@dataclass(frozen=True)
class Measure:
    """One question.

    Attributes:
        name: shown while it runs, and under which a failure is recorded.
        run: asks it.
        server_only: has no meaning for faiss in process.
    """

    name: str
    run: Callable[[Bench], Values]
    server_only: bool = False


#: From nothing to searchable; when one of these fails, nothing after it can be asked.
LOADING: tuple[Measure, ...] = (
    Measure("start", measure_start, server_only=True),
    Measure("insert", measure_insert),
    Measure("build", measure_build),
)

#: Asked of a loaded system.
QUESTIONS: tuple[Measure, ...] = (
    Measure("idle", measure_idle, server_only=True),
    Measure("search, recall 0.95", measure_search_95),
    Measure("several clients", measure_clients),
    Measure("batches", measure_batches),
    Measure("search, recall 0.99", measure_search_99),
    Measure("filters", measure_filters),
    Measure("insert, several clients", measure_several_writers, server_only=True),
    Measure("search during a build", measure_during_build, server_only=True),
    Measure("reads after writes", measure_freshness, server_only=True),
    Measure("search during inserts", measure_during_insert, server_only=True),
    Measure("restart", measure_restart, server_only=True),
)
