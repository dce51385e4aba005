"""Rows in lists around trained centroids, of which the nearest lists are scanned: IVF_FLAT and IVF_SQ8.

`elanus.index.ivf_codes` has the kinds whose lists hold smaller codes. With a `Refiner` the lists only find
candidates, which are ranked by its rows.

Under a filter more lists are scanned (`elanus.index.plan.probes`), and faiss tests the bitmap before it
computes a distance. If the scanned lists hold fewer than k visible rows, all lists are scanned for
those queries, and if these still find too few, all visible rows are compared with the `Refiner`'s: a search
never returns fewer hits than there are.

faiss requires 39 training rows per list. With fewer the number of lists is reduced, as in the reference.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.trail import current
from elanus.core.types import DataType, Space, vectors_in
from elanus.index import plan
from elanus.index.adding import add_in_chunks, add_to_lists, compared, encode_in_chunks
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.coded_rows import faiss_metric
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.float_rows import clipped
from elanus.index.hits import Hits, RowIds, best_of, no_hits, stacked
from elanus.index.library import faiss
from elanus.index.masks import RowMask
from elanus.index.narrow_lists import NARROW, add_narrow, empty_lists, narrow_refiner, scanned
from elanus.index.narrow_units import NarrowUnits
from elanus.index.parallel import fan_out, shares_of
from elanus.index.refining import BUILD_PARAMS as REFINE_BUILD
from elanus.index.refining import CANDIDATES_PER_HIT, REFINE_K_KEY, Refiner
from elanus.index.refining import SEARCH_PARAMS as REFINE_SEARCH
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexKind, IndexSpec, IntParam, Progress
from elanus.index.unit import UnitRows

NPROBE_KEY = "nprobe"
NPROBE_DEFAULT = 8
NLIST = IntParam(1, 65_536, 128)
NPROBE = IntParam(1, 65_536, NPROBE_DEFAULT)
"""A value above the number of lists means all lists."""
TRAINING_ROWS_PER_LIST_MIN = 39
TRAINING_ROWS_PER_LIST_MAX = 256


class IvfIndex(VectorIndex):
    """Built lists.

    ``unit_rows``: set under COSINE for IVF_FLAT over floats. ``refiner``: ranks what the lists find.
    """

    def __init__(
        self, spec: IndexSpec, lists: Any, unit_rows: UnitRows | None = None, refiner: Refiner | None = None
    ) -> None:
        super().__init__(spec, lists.ntotal)
        self._lists = lists
        self._unit_rows = unit_rows
        self._refiner = refiner

    @property
    def memory_bytes(self) -> int:
        lists = self._lists
        per_row = lists.code_size + 8 + (8 if self._holds_vectors else 0)
        restoring = 0 if self._unit_rows is None else self._unit_rows.memory_bytes
        refining = 0 if self._refiner is None else self._refiner.rows.memory_bytes
        tables = lists.nlist * self.spec.dim * 4 + self._table_bytes()
        return int(self.rows * per_row + tables + restoring + refining)

    @property
    def has_raw_vectors(self) -> bool:
        if self._refiner is not None:
            return self._refiner.lossless
        return self._holds_vectors and (self._unit_rows is None or self._unit_rows.lossless)

    @property
    def _holds_vectors(self) -> bool:
        return self.spec.kind is IVF_FLAT

    def _table_bytes(self) -> int:
        """Bytes of the codewords, and of what is computed from them when the index is loaded."""
        return 0

    def save(self, path: Path) -> None:
        arrays = {} if self._unit_rows is None else self._unit_rows.arrays
        refining = {} if self._refiner is None else self._refiner.arrays
        write_index_file(path, IndexFileContent(self.spec, self.rows, self._lists, {**arrays, **refining}))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> Self:
        lists = content.faiss_index
        unit_rows = UnitRows.from_arrays(content.arrays)
        refiner = Refiner.from_arrays(spec, content.arrays)
        if spec.kind is IVF_FLAT and unit_rows is None:
            units = NarrowUnits.from_arrays(content.arrays, spec.form.dtype)
            refiner = narrow_refiner(spec, lists, units)
        return cls(spec, lists, unit_rows, refiner)

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        share = 1.0 if mask is None else mask.selectivity
        probes = plan.probes(params.ratio(NPROBE_KEY, NPROBE_DEFAULT), self._lists.nlist, share)
        self._note_scan(len(queries), probes, params, share)
        hits = self._scan(queries, k, probes, params, mask, threads)
        short = hits.rows[:, -1] < 0
        if short.any():
            self._note_scan(int(short.sum()), self._lists.nlist, params, share)
            self._replace(
                hits, short, self._scan(queries[short], k, self._lists.nlist, params, mask, threads)
            )
            left = hits.rows[:, -1] < 0
            if self._refiner is not None and left.any():
                self._replace(hits, left, self._refiner.rows.nearest(queries[left], k, mask, threads))
        return hits

    @staticmethod
    def _replace(hits: Hits, which: npt.NDArray[np.bool_], by: Hits) -> None:
        hits.distances[which] = by.distances
        hits.rows[which] = by.rows

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        share = 1.0 if mask is None else mask.selectivity
        probes = plan.probes(params.number(NPROBE_KEY, NPROBE_DEFAULT), self._lists.nlist, share)
        compared = round(self.rows * share * probes / self._lists.nlist)
        return queries * plan.exact_cost_ns(compared, self.spec.dim, 1)

    def _note_scan(self, queries: int, probes: int, params: SearchParams, share: float) -> None:
        trail = current()
        if trail is not None:
            compared = round(queries * self.rows * share * probes / self._lists.nlist)
            asked = math.ceil(params.ratio(NPROBE_KEY, NPROBE_DEFAULT))
            codes = {} if self._holds_vectors else {"codes": 1.0}
            trail.method(
                "lists",
                compared,
                is_estimate=True,
                nprobe=probes,
                asked_nprobe=asked,
                lists=self._lists.nlist,
                **codes,
            )

    def _scan(
        self,
        queries: Queries,
        k: int,
        probes: int,
        params: SearchParams,
        mask: RowMask | None,
        threads: int,
    ) -> Hits:
        parameters = self._scan_parameters(probes, params, mask)
        refiner = self._refiner
        visible = self.rows if mask is None else mask.count
        depth = k if refiner is None else min(visible, max(k, self._candidates(k, params)))

        def scan(share: Queries) -> Hits:
            sent = scanned(self.spec, self._lists, share) if self._holds_vectors else share
            distances, rows = self._lists.search(sent, depth, params=parameters)
            found = Hits(clipped(distances, self.spec.metric_type), rows)
            return found if refiner is None else refiner.best(share, found, k)

        return stacked(fan_out(scan, shares_of(queries, threads)))

    # for measuring recall, see `elanus.index.measured_lists`

    def lists_of_rows(self) -> RowIds:
        numbers = np.empty(self.rows, dtype=np.int64)
        stored = self._lists.invlists
        for number in range(self._lists.nlist):
            size = stored.list_size(number)
            if size:
                numbers[faiss.rev_swig_ptr(stored.get_ids(number), size)] = number
        return numbers

    def nearest_lists(self, queries: Queries) -> RowIds:
        _, lists = self._lists.quantizer.search(self._checked(queries), self._lists.nlist)
        return np.asarray(lists, dtype=np.int64)

    def by_codes(self, queries: Queries, k: int, threads: int) -> RowIds | None:
        if self._holds_vectors:
            return None
        every_list = self._scan_parameters(self._lists.nlist, SearchParams(), None)
        shares = shares_of(self._checked(queries), threads)
        parts = fan_out(lambda share: self._lists.search(share, k, params=every_list)[1], shares)
        return np.concatenate(parts)

    def candidates(self, k: int) -> int:
        return k if self._refiner is None else min(self.rows, self._candidates(k, SearchParams()))

    def _candidates(self, k: int, params: SearchParams) -> int:
        """Return how many of the rows that the lists find are compared once more, for k hits."""
        return math.ceil(k * params.ratio(REFINE_K_KEY, 1.0) * CANDIDATES_PER_HIT)

    def _scan_parameters(self, probes: int, params: SearchParams, mask: RowMask | None) -> Any:
        if mask is None:
            return faiss.SearchParametersIVF(nprobe=probes)
        return faiss.SearchParametersIVF(nprobe=probes, sel=mask.selector)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        if self._refiner is not None:
            return self._refiner.rows.within(queries, k, window, mask)
        metric = self.spec.metric_type
        hits = no_hits(len(queries), k, metric)
        every_list = self._scan_parameters(self._lists.nlist, SearchParams(), mask)
        for i in range(len(queries)):
            _, distances, rows = self._lists.range_search(
                queries[i : i + 1], window.radius, params=every_list
            )
            inside = np.flatnonzero(window.holds(clipped(distances, metric)))
            best, order = best_of(distances[inside], min(k, len(inside)), metric)
            hits.distances[i, : len(best)] = best
            hits.rows[i, : len(best)] = rows[inside][order]
        return hits

    def _reconstruct(self, rows: RowIds) -> Vectors:
        if self._refiner is not None:
            return self._refiner.rows.taken(rows)
        stored: npt.NDArray[np.float32] = self._lists.reconstruct_batch(rows)
        return stored if self._unit_rows is None else self._unit_rows.restored(stored, rows)


def filled(spec: IndexSpec, lists: Any, vectors: Any, progress: Progress, codewords: int = 1) -> None:
    """Train empty lists of codes and add all rows.

    ``codewords``: how many rows training needs at least; fewer are repeated.
    """
    lists.train(compared(spec, vectors[training_rows(len(vectors), lists.nlist, codewords)]))
    encode_in_chunks(spec, lists, vectors, progress)


def owned(lists: Any, centroids: Any) -> Any:
    """Return the lists, as the owner of their centroids."""
    lists.own_fields = True
    centroids.this.disown()
    return lists


def _build(spec: IndexSpec, vectors: Any, progress: Progress) -> IvfIndex:
    metric = faiss_metric(spec.metric_type)
    count = list_count(spec.params["nlist"], len(vectors))
    centroids = faiss.IndexFlat(spec.dim, metric)
    if spec.kind is IVF_FLAT:
        if spec.data_type in NARROW:
            units = NarrowUnits.of(vectors) if spec.metric_type is Metric.COSINE else None
            if units is not None or spec.metric_type is not Metric.COSINE:
                lists = owned(empty_lists(spec, centroids, count), centroids)
                return _narrow(spec, lists, vectors, units, progress)
        lists = owned(faiss.IndexIVFFlat(centroids, spec.dim, count, metric), centroids)
        lists.train(compared(spec, vectors[training_rows(len(vectors), lists.nlist)]))
        unit_rows = add_in_chunks(spec, partial(add_to_lists, lists), vectors, progress)
        lists.make_direct_map()
        return IvfIndex(spec, lists, unit_rows)
    quantizer = faiss.ScalarQuantizer.QT_8bit
    lists = owned(faiss.IndexIVFScalarQuantizer(centroids, spec.dim, count, quantizer, metric), centroids)
    filled(spec, lists, vectors, progress)
    return IvfIndex(spec, lists, None, Refiner.of(spec, vectors))


def _narrow(
    spec: IndexSpec, lists: Any, vectors: Any, units: NarrowUnits | None, progress: Progress
) -> IvfIndex:
    lists.train(compared(spec, vectors[training_rows(len(vectors), lists.nlist)]))
    add_narrow(spec, lists, vectors, units, progress)
    lists.make_direct_map()
    return IvfIndex(spec, lists, None, narrow_refiner(spec, lists, units))


def list_count(nlist: int, rows: int) -> int:
    """Return how many lists are built for ``rows`` rows if ``nlist`` were requested."""
    return max(1, min(nlist, rows // TRAINING_ROWS_PER_LIST_MIN))


def training_rows(rows: int, lists: int, codewords: int = 1) -> RowIds | slice:
    """Return the rows to train on: all, or a fixed sample of as many as faiss would use.

    Fewer rows than ``codewords`` are repeated: faiss requires one for each.
    """
    if rows < codewords:
        return np.arange(codewords) % rows
    most = max(lists, codewords) * TRAINING_ROWS_PER_LIST_MAX
    if rows <= most:
        return slice(None)
    return np.sort(np.random.default_rng(rows).choice(rows, most, replace=False))


IVF_FLAT = IndexKind(
    "IVF_FLAT",
    vectors_in(Space.FLOATS),
    _build,
    IvfIndex.from_file,
    build_params={"nlist": NLIST},
    search_params={NPROBE_KEY: NPROBE},
    withheld_from=frozenset({DataType.INT8_VECTOR}),
)
IVF_SQ8 = IndexKind(
    "IVF_SQ8",
    vectors_in(Space.FLOATS),
    _build,
    IvfIndex.from_file,
    build_params={"nlist": NLIST, **REFINE_BUILD},
    search_params={NPROBE_KEY: NPROBE, **REFINE_SEARCH},
    withheld_from=frozenset({DataType.INT8_VECTOR}),
)
