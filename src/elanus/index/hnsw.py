"""HNSW: a navigable graph (Malkov and Yashunin, 2016) as faiss builds it, with filters that keep recall.

faiss stores the vectors in insertion order, so the same memory serves the graph and exact scans over it;
`elanus.index.plan` decides which one answers. Under COSINE the stored vectors have unit length, and
`elanus.index.unit` restores the originals.

faiss can test a bitmap while it walks. That is not used: such a walk fills k places with any visible row
it happens to evaluate, and the result does not show that nearer ones were never visited (under a filter
that correlates with the vectors its recall fell to 0.46 on MNIST, with k hits for most queries). Instead
the walk returns the nearest rows of any kind that it met, as many as it knows well, and the visible ones
among them are the answer if there are k. If not, the observed share of visible rows determines the next step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.row_sets import bits_at
from elanus.core.trail import current
from elanus.core.types import Space, vectors_in
from elanus.index import plan
from elanus.index.adding import add_in_chunks
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.coded_rows import CodedRows, faiss_metric, scalar_codec
from elanus.index.coded_scan import (
    CODES_KEY,
    ROW_CODES_KEY,
    CodedRanking,
    CodedScan,
    RowCodes,
    serves_filters,
    serves_sparse_filters,
)
from elanus.index.decoded_rows import parts
from elanus.index.exact import ExactRows
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.float_rows import FloatRows, clipped
from elanus.index.hits import NO_ROW, Hits, RowIds, Scores, no_hits, stacked
from elanus.index.library import faiss
from elanus.index.masks import RowMask
from elanus.index.narrow_lists import NARROW
from elanus.index.narrow_units import NarrowUnitRows, NarrowUnits
from elanus.index.parallel import fan_out, shares_of
from elanus.index.refining import REFINE_K_KEY, Refiner
from elanus.index.search_params import LEVEL_KEY, LEVEL_MAX, SearchParams, Window
from elanus.index.spec import IndexKind, IndexSpec, IntParam, Param, Progress, Sent, asks_for_k
from elanus.index.unit import UnitRows
from elanus.index.values import INT32_MAX, integer

EF_KEY = "ef"
EF_DEFAULT = 64
EF_DEFAULT_PER_K = 2
CANDIDATES_PER_UNIT = 2
"""Rows per hit whose exact cosines are compared, where the graph holds rounded unit vectors."""

Floats = npt.NDArray[np.float32]
_CHEAPER = "comparing these rows is cheaper than walking the graph"


class HnswIndex(VectorIndex):
    """A built graph.

    ``rows``: the rows that the graph's storage holds, for exact comparison. ``unit_rows``: set under COSINE
    if these are unit vectors that can be turned back. ``refiner``: where the storage holds codes, it ranks
    what the walk finds, and serves the exact scans.
    """

    exact_weight = 1.0
    """How much more than in memory a row of an exact scan costs."""
    is_coarse = False
    """Whether the graph's storage holds codes that leave out much of the vectors."""

    def __init__(
        self,
        spec: IndexSpec,
        graph: Any,
        rows: ExactRows,
        unit_rows: UnitRows | None = None,
        refiner: Refiner | None = None,
    ) -> None:
        super().__init__(spec, graph.ntotal)
        self._graph = graph
        self._links = graph.hnsw.nb_neighbors(1)
        self._unit_rows = unit_rows
        self._walked = rows
        self._refiner = refiner
        self._exact = rows if refiner is None else refiner.rows
        self._coded: CodedRanking | None = None

    @property
    def memory_bytes(self) -> int:
        graph = self._graph.hnsw
        tables = graph.neighbors.size() * 4 + graph.offsets.size() * 8 + graph.levels.size() * 4
        restoring = 0 if self._unit_rows is None else self._unit_rows.memory_bytes
        refining = 0 if self._refiner is None else self._refiner.rows.memory_bytes
        codes = 0 if self._coded is None else self._coded.memory_bytes
        return self._walked.memory_bytes + refining + int(tables) + restoring + self._table_bytes() + codes

    @property
    def has_raw_vectors(self) -> bool:
        if self._refiner is not None:
            return self._refiner.lossless
        return self._unit_rows is None or self._unit_rows.lossless

    def _table_bytes(self) -> int:
        """Bytes of the codewords of the storage."""
        return 0

    def scores_of(self, queries: Queries, rows: RowIds) -> Scores:
        """As `VectorIndex.scores_of`, without a search."""
        wanted = np.ascontiguousarray(rows, dtype=np.int64)
        return np.stack([self._exact.scores(query, wanted) for query in self._checked(queries)])

    def save(self, path: Path) -> None:
        arrays = {} if self._unit_rows is None else self._unit_rows.arrays
        refining = {} if self._refiner is None else self._refiner.arrays
        codes = {} if self._coded is None else self._coded.arrays
        written = {**arrays, **refining, **codes}
        write_index_file(path, IndexFileContent(self.spec, self.rows, self._graph, written))

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        asked_ef = max(self._asked_ef(params), math.ceil(k * params.ratio(REFINE_K_KEY, 1.0)))
        if mask is not None:
            return self._nearest_filtered(queries, k, asked_ef, mask, threads)
        way = self._way(self.rows, k, asked_ef, len(queries), 1.0, 0)
        if way is None:
            self._because(_CHEAPER)
            return self._exact.nearest(queries, k, None, threads)
        self._note_walk(len(queries), way.ef, asked_ef)
        hits = self._walk(queries, k, way, threads)
        short = hits.rows[:, -1] < 0
        if short.any():  # the graph may be disconnected, or cut off behind an outlier
            self._because("the walk did not reach enough rows")
            _replace(hits, np.flatnonzero(short), self._exact.nearest(queries[short], k, None, threads))
        return hits

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        visible = self.rows if mask is None else mask.count
        share, asked_ef = max(1, visible) / max(1, self.rows), self._asked_ef(params)
        broad = min(self.rows, math.ceil(plan.widened(asked_ef, 1, share, coarse=self.is_coarse)))
        walk_ns = plan.graph_cost_ns(plan.Walk(broad, broad), self.rows, self.spec.dim, self._links)
        scan_ns = self.exact_weight * plan.exact_cost_ns(visible, self.spec.dim, 1, self.rows)
        return queries * min(walk_ns, scan_ns)

    @property
    def graph(self) -> Any:
        """faiss's index, for measuring it."""
        return self._graph

    def met(self, queries: Queries, k: int, ef: int, threads: int) -> RowIds:
        """Return what a walk finds, (nq, k), even where the plan would compare all rows. For measuring."""
        return self._walk(self._checked(queries), k, plan.Walk(ef, k), threads).rows

    def _asked_ef(self, params: SearchParams) -> int:
        return params.number(EF_KEY, EF_DEFAULT)

    def _nearest_filtered(self, queries: Queries, k: int, asked_ef: int, mask: RowMask, threads: int) -> Hits:
        hits: Hits | None = None
        pending, left = np.arange(len(queries)), queries
        share, ef = mask.selectivity, 0
        while True:
            way = self._way(mask.count, k, asked_ef, len(left), share, ef)
            if way is None:
                self._because(_CHEAPER)
                return _with(hits, pending, self._scan(left, k, mask, threads))
            ef = way.ef
            self._note_walk(len(left), ef, asked_ef, expected_share=share)
            picked = self._walk(left, k, way, threads, mask)
            if picked.rows[:, -1].min() >= 0:
                return _with(hits, pending, picked)
            found = np.count_nonzero(picked.rows >= 0, axis=1)
            complete = found == k
            if hits is None:
                hits = no_hits(len(queries), k, self.spec.metric_type)
            _replace(hits, pending[complete], Hits(picked.distances[complete], picked.rows[complete]))
            pending, left = pending[~complete], left[~complete]
            share = (float(found[~complete].mean()) + 0.5) / way.depth

    def _scan(self, queries: Queries, k: int, mask: RowMask, threads: int) -> Hits:
        """Compare all visible rows, or their codes where that is cheaper."""
        coded = self._coded
        exact_ns = plan.exact_cost_ns(mask.count, self.spec.dim, len(queries), self.rows)
        if coded is not None and coded.cost_ns(k, mask.count) < exact_ns:
            return coded.nearest(queries, k, mask, threads)
        return self._exact.nearest(queries, k, mask, threads)

    def _note_walk(self, queries: int, ef: int, asked_ef: int, **expected: float) -> None:
        trail = current()
        if trail is not None:
            visits = round(queries * plan.graph_visits(ef, self.rows, self._links))
            codes = {} if self._refiner is None and self.has_raw_vectors else {"codes": 1.0}
            trail.method("graph", visits, is_estimate=True, ef=ef, asked_ef=asked_ef, **expected, **codes)

    @staticmethod
    def _because(why: str) -> None:
        trail = current()
        if trail is not None:
            trail.because(why)

    def _way(
        self, visible: int, k: int, ef: int, queries: int, share: float, previous_ef: int
    ) -> plan.Walk | None:
        return plan.walk(
            rows=self.rows,
            visible=visible,
            dim=self.spec.dim,
            links=self._links,
            k=k,
            ef=ef,
            queries=queries,
            share=share,
            previous_ef=previous_ef,
            coarse=self.is_coarse,
            exact_weight=self.exact_weight,
            coded_ns=math.inf if self._coded is None else self._coded.cost_ns(k, visible),
        )

    def _candidates(self, k: int, ef: int) -> int:
        """Return how many of the ef rows that a walk met are ranked by the refiner."""
        return ef

    def _asked(self, effort: int, k: int, share: float) -> int:
        return max(1, math.ceil(plan.narrowed(effort, k, share, coarse=self.is_coarse)))

    def _walk(
        self, queries: Queries, k: int, way: plan.Walk, threads: int, mask: RowMask | None = None
    ) -> Hits:
        """Return the k nearest visible rows among those that faiss returns; padded with row -1.

        A refiner ranks all of them: codes may place a near row anywhere among them.
        """
        parameters = _graph_parameters(way.ef)
        refiner = self._refiner
        most = k if refiner is None else max(k, min(self._candidates(k, way.ef), self.rows))
        depth = most if mask is None else max(most, way.depth)

        def walk(share: Queries) -> Hits:
            distances, rows = self._graph.search(share, depth, params=parameters)
            met = Hits(clipped(distances, self.spec.metric_type), rows)
            if mask is not None:
                met = _visible(met, mask, most)
            return met if refiner is None else refiner.best(share, met, k)

        return stacked(fan_out(walk, shares_of(queries, threads)))

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._exact.within(queries, k, window, mask)

    def _reconstruct(self, rows: RowIds) -> Vectors:
        stored = self._exact.taken(rows)
        return stored if self._unit_rows is None else self._unit_rows.restored(stored, rows)


