"""The interface of every index, and the code that vector indexes share: checks, padding, range search.

An index covers the rows of one segment, numbered from 0 in the order of the build input. It is
immutable once built or loaded, so any number of threads may search it at once; the work is done in faiss
and numpy with the interpreter lock released.

A `VectorIndex` holds vectors and is searched; a `ScalarIndex` holds scalars, and filters look up rows in it.
A vector index must implement two queries: the k nearest visible rows (`_nearest`), and the k
nearest visible rows within a window of scores (`_within`). Neither may return fewer hits than there are:
if an approximate search finds too few, the subclass falls back to an exact one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elanus.core.errors import Internal, InvalidDimension
from elanus.core.lookup import Found, Lookup
from elanus.core.metrics import Metric
from elanus.core.target_recall import EFFORTS
from elanus.core.trail import note_aim
from elanus.core.types import Matrix
from elanus.core.vector_lists import Queries as Queries
from elanus.index.curve import RecallCurve, effort_name
from elanus.index.hits import NO_ROW, Hits, RowIds, Scores, no_hits
from elanus.index.masks import RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec
from elanus.index.unit import unit

Vectors = Matrix


class SegmentIndex(ABC):
    """An index of one field of one segment. ``rows``: the number of rows."""

    def __init__(self, spec: IndexSpec, rows: int) -> None:
        self.spec = spec
        self.rows = rows

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes of vectors, graph and tables, in memory or mapped."""

    @property
    @abstractmethod
    def has_raw_vectors(self) -> bool:
        """Whether it is a vector index whose `VectorIndex.reconstruct` returns the original vectors."""

    @property
    def disk_bytes(self) -> int:
        """Bytes of its file that stay on disk when it is loaded."""
        return 0

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the index to one file. `elanus.index.load` reads it back."""


class ScalarIndex(SegmentIndex):
    """An index of one segment's values that finds rows without reading the column.

    ``rows_share_max``: up to which share of the rows it is quicker than reading the column. ``has_bits``:
    whether it answers with packed bits.
    """

    rows_share_max = 0.05
    has_bits = False

    @property
    def has_raw_vectors(self) -> bool:
        return False

    @property
    def title(self) -> str:
        """The kind, as filters are explained."""
        return self.spec.declared_type or self.spec.index_type

    @abstractmethod
    def estimate(self, lookup: Lookup) -> int | None:
        """Return how many rows match the lookup at most; None if the index cannot answer it.

        Costs far less than `find`: which index is used, or none, is decided by it.
        """

    def finds_quickly(self, count: int) -> bool:
        """Whether finding so many rows takes less than reading the column, if nothing else is to be done."""
        return count <= self.rows_share_max * self.rows

    @abstractmethod
    def find(self, lookup: Lookup) -> Found | None:
        """Return exactly the rows that match; rows without a value never do. None: it cannot answer."""


class VectorIndex(SegmentIndex):
    """Vectors of one segment that can be searched. ``curve``: what recall costs, None if not measured."""

    curve: RecallCurve | None = None

    def search(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None = None, threads: int = 1
    ) -> Hits:
        """Return the k best visible rows for each query; with a radius in ``params``, those within it.

        ``queries``: float32 (nq, dim), uint8 (nq, dim / 8) for binary vectors, or uint64 (nq, pairs) for
        sparse ones (`elanus.core.sparse.padded`). Returns k columns, padded where fewer rows are visible (or
        in range). ``mask`` None: all rows are visible.
        ``threads``: cores that a long search may use. Raises `InvalidDimension`.
        """
        queries = self._checked(queries)
        if mask is not None and mask.rows != self.rows:
            raise ValueError(f"a mask of {mask.rows} rows over an index of {self.rows}")
        visible = self.rows if mask is None else mask.count
        if visible == self.rows:
            mask = None
        depth = min(k, visible)
        if depth == 0 or len(queries) == 0:
            return no_hits(len(queries), k, self.spec.metric_type)
        if params.target is not None:
            params = self._aimed(params, params.target, depth, visible / self.rows)
        if params.window is None:
            hits = self._nearest(queries, depth, params, mask, threads)
        else:
            hits = self._in_range(queries, depth, params, mask, threads, params.window)
        return _only_scored(hits, self.spec.metric_type).padded(k, self.spec.metric_type)

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        """Return about how long a search takes one core, in nanoseconds as in `elanus.index.plan`.

        0: not known, and the search counts as short.
        """
        return 0.0

    def scores_of(self, queries: Queries, rows: RowIds) -> Scores:
        """Return the score of each query with each of these rows, as the index knows them.

        ``rows``: ascending, without duplicates. (queries, rows)
        """
        flags = np.zeros(self.rows, dtype=np.bool_)
        flags[rows] = True
        # A search for as many rows as are visible finds all of them that have a score.
        found = self.search(queries, len(rows), SearchParams(), RowMask.from_bool(flags))
        scores = np.full(found.rows.shape, self.spec.metric_type.worst_score, dtype=np.float32)
        query, place = np.nonzero(found.rows >= 0)
        scores[query, np.searchsorted(rows, found.rows[query, place])] = found.distances[query, place]
        return scores

    def reconstruct(self, rows: RowIds) -> Vectors:
        """Return the original vectors of these rows, (m, width), in their stored form.

        Raises `Internal` if the index does not hold them (`has_raw_vectors`).
        """
        if not self.has_raw_vectors:
            raise Internal(f"an index of type {self.spec.index_type} does not hold its vectors")
        vectors = self._reconstruct(np.ascontiguousarray(rows, dtype=np.int64))
        return vectors.astype(self.spec.form.dtype, copy=False)

    def _aimed(self, params: SearchParams, target: float, k: int, share: float) -> SearchParams:
        """Return the parameters with the effort that reaches the target, or with the most there is."""
        name = effort_name(self.spec.kind)
        if not name:  # it compares all rows
            return params
        curve = self.curve
        effort: float | None = None
        if curve is not None and name == "nprobe":
            effort = curve.lists(target, k, share, params.miss_factor)
        elif curve is not None:
            spent = curve.effort(target, k, share, params.miss_factor)
            effort = None if spent is None else self._asked(spent, k, share)
        note_aim(effort, None if curve is None else curve.best(k, share))
        if effort is None:
            # All lists were measured; a graph that is walked with the largest effort is compared as a whole.
            effort = EFFORTS[name] if curve is None or name != "nprobe" else curve.enough(k, share)
        return params.with_effort(name, effort)

    def _asked(self, effort: int, k: int, share: float) -> int:
        """Return what the index widens to this effort, under a filter that leaves this share of the rows."""
        return effort

    @abstractmethod
    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        """k columns, no padding: 1 ≤ k ≤ visible rows. ``queries`` are checked (unit length for COSINE)."""

    @abstractmethod
    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        """k columns: the best visible rows whose score is in the window, padded; exact."""

    @abstractmethod
    def _reconstruct(self, rows: RowIds) -> Vectors:
        """(m, width), in the stored form or in the form for comparison, which is lossless."""

    def _checked(self, queries: Queries) -> Queries:
        form = self.spec.form
        width = form.width(self.spec.dim)
        if queries.ndim != 2 or queries.shape[1] != width:
            raise InvalidDimension(
                f"vector dimension mismatch, expected vector size(byte) {width * queries.itemsize}, "
                f"actual {queries.nbytes // max(1, len(queries))}"
            )
        compared = form.compared(queries)
        return unit(compared) if self.spec.metric_type is Metric.COSINE else compared

    def _in_range(
        self,
        queries: Queries,
        depth: int,
        params: SearchParams,
        mask: RowMask | None,
        threads: int,
        window: Window,
    ) -> Hits:
        """Do a range search as a search that is cut off at the radius.

        The k nearest rows include the k nearest within the radius. More rows must be examined only if
        ``range_filter`` excludes some of them and the radius is further out than the last.
        """
        if params.exact:
            return self._within(queries, depth, window, mask)
        found = self._nearest(queries, depth, params, mask, threads)
        inside = window.holds(found.distances)
        hits = _compacted(found, inside, self.spec.metric_type)
        visible = self.rows if mask is None else mask.count
        if window.range_filter is not None and depth < visible:
            open_ended = ~window.beyond(found.distances[:, -1]) & ~inside.all(axis=1)
            if open_ended.any():
                rest = self._within(queries[open_ended], depth, window, mask)
                hits.distances[open_ended] = rest.distances
                hits.rows[open_ended] = rest.rows
        return hits


def _only_scored(hits: Hits, metric: Metric) -> Hits:
    """Return the hits; rows whose score is the worst there is, or no number, become padding.

    These are rows that do not match, if the metric only has matches, and rows whose L2 distance is beyond
    float32.
    """
    scores, worst = hits.distances, np.float32(metric.worst_score)
    is_hit = scores > worst if metric.bigger_is_better else scores < worst
    if is_hit.all():
        return hits
    return _compacted(hits, is_hit & (hits.rows >= 0), metric)


def _compacted(hits: Hits, keep: npt.NDArray[np.bool_], metric: Metric) -> Hits:
    """Move the kept hits of each query to the front in their order, and pad the rest."""
    order = np.argsort(~keep, axis=1, kind="stable")
    kept = np.take_along_axis(keep, order, axis=1)
    return Hits(
        np.where(kept, np.take_along_axis(hits.distances, order, axis=1), np.float32(metric.worst_score)),
        np.where(kept, np.take_along_axis(hits.rows, order, axis=1), NO_ROW),
    )
