"""How to answer one search: the breadth of the graph walk, or an exact scan; the number of lists.

Pure arithmetic; the measurements behind the constants are in ``docs/index-strategy.md``.

**The graph under a filter.** faiss walks the graph towards the query whether rows are visible or not,
and keeps the nearest rows it met. If a share s of *those* is visible, the k best of them are among the k / s
nearest of all. So a walk must find k / s rows as well as it finds k without a filter. A part of ``ef`` grows
with them, the rest is a margin. It need not grow as fast: a walk with twice the ef finds a larger share of
twice as many rows. From some point on comparing every visible row is cheaper. Both costs are given in
nanoseconds of one core of the machine they were measured on; only their ratio matters.

**Beyond ef.** A walk ends when ``ef`` of the rows it met are nearer than any it could go on from, but it has
met several times as many, and most of the 2·ef nearest rows there are: 0.92 of them at ef = 64, where it has
met 0.96 of the nearest ef; 0.84 and 0.88 at ef = 10 (200,000 × 128). So it is asked for up to 2·ef rows where
k visible ones are expected among as many.

**The unknown share.** s is known for the whole segment, but not near the query: filters correlate
with vectors (a category, a language, a tenant). The caller therefore checks the result: a walk that found
k visible rows within its ef nearest is complete as far as the graph is; any other walk is repeated with
the share it observed, or replaced by the exact scan. This costs a correlated query one wasted walk, and
no query its recall.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

EXACT_BASE_NS = 3.0
EXACT_PER_DIM_NS = 0.12
"""One row of an exact scan of consecutive rows: 4 ns at 16 dimensions, 15–20 at 128, 80–110 at 784."""
APART_BASE_NS = 16.0
APART_PER_DIM_NS = 0.1
"""The additional cost of a row that is fetched from memory, and is apart from the row before: nothing
announces it to the processor. A row cost 27 ns at 32 dimensions, 40–60 at 128, 150–230 at 784."""
APART_VISIT_NS = 50.0
"""The same for a row visited in the graph, which comes with its links."""
CACHE_BYTES = 32 << 20
"""The processor's cache: rows of a smaller segment stay there."""

BATCH_QUERIES_MIN = 4
"""From this many queries on, an exact scan works block by block (`elanus.index.exact`)."""
BATCH_SHARED = 0.6
"""The share of a row's cost (fetching it) that a batch shares: 46 ns for each of 100 queries, not 120."""

SHARE_MIN_NS = 0.4e6
"""Work is divided into shares of this much at least: a search waits 0.1 ms for another thread's help."""
SHARES_PER_THREAD = 2
"""A thread takes one share after the other, so one that gets less of its core takes fewer."""

VISIT_BASE_NS = 70.0
VISIT_PER_DIM_NS = 0.1
"""One row visited in the graph, in the cache: 70–110 ns at 128 dimensions, 130–190 at 784."""

VISITS_PER_EF = 8.0
VISITS_EXPONENT = 0.8
"""Rows visited: 8 · √M · ef^0.8. Measured 12.5 · √M on spread-out data, 7 on drawn clusters, 6 on MNIST."""

QUEUE_EF = 1600.0
"""faiss scans its candidate queue linearly: with room for n rows a visit costs 1 + n / 1600 times as much."""

SPARE_DEVIATIONS = 3.0
"""Under a filter that hides the share h, a walk is sized to meet k + 3·√(k·h) visible rows: k hits are then
found 99 times in 100."""
GROWING_PART = 0.7
MARGIN_EXPONENT = 0.4
"""Under a filter that leaves the share s, ef is 0.7 · k / s and its margin beyond 0.7 · k divided by s^0.4:
recall is then that of the walk without the filter, less a hundredth at most, for s from 0.05 to 0.9 and any
k / ef."""
REACH = 2.0
"""So many times ef rows are looked at, at most."""
FILTERED_EF_MIN = 20
"""Under a filter at least this ef is asked for: narrow walks lose recall before their k-th hit."""

FIRST_WALK_SHARE_MAX = 0.75
"""Under a filter the first walk costs at most this share of a scan: a query near which the filter hides more
rows than elsewhere pays for both."""

CODED_SEARCH_NS = 40_000.0
"""A scan of codes begins with a table of distances to all codewords."""
CODED_BASE_NS = 1.5
CODED_PER_DIM_NS = 0.0035
"""One row of a scan of codes, visible or not: 2.4 ns at 256 dimensions, 4.2 at 784."""
ROW_CODES_SEARCH_NS = 80_000.0
"""A comparison of codes by row begins with a table as well, and keeps the best in a heap."""
ROW_CODES_BASE_NS = 2.0
ROW_CODES_PER_DIM_NS = 0.06
APART_CODE_NS = 8.0
"""One visible row: 8 ns at 128 dimensions, and 8 more where its code is fetched from memory."""
CANDIDATE_WEIGHT = 2.0
"""A candidate is compared as a row of an exact scan is, but out of order."""

ROUNDING = 1e-9
"""A product and its quotient differ by less than this share of a list."""

PROGRESS_FACTOR = 2
"""A repeated walk is at least twice as broad as the one before."""


class Walk(NamedTuple):
    """A walk over a graph. ``depth``: how many rows it returns, of any kind; visible ones are hits."""

    ef: int
    depth: int


