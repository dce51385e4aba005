"""The recall of walks over a graph, at a few efforts.

The queries are rows whose own links are hidden (`elanus.index.withheld`). One walk serves all numbers of hits
that are at most its effort: those of fewer hits are the first of it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elanus.core.types import Matrix
from elanus.index.hits import NO_ROW, RowIds, without
from elanus.index.hnsw import HnswIndex
from elanus.index.resolve import over_rows
from elanus.index.search_params import SearchParams
from elanus.index.withheld import late_rows, withheld

DEPTHS = (10, 100, 1000)
"""Numbers of hits; those above a twentieth of the rows are left out."""
SHALLOW = 100
"""Walks that find more hits take longer than all others together, so only the first batch has them, ..."""
DEEP_QUERIES = 4
"""... which is as small as that."""
BATCH_QUERIES = 8
EFFORT_MIN = 8
GROWTH = 2
"""Each effort is so many times the one before."""
EFFORT_MAX = 4096
"""The largest effort that is measured."""
ENOUGH = 0.9995
"""From this recall on, larger efforts are not measured."""
GAIN_MIN = 0.0005
"""If twice the effort finds no larger share of the hits than this, nothing will."""
_OWN = 1  # the query's own row is among the hits, and among the rows that a walk keeps

Floats = npt.NDArray[np.float64]


class WalkMeasuring:
    """Batches of queries. ``depths`` (d,), ``efforts`` (e,)."""

    free_s = 0.05
    caution = 0.5
    """Less than for lists: hidden rows are already a little harder to find the neighbors of than others."""

    def __init__(self, index: HnswIndex, vectors: Matrix, queries_max: int, threads: int) -> None:
        spec = index.spec
        self._index = index
        self._vectors = vectors
        self._threads = threads
        self._exact = over_rows(spec.data_type, spec.dim, spec.metric_type, vectors, spec.params)
        self.depths = np.array([depth for depth in DEPTHS if depth * 20 <= index.rows], dtype=np.int64)
        steps = int(np.log2(EFFORT_MAX // EFFORT_MIN))
        self.efforts = EFFORT_MIN * GROWTH ** np.arange(steps + 1, dtype=np.int64)
        fit = late_rows(index.graph)
        self._rows = np.random.default_rng(index.rows).permutation(fit)[:queries_max]

    def batches(self) -> int:
        return -(-max(len(self._rows) - DEEP_QUERIES, 0) // BATCH_QUERIES) + min(len(self._rows), 1)

    def measure(self, batch: int) -> Floats:
        """Return the recall of each query of a batch, (queries, depths, efforts); NaN where not measured."""
        if batch == 0:
            rows, deepest = self._rows[:DEEP_QUERIES], len(self.depths)
        else:
            rows = self._rows[DEEP_QUERIES + (batch - 1) * BATCH_QUERIES :][:BATCH_QUERIES]
            deepest = int(np.count_nonzero(self.depths <= SHALLOW))
        open_depths = list(range(deepest))
        queries, most = self._vectors[rows], int(self.depths[deepest - 1]) + _OWN
        truth = without(self._exact.search(queries, most, SearchParams(), threads=self._threads).rows, rows)
        recalls = np.zeros((len(rows), deepest))
        found = np.full((len(rows), len(self.depths), len(self.efforts)), np.nan)
        found[:, :deepest] = 0
        with withheld(self._index.graph, rows):
            for number, effort in enumerate(self.efforts.tolist()):
                for depths in self._walks(open_depths, effort):
                    left = np.flatnonzero((recalls[:, depths] < 1).any(axis=1))  # others found everything
                    k = int(self.depths[depths[-1]])
                    hits = self._walk(queries[left], rows[left], k, effort)
                    for place in depths:
                        depth = self.depths[place]
                        before = recalls[:, place].mean()
                        recalls[left, place] = self._recalls(hits[:, :depth], truth[left, :depth])
                        found[:, place, number:] = recalls[:, place, None]  # no larger effort is worse
                        reached = recalls[:, place].mean()
                        if reached >= ENOUGH or 0 < before > reached - GAIN_MIN:
                            open_depths.remove(place)
        return found

    def _walks(self, places: list[int], effort: int) -> list[list[int]]:
        """Return the depths to measure with this effort, by the walk that serves them.

        A walk keeps as many rows as are to be hits, so half of these will do.
        """
        together = [place for place in places if self.depths[place] <= effort]
        alone = [[place] for place in places if effort < self.depths[place] <= GROWTH * effort - 1]
        return [together, *alone] if together else alone

    def _walk(self, queries: Matrix, rows: RowIds, k: int, effort: int) -> RowIds:
        """Return the hits without the queries' own rows, (queries, k)."""
        wide = k + _OWN
        return without(self._index.met(queries, wide, max(effort + _OWN, wide), self._threads), rows)

    def _recalls(self, hits: RowIds, truth: RowIds) -> Floats:
        """Return the recall of each query, (queries,)."""
        apart = np.arange(len(hits))[:, None] * self._index.rows
        is_found = np.isin(truth + apart, np.where(hits < 0, NO_ROW, hits + apart))
        found: Floats = is_found.mean(axis=1)
        return found
