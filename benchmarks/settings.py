"""How long, how often and how wide: every number that shapes a run, in one place.

`Settings()` is the run that the results page is made of; `quick()` answers "does it still work" in a few
minutes and is too short to quote.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

DEFAULT_DATA = Path("examples/data/mnist-small.npz")
BENCH_FOLDER = Path(".bench")
#: The results that the page in the documentation is made from, and what is said about them by hand.
SHOWN_RESULTS = Path("docs/benchmarks.json")
NOTES = Path("docs/benchmarks-notes.md")
#: The results that the freshness page is made from.
SHOWN_FRESHNESS = Path("docs/freshness.json")
SHOWN_SCALING = Path("docs/scaling.json")
SHOWN_LIMITS = Path("docs/limits.json")
SHOWN_LIMITS_PAGE = Path("docs/limits.md")
SHOWN_INGEST = Path("docs/ingest-benchmarks.md")
SHOWN_SIZES = Path("docs/search-sizes.md")
SHOWN_DOOR = Path("docs/front-door.md")
#: The results that the pipeline's page is made from, and its picture.
SHOWN_PIPELINE = Path("docs/pipeline-benchmarks.json")
SHOWN_GROWTH = Path("docs/pipeline-growth.svg")
#: The page of a day in the life of a server, and its picture.
SHOWN_DAY = Path("docs/pipeline-day.md")
SHOWN_DAY_PICTURE = Path("docs/pipeline-day.svg")

SHOWN_SURFACE = Path("docs/surface-benchmarks.json")
SHOWN_SURFACE_PAGE = Path("docs/surface-benchmarks.md")
#: The shares of rows that filters keep.
SELECTIVITIES_PERCENT = (0.1, 1, 10, 50, 99)


@dataclass(frozen=True)
class Settings:
    """The numbers of one run.

    Attributes:
        index_m: HNSW's M.
        index_ef_construction: HNSW's efConstruction.
        top_k: neighbors per query.
        ef_grid: search widths tried, ascending; each system uses its smallest that reaches the recall.
        queries: test vectors kept for timed searches.
        recall_queries: how many of them recall is measured on.
        filter_recall_queries: the same under a filter, where slow systems are very slow.
        insert_batch_rows: rows per insert call.
        written_rows_max: rows that several clients insert at once.
        search_s: length of one timed run of searches.
        repeats: timed runs per figure; the median is reported.
        clients_many: client processes in the runs with several clients.
        batch_queries: query vectors per call in the batch runs.
        selectivities_percent: shares of rows that the filters keep.
        write_rows_per_s: rate of the background writer.
        write_batch_rows: rows per call of the background writer.
        build_rows: rows of the second collection whose index is built while the first is searched.
        strong_reads: repeats of write-then-read.
        idle_s: length of the idle CPU measurement.
        call_timeout_s: longest that one call of a worker may take, for a million rows or fewer.
    """

    index_m: int = 16
    index_ef_construction: int = 200
    top_k: int = 10
    ef_grid: tuple[int, ...] = (
        10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512,
    )  # fmt: skip
    queries: int = 2000
    recall_queries: int = 500
    filter_recall_queries: int = 200
    insert_batch_rows: int = 5000
    written_rows_max: int = 60_000
    search_s: float = 6.0
    repeats: int = 3
    clients_many: int = 4
    batch_queries: int = 100
    selectivities_percent: tuple[float, ...] = SELECTIVITIES_PERCENT
    write_rows_per_s: int = 800
    write_batch_rows: int = 80
    build_rows: int = 20_000
    strong_reads: int = 40
    idle_s: float = 20.0
    call_timeout_s: float = 900.0

    def for_rows(self, rows: int) -> Settings:
        """The settings of a set of ``rows``: a build of more than a million may take longer in proportion."""
        millions = max(1, math.ceil(rows / 1_000_000))
        return dataclasses.replace(self, call_timeout_s=self.call_timeout_s * millions)


def quick() -> Settings:
    """A run of minutes: one short repeat of everything."""
    return dataclasses.replace(
        Settings(),
        queries=500,
        recall_queries=200,
        filter_recall_queries=50,
        search_s=1.5,
        repeats=1,
        build_rows=2000,
        strong_reads=10,
        idle_s=3.0,
    )
