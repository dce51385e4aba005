"""IVF_FLAT and IVF_SQ8: rows in lists around trained centroids, of which the nearest lists are scanned.

Under a filter more lists are scanned (`elanus.index.plan.probes`), and faiss tests the bitmap before it
computes a distance. If the scanned lists hold fewer than k visible rows, all lists are scanned for
those queries: a search never returns fewer hits than there are.

faiss requires 39 training rows per list. With fewer the number of lists is reduced, as in the reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.types import Space, vectors_in
from elanus.index import plan
from elanus.index.adding import add_in_chunks
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.float_rows import clipped
from elanus.index.hits import Hits, RowIds, best_of, no_hits, stacked
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out, shares_of
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexKind, IndexSpec, IntParam, Progress
from elanus.index.unit import UnitRows, unit

NPROBE_KEY = "nprobe"
NPROBE_DEFAULT = 8
NLIST = IntParam(1, 65_536, 128)
NPROBE = IntParam(1, 65_536, NPROBE_DEFAULT)
"""A value above the number of lists means all lists."""
TRAINING_ROWS_PER_LIST_MIN = 39
TRAINING_ROWS_PER_LIST_MAX = 256


class IvfIndex(VectorIndex):
    """Built lists. ``unit_rows``: set under COSINE for IVF_FLAT."""

    def __init__(self, spec: IndexSpec, lists: Any, unit_rows: UnitRows | None) -> None:
        super().__init__(spec, lists.ntotal)
        self._lists = lists
        self._unit_rows = unit_rows

    @property
    def memory_bytes(self) -> int:
        lists = self._lists
        per_row = lists.code_size + 8 + (8 if self._holds_vectors else 0)
        restoring = 0 if self._unit_rows is None else self._unit_rows.memory_bytes
        return int(self.rows * per_row + lists.nlist * self.spec.dim * 4 + restoring)

    @property
    def has_raw_vectors(self) -> bool:
        return self._holds_vectors and (self._unit_rows is None or self._unit_rows.lossless)

    @property
    def _holds_vectors(self) -> bool:
        return self.spec.kind is IVF_FLAT

    def save(self, path: Path) -> None:
        arrays = {} if self._unit_rows is None else self._unit_rows.arrays
        write_index_file(path, IndexFileContent(self.spec, self.rows, self._lists, arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> IvfIndex:
        return cls(spec, content.faiss_index, UnitRows.from_arrays(content.arrays))

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        share = 1.0 if mask is None else mask.selectivity
        probes = plan.probes(params.number(NPROBE_KEY, NPROBE_DEFAULT), self._lists.nlist, share)
        hits = self._scan(queries, k, probes, mask, threads)
        short = hits.rows[:, -1] < 0
        if short.any():
            rest = self._scan(queries[short], k, self._lists.nlist, mask, threads)
            hits.distances[short] = rest.distances
            hits.rows[short] = rest.rows
        return hits

    def _scan(self, queries: Queries, k: int, probes: int, mask: RowMask | None, threads: int) -> Hits:
        parameters = _list_parameters(probes, mask)

        def scan(share: Queries) -> Hits:
            distances, rows = self._lists.search(share, k, params=parameters)
            return Hits(clipped(distances, self.spec.metric_type), rows)

        return stacked(fan_out(scan, shares_of(queries, threads)))

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        metric = self.spec.metric_type
        hits = no_hits(len(queries), k, metric)
        every_list = _list_parameters(self._lists.nlist, mask)
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
        stored: npt.NDArray[np.float32] = self._lists.reconstruct_batch(rows)
        return stored if self._unit_rows is None else self._unit_rows.restored(stored, rows)


def _build(spec: IndexSpec, vectors: Any, progress: Progress) -> IvfIndex:
    lists = _new_lists(spec, len(vectors))
    sample = spec.form.compared(vectors[training_rows(len(vectors), lists.nlist)])
    lists.train(unit(sample) if spec.metric_type is Metric.COSINE else sample)
    unit_rows = add_in_chunks(spec, lists, vectors, progress)
    if spec.kind is not IVF_FLAT:
        return IvfIndex(spec, lists, None)
    lists.make_direct_map()
    return IvfIndex(spec, lists, unit_rows)


def _new_lists(spec: IndexSpec, rows: int) -> Any:
    """Empty, untrained faiss lists for this many rows."""
    inner_product = spec.metric_type is not Metric.L2
    metric = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    count = list_count(spec.params["nlist"], rows)
    centroids = faiss.IndexFlat(spec.dim, metric)
    if spec.kind is IVF_FLAT:
        lists = faiss.IndexIVFFlat(centroids, spec.dim, count, metric)
    else:
        lists = faiss.IndexIVFScalarQuantizer(
            centroids, spec.dim, count, faiss.ScalarQuantizer.QT_8bit, metric
        )
    lists.own_fields = True
    centroids.this.disown()
    return lists


def list_count(nlist: int, rows: int) -> int:
    """Return how many lists are built for ``rows`` rows if ``nlist`` were requested."""
    return max(1, min(nlist, rows // TRAINING_ROWS_PER_LIST_MIN))


def training_rows(rows: int, lists: int) -> RowIds | slice:
    """Return the rows to train on: all, or a fixed sample of as many as faiss would use."""
    most = lists * TRAINING_ROWS_PER_LIST_MAX
    if rows <= most:
        return slice(None)
    return np.sort(np.random.default_rng(rows).choice(rows, most, replace=False))


def _list_parameters(probes: int, mask: RowMask | None) -> Any:
    if mask is None:
        return faiss.SearchParametersIVF(nprobe=probes)
    return faiss.SearchParametersIVF(nprobe=probes, sel=mask.selector)


def _lists_kind(name: str) -> IndexKind:
    return IndexKind(
        name,
        vectors_in(Space.FLOATS),
        _build,
        IvfIndex.from_file,
        build_params={"nlist": NLIST},
        search_params={NPROBE_KEY: NPROBE},
    )


IVF_FLAT = _lists_kind("IVF_FLAT")
IVF_SQ8 = _lists_kind("IVF_SQ8")
