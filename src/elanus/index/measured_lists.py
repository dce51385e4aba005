"""The recall of lists at every effort, without a search for each effort.

A search of the p nearest lists finds a row exactly if the row's list is among them. So the places of the
lists of the true best rows, in the order of distance from the query, are the whole curve. Where lists hold
codes, the row must also be among the candidates: one search of all lists shows the order of the codes, and
the rows of the p nearest lists among them are the candidates of a search of p lists.

Keeping a thousand best rows costs several times as much as comparing, so only the first batches do.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elanus.core.types import Matrix
from elanus.index.base import Queries
from elanus.index.hits import RowIds, without
from elanus.index.resolve import over_rows
from elanus.index.search_params import SearchParams
from elanus.index.spec import IndexSpec

DEPTHS = (10, 20, 50, 100, 300, 1000)
"""Numbers of hits; those above a twentieth of the rows are left out."""
SHALLOW = 100
"""More hits are measured in the first batches alone, ..."""
DEEP_BATCHES = 3
"""... so many of them."""
COLUMNS_PER_CANDIDATE = 4
"""So many rows by their codes are looked through for each candidate of a search of a few lists."""
BATCH_QUERIES = 16
GROWTH = 2**0.5
ROWS_MET_PER_HIT = 1.5
"""A search of lists with fewer rows than this, for each hit, may find too few under a filter."""

Floats = npt.NDArray[np.float64]


class Listed(Protocol):
    """An index of rows in lists."""

    spec: IndexSpec
    rows: int

    def lists_of_rows(self) -> RowIds:
        """Return the number of the list of each row, (rows,)."""

    def nearest_lists(self, queries: Queries) -> RowIds:
        """Return all lists by their distance from each query, (nq, lists)."""

    def by_codes(self, queries: Queries, k: int, threads: int) -> RowIds | None:
        """Return the k best rows of all lists by their codes, (nq, k); None if lists hold vectors."""

    def candidates(self, k: int) -> int:
        """Return how many rows a search for k hits takes from the lists."""


class ListMeasuring:
    """Batches of queries. ``depths`` (d,), ``efforts`` (e,)."""

    free_s = 0.4
    caution = 1.0

    def __init__(self, index: Listed, vectors: Matrix, lists: int, queries_max: int, threads: int) -> None:
        spec = index.spec
        self._index = index
        self._vectors = vectors
        self._threads = threads
        self._exact = over_rows(spec.data_type, spec.dim, spec.metric_type, vectors, spec.params)
        self._rows = np.random.default_rng(index.rows).choice(index.rows, queries_max, replace=False)
        self.depths = np.array([depth for depth in DEPTHS if depth * 20 <= index.rows], dtype=np.int64)
        self.efforts = _efforts(lists)
        self._lists_of_rows = index.lists_of_rows()
        self._list_rows = np.bincount(self._lists_of_rows, minlength=lists)

    def batches(self) -> int:
        return -(-len(self._rows) // BATCH_QUERIES)

    def measure(self, batch: int) -> Floats:
        """Return the recall of each query of a batch, (queries, depths, efforts); NaN where not measured."""
        rows = self._rows[batch * BATCH_QUERIES :][:BATCH_QUERIES]
        queries, index = self._vectors[rows], self._index
        depths = [int(depth) for depth in self.depths if batch < DEEP_BATCHES or depth <= SHALLOW]
        taken = [index.candidates(depth) for depth in depths]
        most = depths[-1] + 1  # the query itself is a row
        truth = self._exact.search(queries, most, SearchParams(), threads=self._threads).rows
        truth = without(truth, rows)
        nearest = index.nearest_lists(queries)
        places = np.argsort(nearest, axis=1)
        coded = index.by_codes(queries, min(index.rows, taken[-1] + 1), self._threads)
        found = np.full((len(rows), len(self.depths), len(self.efforts)), np.nan)
        if coded is None:
            at = self._places(places, truth)
            for place, depth in enumerate(depths):
                found[:, place] = self._within(at[:, :depth])
        else:
            coded = without(coded, rows)
            at, rank = self._places(places, coded), _ranks(coded, truth)
            for number, effort in enumerate(self.efforts):
                probed = at < effort
                order = np.cumsum(probed, axis=1)
                for place, depth in enumerate(depths):
                    first = slice(COLUMNS_PER_CANDIDATE * taken[place])
                    is_hit = (order[:, first] <= taken[place]) & (rank[:, first] < depth) & probed[:, first]
                    found[:, place, number] = np.count_nonzero(is_hit, axis=1) / depth
        # a search that meets too few rows scans all lists, so it says nothing
        met = np.cumsum(self._list_rows[nearest], axis=1)[:, self.efforts - 1]
        found *= met[:, None, :] >= ROWS_MET_PER_HIT * self.depths[None, :, None]
        return found

    def _within(self, at: RowIds) -> Floats:
        """Return the share of rows whose list is among the nearest, (nq, efforts). ``at``: (nq, k)."""
        ordered = np.sort(at, axis=1)
        shares = [np.searchsorted(places, self.efforts) / len(places) for places in ordered]
        return np.array(shares)

    def _places(self, places: RowIds, rows: RowIds) -> RowIds:
        """Return how many lists are nearer than that of each row, (nq, k)."""
        lists = self._lists_of_rows[np.maximum(rows, 0)]
        found: RowIds = np.where(rows < 0, places.shape[1], np.take_along_axis(places, lists, axis=1))
        return found


def _efforts(lists: int) -> npt.NDArray[np.int64]:
    count = int(np.ceil(np.log(lists) / np.log(GROWTH))) if lists > 1 else 0
    steps: npt.NDArray[Any] = np.minimum(lists, np.ceil(GROWTH ** np.arange(count + 1)))
    return np.unique(steps.astype(np.int64))


def _ranks(rows: RowIds, truth: RowIds) -> RowIds:
    """Return the place of each row in the truth of its query; as many as there are if it is not in it."""
    ranks = np.full(rows.shape, truth.shape[1])
    for query, (of, best) in enumerate(zip(rows, truth, strict=True)):
        order = np.argsort(best)
        at = np.minimum(np.searchsorted(best, of, sorter=order), len(best) - 1)
        is_in = best[order[at]] == of
        ranks[query, is_in] = order[at[is_in]]
    return ranks
