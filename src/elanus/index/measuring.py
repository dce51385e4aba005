"""Measures the recall curve of an index that has just been built, on a sample of its own rows.

Its queries must be as hard as those of clients. Rows are, for lists, as long as they do not count as their
own hits; for a graph their own links are hidden, too (`elanus.index.withheld`).

The truth comes from comparing all rows. The cost is bounded: one small batch of queries is measured in any
case, and more of them as long as the time allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.nullable import NullableVectors
from elanus.core.trail import Trail, following
from elanus.core.types import Matrix
from elanus.index.base import SegmentIndex, VectorIndex
from elanus.index.curve import RecallCurve, effort_name
from elanus.index.hits import NO_ROW, RowIds
from elanus.index.hnsw import HnswIndex
from elanus.index.ivf import list_count
from elanus.index.nullable import NullableIndex
from elanus.index.parallel import openmp_threads
from elanus.index.resolve import over_rows
from elanus.index.search_params import SearchParams
from elanus.index.withheld import late_rows, withheld

ROWS_MIN = 2_000
"""Indexes of fewer rows have no curve: comparing all of their rows costs little more than walking."""
DEPTHS = (10, 100, 1000)
"""Numbers of hits; those above a twentieth of the rows are left out."""
BUDGET_SHARE = 0.03
"""The measuring may take this share of the time of the build, ..."""
BUDGET_MIN_S = 0.25
"""... and this long in any case."""
BATCH_QUERIES = 8
QUERIES_MAX = 256
GROWTH = 2
"""Each effort is so many times the one before."""
ENOUGH = 0.9995
"""From this recall on, larger efforts are not measured."""
EFFORT_MAX = 4096
"""The largest effort that is measured on a graph."""
CAUTION = 0.5
"""So many standard errors are subtracted from what was measured."""
LIST_SPREAD = 3
"""A list may have so many times fewer rows than others."""
GAIN_MIN = 0.0005
"""If twice the effort finds no larger share of the hits than this, nothing will."""

Floats = npt.NDArray[np.float64]


def measure(
    index: SegmentIndex,
    vectors: Any,
    build_s: float,
    threads: int,
    now_s: Callable[[], float] = time.perf_counter,
) -> None:
    """Give an index over these vectors its recall curve, if it is of a kind with efforts and has enough rows.

    ``vectors``: what `elanus.index.build` built it from. ``build_s``: how long the build took. Lists of
    vectors have no curve.
    """
    if isinstance(index, NullableIndex) and isinstance(vectors, NullableVectors):
        index, vectors = index.inner or index, vectors.vectors
    if not isinstance(index, VectorIndex) or not isinstance(vectors, np.ndarray):
        return
    name = effort_name(index.spec.kind)
    if not name or index.rows < ROWS_MIN:
        return
    budget_s = max(BUDGET_MIN_S, BUDGET_SHARE * build_s)
    began_s = now_s()
    with openmp_threads(threads):
        measuring = _Measuring(index, vectors, name, threads)
        while measuring.has_queries:
            batch_s = now_s()
            measuring.measure_batch()
            ended_s = now_s()
            if ended_s - began_s + (ended_s - batch_s) > budget_s:
                break
    index.curve = measuring.curve()


class _Measuring:
    """The queries that were measured so far."""

    def __init__(self, index: VectorIndex, vectors: Matrix, name: str, threads: int) -> None:
        spec = index.spec
        self._index = index
        self._vectors = vectors
        self._name = name
        self._graph = index if isinstance(index, HnswIndex) else None
        self._threads = threads
        self._exact = over_rows(spec.data_type, spec.dim, spec.metric_type, vectors, spec.params)
        self._depths = [depth for depth in DEPTHS if depth * 20 <= index.rows]
        self._lists = list_count(spec.params["nlist"], index.rows) if name == "nprobe" else 0
        self._efforts = _efforts(self._lists)
        fit = np.arange(index.rows) if self._graph is None else late_rows(self._graph.graph)
        self._rows = np.random.default_rng(index.rows).permutation(fit)[:QUERIES_MAX]
        self._done = 0
        self._sums = np.zeros((len(self._depths), len(self._efforts)))
        self._squares = np.zeros_like(self._sums)
        self._used = 1

    @property
    def has_queries(self) -> bool:
        return self._done < len(self._rows)

    def measure_batch(self) -> None:
        rows = self._rows[self._done : self._done + BATCH_QUERIES]
        self._done += len(rows)
        queries, most = self._vectors[rows], self._depths[-1] + 1
        truth = _without(self._exact.search(queries, most, SearchParams(), threads=self._threads).rows, rows)
        with nullcontext() if self._graph is None else withheld(self._graph.graph, rows):
            for place, depth in enumerate(self._depths):
                self._measure_depth(place, queries, rows, truth[:, :depth])

    def _measure_depth(self, place: int, queries: Matrix, rows: RowIds, truth: RowIds) -> None:
        """Try ever larger efforts, until they find all, or no more than the one before."""
        before = 0.0
        for number, effort in enumerate(self._efforts):
            if self._meets(effort) < truth.shape[1]:
                continue
            found = self._recalls(queries, rows, truth, effort)
            mean = float(found.mean())
            self._used = max(self._used, number + 1)
            is_last = mean >= ENOUGH or (before > 0 and mean - before < GAIN_MIN)
            at = slice(number, None if is_last else number + 1)  # no larger effort is worse
            self._sums[place, at] += found.sum()
            self._squares[place, at] += (found**2).sum()
            if is_last:
                return
            before = mean

    def _meets(self, effort: int) -> float:
        """Return how many rows a search is sure to meet: too few are no measurement, as it looks for more."""
        if self._graph is not None:  # it keeps as many as are to be hits, so half of these will do
            return GROWTH * effort - 1
        return effort * self._index.rows / self._lists / LIST_SPREAD

    def curve(self) -> RecallCurve:
        count = self._done
        mean = self._sums / count
        spread = np.sqrt(np.maximum(self._squares / count - mean**2, 0) / count)
        cautious = np.clip(mean - CAUTION * spread, 0, 1)
        recalls = np.maximum.accumulate(cautious[:, : self._used], axis=1)
        efforts = np.array(self._efforts[: self._used], dtype=np.int64)
        return RecallCurve(np.array(self._depths, dtype=np.int64), efforts, recalls)

    def _recalls(self, queries: Matrix, rows: RowIds, truth: RowIds, effort: int) -> Floats:
        """Return the recall of each query, (queries,); zeros where the index had to look for more rows."""
        own = 1  # among the hits, and among the rows that a walk keeps
        k = truth.shape[1] + own
        if self._graph is not None:
            hits = self._graph.met(queries, k, max(effort + own, k), self._threads)
        else:
            params = SearchParams().with_effort(self._name, effort)
            trail = Trail(time.perf_counter, None)
            with following(trail):
                trail.visit(self._index)
                hits = self._index.search(queries, k, params, threads=self._threads).rows
            if len(trail.visits[0].methods) > 1:  # too few rows in so few lists: others were scanned, too
                return np.zeros(len(rows))
        hits = _without(hits, rows)
        apart = np.arange(len(rows))[:, None] * self._index.rows
        is_found = np.isin(truth + apart, np.where(hits < 0, NO_ROW, hits + apart))
        found: Floats = is_found.mean(axis=1)
        return found


def _efforts(lists: int) -> list[int]:
    """``lists``: how many the index has, 0 for a graph."""
    efforts = [1 if lists else 8]
    most = lists or EFFORT_MAX
    while efforts[-1] < most:
        efforts.append(min(most, efforts[-1] * GROWTH))
    return efforts


def _without(found: RowIds, rows: RowIds) -> RowIds:
    """Return the hits of each query but its own row, one column fewer."""
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    others: RowIds = found[~own].reshape(len(rows), found.shape[1] - 1)
    return others
