"""HNSW: a navigable graph (Malkov and Yashunin, 2016) as faiss builds it, with filters that keep recall.

faiss stores the vectors in insertion order, so the same memory serves the graph and exact scans over it;
`elanus.index.plan` decides which one answers. Under COSINE the stored vectors have length one and
`elanus.index.unit` holds the way back.

faiss can test a bitmap while it walks. That is not used: such a walk fills k places with any visible row
it happens to evaluate, and nobody can tell afterwards that nearer ones were never met (under a filter
that correlates with the vectors its recall fell to 0.46 on MNIST, with k hits for most queries). Instead
the walk returns the ef nearest rows of any kind, and the visible ones among them are the answer if there
are k. If not, the observed share of visible rows says how to go on.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.index import plan
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.float_rows import FloatRows, clipped
from elanus.index.hits import Hits, RowIds, no_hits, stacked
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out, shares_of
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec
from elanus.index.unit import UnitRows

Floats = npt.NDArray[np.float32]


class HnswIndex(VectorIndex):
    """A built graph. ``unit_rows``: set under COSINE."""

    def __init__(self, spec: IndexSpec, graph: Any, unit_rows: UnitRows | None) -> None:
        super().__init__(spec, graph.ntotal)
        self._graph = graph
        self._links = int(spec.params["M"])
        self._unit_rows = unit_rows
        storage = faiss.downcast_index(graph.storage)
        vectors = faiss.rev_swig_ptr(storage.get_xb(), self.rows * spec.dim).reshape(self.rows, spec.dim)
        self._exact = FloatRows(vectors, spec.metric_type)

    @property
    def memory_bytes(self) -> int:
        graph = self._graph.hnsw
        tables = graph.neighbors.size() * 4 + graph.offsets.size() * 8 + graph.levels.size() * 4
        restoring = 0 if self._unit_rows is None else self._unit_rows.memory_bytes
        return self._exact.memory_bytes + int(tables) + restoring

    @property
    def has_raw_vectors(self) -> bool:
        return self._unit_rows is None or self._unit_rows.lossless

    def save(self, path: Path) -> None:
        arrays = {} if self._unit_rows is None else self._unit_rows.arrays
        write_index_file(path, IndexFileContent(self.spec, self.rows, self._graph, arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> HnswIndex:
        return cls(spec, content.faiss_index, UnitRows.from_arrays(content.arrays))

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        if mask is not None:
            return self._nearest_filtered(queries, k, params.ef, mask, threads)
        ef = self._breadth(self.rows, k, params.ef, len(queries), 1.0, 0)
        if ef is None:
            return self._exact.nearest(queries, k, None, threads)
        hits = self._walk(queries, k, ef, threads)
        short = hits.rows[:, -1] < 0
        if short.any():  # the graph may be in parts, or cut off from what lies behind an outlier
            _replace(hits, np.flatnonzero(short), self._exact.nearest(queries[short], k, None, threads))
        return hits

    def _nearest_filtered(self, queries: Queries, k: int, asked_ef: int, mask: RowMask, threads: int) -> Hits:
        hits = no_hits(len(queries), k, self.spec.metric_type)
        pending = np.arange(len(queries))
        share, ef = mask.selectivity, 0
        while True:
            breadth = self._breadth(mask.count, k, asked_ef, len(pending), share, ef)
            if breadth is None:
                _replace(hits, pending, self._exact.nearest(queries[pending], k, mask, threads))
                return hits
            ef = breadth
            met = self._walk(queries[pending], ef, ef, threads)
            visible = mask.contains(met.rows)
            found = np.count_nonzero(visible, axis=1)
            order = np.argsort(~visible, axis=1, kind="stable")[:, :k]
            picked = Hits(
                np.take_along_axis(met.distances, order, axis=1), np.take_along_axis(met.rows, order, axis=1)
            )
            complete = found >= k
            if complete.all():
                _replace(hits, pending, picked)
                return hits
            _replace(hits, pending[complete], Hits(picked.distances[complete], picked.rows[complete]))
            pending = pending[~complete]
            share = (float(found[~complete].mean()) + 0.5) / ef

    def _breadth(
        self, visible: int, k: int, ef: int, queries: int, share: float, previous_ef: int
    ) -> int | None:
        return plan.breadth(
            rows=self.rows,
            visible=visible,
            dim=self.spec.dim,
            links=self._links,
            k=k,
            ef=ef,
            queries=queries,
            share=share,
            previous_ef=previous_ef,
        )

    def _walk(self, queries: Queries, k: int, ef: int, threads: int) -> Hits:
        """faiss's k nearest met with this ef, of any visibility; padded with row -1."""
        parameters = _graph_parameters(ef)

        def walk(share: Queries) -> Hits:
            distances, rows = self._graph.search(share, k, params=parameters)
            return Hits(clipped(distances, self.spec.metric_type), rows)

        return stacked(fan_out(walk, shares_of(queries, threads)))

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._exact.within(queries, k, window, mask)

    def _reconstruct(self, rows: RowIds) -> Vectors:
        stored = self._exact.stored[rows]
        return stored if self._unit_rows is None else self._unit_rows.restored(stored, rows)


def new_graph(spec: IndexSpec) -> Any:
    """An empty faiss graph with the spec's parameters."""
    inner_product = spec.metric_type is not Metric.L2
    metric = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    graph = faiss.IndexHNSWFlat(spec.dim, int(spec.params["M"]), metric)
    graph.hnsw.efConstruction = int(spec.params["efConstruction"])
    return graph


@lru_cache(maxsize=256)
def _graph_parameters(ef: int) -> Any:
    """faiss's parameter object for one ef. Read-only, so threads may share it; making one takes 2 µs."""
    return faiss.SearchParametersHNSW(efSearch=ef)


def _replace(hits: Hits, which: RowIds, by: Hits) -> None:
    hits.distances[which] = by.distances
    hits.rows[which] = by.rows