class PlainHnsw(HnswIndex):
    """HNSW: a graph over the vectors as they are."""

    @classmethod
    def made(
        cls, spec: IndexSpec, graph: Any, unit_rows: UnitRows | None, units: NarrowUnits | None
    ) -> PlainHnsw:
        storage = faiss.downcast_index(graph.storage)
        if isinstance(storage, faiss.IndexFlat):
            vectors = faiss.rev_swig_ptr(storage.get_xb(), graph.ntotal * spec.dim)
            rows = FloatRows(vectors.reshape(graph.ntotal, spec.dim), spec.metric_type)
            return cls(spec, graph, rows, unit_rows)
        codes = CodedRows(storage, spec.metric_type)
        if units is None:
            return cls(spec, graph, codes)
        refiner = Refiner(NarrowUnitRows(codes, units), lossless=True, arrays=units.arrays)
        return cls(spec, graph, codes, None, refiner)

    def coded(self, vectors: Any) -> PlainHnsw:
        """The same index with codes of its vectors, which are given in their stored form."""
        if serves_filters(self.spec.dim, self.rows):
            self._coded = CodedScan.of(self.spec, vectors, self._exact)
        elif serves_sparse_filters(self.spec.dim, self.rows):
            self._coded = RowCodes.of(self.spec, vectors, self._exact)
        return self

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> PlainHnsw:
        units = NarrowUnits.from_arrays(content.arrays, spec.form.dtype)
        index = cls.made(spec, content.faiss_index, UnitRows.from_arrays(content.arrays), units)
        arrays = content.arrays
        index._coded = CodedScan.from_arrays(spec.dim, arrays, index._exact)
        if index._coded is None:
            index._coded = RowCodes.from_arrays(spec.dim, arrays, index._exact)
        return index

    def _candidates(self, k: int, ef: int) -> int:
        """Rounded unit vectors stand in the right order but for the closest scores."""
        return min(ef, CANDIDATES_PER_UNIT * k)


