"""How to answer one search: the breadth of the graph walk, or an exact scan; the number of lists.

Pure arithmetic; the measurements behind the constants are in ``docs/index-strategy.md``.

**The graph under a filter.** faiss walks the graph towards the query whether rows are visible or not,
and keeps the ``ef`` nearest rows it met. If a share s of *those* is visible, ef = k / s holds k hits. So
ef grows with 1 / s, and from some point on comparing every visible row is cheaper. Both costs are given
in nanoseconds of one core of the machine they were measured on; only their ratio matters.

**The unknown share.** s is known for the whole segment, but not near the query: filters correlate
with vectors (a category, a language, a tenant). The caller therefore checks the result: a walk that found
k visible rows within its ef nearest is complete as far as the graph is; any other walk is repeated with
the share it observed, or replaced by the exact scan. This costs a correlated query one wasted walk, and
no query its recall.
"""

from __future__ import annotations

import math

EXACT_BASE_NS = 3.0
EXACT_PER_DIM_NS = 0.15
"""One row of an exact scan: 4 ns at 16 dimensions, 20 at 128, 75–145 at 784 (caches or main memory)."""

BATCH_QUERIES_MIN = 4
"""From this many queries on, an exact scan works block by block (`elanus.index.exact`)."""
BATCH_SHARED = 0.6
"""The share of a row's cost (fetching it) that a batch shares: 46 ns for each of 100 queries, not 120."""

SHARE_MIN_NS = 1.5e6
"""Work is divided into shares of this much at least: to start a thread and join its results costs a tenth."""
SHARES_PER_THREAD = 2
"""A thread takes one share after the other, so one that gets less of its core takes fewer."""

VISIT_BASE_NS = 50.0
VISIT_PER_DIM_NS = 0.18
"""One row visited in the graph: 42 ns at 16 dimensions, 75–100 at 128, 150–200 at 784."""

VISITS_PER_EF = 10.0
VISITS_EXPONENT = 0.8
"""Rows visited: 10 · √M · ef^0.8. Measured 12.5 · √M on spread-out data, 6 · √M on MNIST."""

QUEUE_EF = 1600.0
"""faiss scans its candidate queue linearly: a visit costs 1 + ef / 1600 times as much."""

SPARE_DEVIATIONS = 3.0
"""Under a filter that hides the share h, ef is sized for k + 3·√(k·h) visible rows: k hits are then found 99
times in 100."""
VISIBLE_MIN = 32
"""Under a filter ef is sized for at least 32 visible rows: a narrow walk loses recall before its k-th hit."""

CODED_SEARCH_NS = 40_000.0
"""A scan of codes begins with a table of distances to all codewords."""
CODED_BASE_NS = 1.5
CODED_PER_DIM_NS = 0.0035
"""One row of a scan of codes, visible or not: 2.4 ns at 256 dimensions, 4.2 at 784."""
CANDIDATE_WEIGHT = 2.0
"""A candidate is compared as a row of an exact scan is, but out of order."""

ROUNDING = 1e-9
"""A product and its quotient differ by less than this share of a list."""

PROGRESS_FACTOR = 2
"""A repeated walk is at least twice as broad as the one before."""


def exact_cost_ns(rows: int, dim: int, queries: int) -> float:
    """The cost of comparing one query with this many rows."""
    per_row = EXACT_BASE_NS + EXACT_PER_DIM_NS * dim
    return rows * per_row * (1.0 - BATCH_SHARED + BATCH_SHARED / math.sqrt(queries))


def shares_for(work_ns: float, threads: int) -> int:
    """Return into how many shares so much work of one search is divided for this many threads."""
    return max(1, min(SHARES_PER_THREAD * threads, int(work_ns / SHARE_MIN_NS))) if threads > 1 else 1


def coded_cost_ns(rows: int, dim: int, candidates: int) -> float:
    """The cost per query of scanning the codes of all rows, and comparing these candidates."""
    ranking = candidates * CANDIDATE_WEIGHT * exact_cost_ns(1, dim, 1)
    return CODED_SEARCH_NS + rows * (CODED_BASE_NS + CODED_PER_DIM_NS * dim) + ranking


def graph_visits(ef: int, rows: int, links: int) -> float:
    """How many rows a walk over a graph of this many rows with M = ``links`` and this ef visits, about."""
    visits: float = VISITS_PER_EF * math.sqrt(links) * ef**VISITS_EXPONENT
    return min(float(rows), visits)


def graph_cost_ns(ef: int, rows: int, dim: int, links: int) -> float:
    """The cost per query of walking a graph of this many rows with M = ``links`` and this ef."""
    return graph_visits(ef, rows, links) * (VISIT_BASE_NS + VISIT_PER_DIM_NS * dim) * (1.0 + ef / QUEUE_EF)


def breadth(
    *,
    rows: int,
    visible: int,
    dim: int,
    links: int,
    k: int,
    ef: int,
    queries: int,
    share: float,
    previous_ef: int = 0,
    exact_weight: float = 1.0,
    coded_ns: float = math.inf,
) -> int | None:
    """The ef to walk the graph with, or None where a scan of the visible rows is cheaper.

    ``ef``: the requested value. ``share``: the expected share of visible rows among those nearest to
    the query. ``previous_ef``: the breadth that proved too small, 0 in the first round. ``exact_weight``:
    how much more than in memory a row of the exact scan costs. ``coded_ns``: the cost of a scan of codes,
    where it can take the place of the exact one.
    """
    wanted = max(ef, k)
    if visible < rows:
        spare = SPARE_DEVIATIONS * math.sqrt(k * (1.0 - share))
        wanted = math.ceil(max(wanted, k + spare, VISIBLE_MIN) / share)
    if previous_ef:
        wanted = max(wanted, previous_ef * PROGRESS_FACTOR)
    wanted = min(wanted, rows)
    if wanted <= previous_ef:
        return None
    scan_ns = min(exact_weight * exact_cost_ns(visible, dim, queries), coded_ns)
    if graph_cost_ns(wanted, rows, dim, links) > scan_ns:
        return None
    return wanted


def probes(nprobe: float, lists: int, share: float) -> int:
    """How many inverted lists to scan: as many *visible* rows as the search would scan without a filter.

    Distances are computed for visible rows only, so the cost stays that of the unfiltered search, and
    the nearest k, which are further out among fewer rows, are still reached. ``nprobe``: a fraction of a list
    counts, as 1.5 lists are 15 under a filter that leaves a tenth.
    """
    wanted = min(nprobe, lists) / share
    return min(lists, max(1, math.ceil(wanted - ROUNDING)))