def exact_cost_ns(rows: int, dim: int, queries: int, among: int = 0) -> float:
    """Return the cost of comparing one query with this many rows.

    ``among``: out of how many rows of the segment; 0: all of them.
    """
    per_row = EXACT_BASE_NS + EXACT_PER_DIM_NS * dim
    if rows < among:
        per_row += uncached(among, dim) * (APART_BASE_NS + APART_PER_DIM_NS * dim)
    return rows * per_row * (1.0 - BATCH_SHARED + BATCH_SHARED / math.sqrt(queries))


def uncached(rows: int, dim: int) -> float:
    """Return the share of so many rows that the processor's cache has no room for."""
    return max(0.0, 1.0 - CACHE_BYTES / max(1, 4 * dim * rows))


def shares_for(work_ns: float, threads: int) -> int:
    """Return into how many shares so much work of one search is divided for this many threads."""
    return max(1, min(SHARES_PER_THREAD * threads, int(work_ns / SHARE_MIN_NS))) if threads > 1 else 1


def coded_cost_ns(rows: int, dim: int, candidates: int) -> float:
    """Return the cost per query of scanning the codes of all rows, and comparing these candidates."""
    ranking = candidates * CANDIDATE_WEIGHT * exact_cost_ns(1, dim, 1, rows)
    return CODED_SEARCH_NS + rows * (CODED_BASE_NS + CODED_PER_DIM_NS * dim) + ranking


def row_codes_cost_ns(rows: int, visible: int, dim: int, candidates: int) -> float:
    """Return the cost per query of comparing the codes of the visible rows by number, and these
    candidates."""
    ranking = candidates * CANDIDATE_WEIGHT * exact_cost_ns(1, dim, 1, rows)
    per_row = ROW_CODES_BASE_NS + ROW_CODES_PER_DIM_NS * dim + APART_CODE_NS
    return ROW_CODES_SEARCH_NS + visible * per_row + ranking


def graph_visits(ef: int, rows: int, links: int) -> float:
    """Return how many rows a walk over a graph of this many rows with M = ``links`` and this ef visits,
    about."""
    visits: float = VISITS_PER_EF * math.sqrt(links) * ef**VISITS_EXPONENT
    return min(float(rows), visits)


def graph_cost_ns(walk: Walk, rows: int, dim: int, links: int) -> float:
    """Return the cost per query of walking a graph of this many rows with M = ``links``."""
    per_visit = VISIT_BASE_NS + VISIT_PER_DIM_NS * dim + APART_VISIT_NS * uncached(rows, dim)
    return graph_visits(walk.ef, rows, links) * per_visit * (1.0 + max(walk) / QUEUE_EF)


def widened(ef: float, k: int, share: float, *, coarse: bool = False) -> float:
    """Return the ef with which a walk under a filter finds what it finds with ``ef`` ≥ k without the filter.

    ``share``: the expected share of visible rows among those nearest to the query. ``coarse``: the walk ranks
    by codes, and all that it finds is ranked again: then as many visible rows are found as all rows without.
    """
    part = GROWING_PART * k
    return part / share + (ef - part) / _margin(share, coarse)


def narrowed(ef: float, k: int, share: float, *, coarse: bool = False) -> float:
    """Return the ef ≥ k that `widened` widens to this one."""
    part = GROWING_PART * k
    return max(float(k), part + (ef - part / share) * _margin(share, coarse))


def _margin(share: float, coarse: bool) -> float:
    return share if coarse else math.pow(share, MARGIN_EXPONENT)


@lru_cache(maxsize=1024)  # without a filter, each search asks the same of a segment again
def walk(
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
    coarse: bool = False,
    exact_weight: float = 1.0,
    coded_ns: float = math.inf,
) -> Walk | None:
    """Return how to walk the graph, or None where a scan of the visible rows is cheaper.

    ``ef``: the requested value. ``share``, ``coarse``: as of `widened`. ``previous_ef``: the breadth that
    proved too small, 0 in the first round. ``exact_weight``: how much more than in memory a row of the exact
    scan costs. ``coded_ns``: the cost of a scan of codes, where it can take the place of the exact one.
    """
    wanted: float = max(ef, k)
    among = float(k)
    if visible < rows:
        among = (k + SPARE_DEVIATIONS * math.sqrt(k * (1.0 - share))) / share
        wanted = max(widened(max(wanted, FILTERED_EF_MIN), k, share, coarse=coarse), among / REACH)
    if previous_ef:
        wanted = max(wanted, previous_ef * PROGRESS_FACTOR)
    wanted = min(math.ceil(wanted), rows)
    if wanted <= previous_ef:
        return None
    depth = k if visible == rows else min(max(wanted, math.ceil(among)), rows)
    chosen = Walk(wanted, depth)
    scan_ns = min(exact_weight * exact_cost_ns(visible, dim, queries, rows), coded_ns)
    if visible < rows and not previous_ef:
        scan_ns *= FIRST_WALK_SHARE_MAX
    return None if graph_cost_ns(chosen, rows, dim, links) > scan_ns else chosen


def probes(nprobe: float, lists: int, share: float) -> int:
    """Return how many inverted lists to scan: as many *visible* rows as the search would scan without a
    filter.

    Distances are computed for visible rows only, so the cost stays that of the unfiltered search, and
    the nearest k, which are further out among fewer rows, are still reached. ``nprobe``: a fraction of a list
    counts, as 1.5 lists are 15 under a filter that leaves a tenth.
    """
    wanted = min(nprobe, lists) / share
    return min(lists, max(1, math.ceil(wanted - ROUNDING)))