def new_graph(spec: IndexSpec, links: int, breadth: int) -> Any:
    """Return an empty graph over float vectors."""
    graph = faiss.IndexHNSWFlat(spec.dim, links, faiss_metric(spec.metric_type))
    graph.hnsw.efConstruction = breadth
    return graph


def _build(spec: IndexSpec, vectors: Any, progress: Progress) -> PlainHnsw:
    narrow = NARROW.get(spec.data_type)
    by_cosine = spec.metric_type is Metric.COSINE
    units = NarrowUnits.of(vectors) if narrow is not None and by_cosine else None
    if narrow is None or (by_cosine and units is None):
        graph = new_graph(spec, spec.params["M"], spec.params["efConstruction"])
        unit_rows = add_in_chunks(spec, graph.add, vectors, progress)
        return PlainHnsw.made(spec, graph, unit_rows, None).coded(vectors)
    graph = over_storage(scalar_codec(narrow, spec.dim, spec.metric_type), spec.params["M"])
    graph.hnsw.efConstruction = spec.params["efConstruction"]
    for part in parts(len(vectors)):
        rows = vectors[part]
        graph.add(spec.form.compared(rows) if units is None else units.units(rows, part))
        progress(min(1.0, part.stop / len(vectors)))
    return PlainHnsw.made(spec, graph, None, units).coded(vectors)


def over_storage(storage: Any, links: int) -> Any:
    """Return a graph without links that owns this storage."""
    graph = faiss.IndexHNSW(storage, links)
    graph.own_fields = True
    storage.this.disown()
    return graph


@dataclass(frozen=True, slots=True)
class _Breadth(IntParam):
    """``ef``: at least k; if it is not given, ``level`` (AUTOINDEX) times the default for k."""

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        if name in sent:
            ef = integer(name, sent[name], self.low, self.high)
            if ef < k and asks_for_k(sent):
                raise InvalidParameter(f"ef({ef}) should be larger than k({k})")
            return max(ef, k)
        level = integer(LEVEL_KEY, sent[LEVEL_KEY], 1, LEVEL_MAX) if LEVEL_KEY in sent else 1
        return max(self.default, EF_DEFAULT_PER_K * k) * level


GRAPH_PARAMS: Mapping[str, Param] = {
    "M": IntParam(2, 2048, 16),
    "efConstruction": IntParam(1, INT32_MAX, 200),
}
BREADTH = _Breadth(1, INT32_MAX, EF_DEFAULT)

HNSW = IndexKind(
    "HNSW",
    vectors_in(Space.FLOATS),
    _build,
    PlainHnsw.from_file,
    build_params=GRAPH_PARAMS,
    search_params={EF_KEY: BREADTH},
    is_automatic=True,
    late_arrays=frozenset({CODES_KEY, ROW_CODES_KEY}),
)


@lru_cache(maxsize=256)
def _graph_parameters(ef: int) -> Any:
    """faiss's parameter object for one ef. Read-only, so threads may share it; making one takes 2 µs."""
    return faiss.SearchParametersHNSW(efSearch=ef)


def _visible(met: Hits, mask: RowMask, most: int) -> Hits:
    """Return the best visible rows of each query, up to ``most`` columns, padded with row -1."""
    if len(met.rows) == 1 and met.rows[0, -1] >= 0:
        places = np.flatnonzero(bits_at(mask.bits, met.rows[0]))[:most]
        if len(places) == most:  # as below, in a third of the time
            return Hits(met.distances[:, places], met.rows[:, places])
    shown = mask.contains(met.rows)
    order = np.argsort(~shown, axis=1, kind="stable")[:, :most]
    rows = np.take_along_axis(met.rows, order, axis=1)
    rows[~np.take_along_axis(shown, order, axis=1)] = NO_ROW
    return Hits(np.take_along_axis(met.distances, order, axis=1), rows)


def _with(hits: Hits | None, which: RowIds, found: Hits) -> Hits:
    """Return the hits with those of some queries replaced; None: those of all are ``found``."""
    if hits is None:
        return found
    _replace(hits, which, found)
    return hits


def _replace(hits: Hits, which: RowIds, by: Hits) -> None:
    hits.distances[which] = by.distances
    hits.rows[which] = by.rows
