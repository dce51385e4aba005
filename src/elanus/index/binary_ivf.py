"""BIN_IVF_FLAT: bit vectors in lists around trained centroids, under HAMMING or JACCARD.

faiss trains the centroids and assigns the rows; its own lists support neither a bitmap nor Jaccard, so the
rows are kept here in one array ordered by list. A list is then a slice of that array, compared by the
kernel of `elanus.index.binary_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.trail import current
from elanus.core.types import Space, vectors_in
from elanus.index import plan
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.binary_rows import BinaryRows
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.hits import Hits, RowIds, best_of, no_hits
from elanus.index.ivf import NLIST, NPROBE, NPROBE_DEFAULT, NPROBE_KEY, list_count, training_rows
from elanus.index.library import faiss
from elanus.index.masks import RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexKind, IndexSpec, Progress

Codes = npt.NDArray[np.uint8]


class BinaryIvfIndex(VectorIndex):
    """Arrays: ``codes`` (n, dim / 8) by list; ``row_ids`` (n,), the row at each place; ``places``, its
    inverse; ``starts`` (lists + 1,), where each list begins; ``centroids`` (lists, dim / 8).
    """

    def __init__(self, spec: IndexSpec, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__(spec, len(arrays["row_ids"]))
        self._arrays = arrays
        self._row_ids: RowIds = arrays["row_ids"]
        self._starts: RowIds = arrays["starts"]
        self._centroids = BinaryRows(arrays["centroids"], spec.metric_type)
        self._rows = BinaryRows(arrays["codes"], spec.metric_type)

    @property
    def memory_bytes(self) -> int:
        others = self._row_ids.nbytes + self._starts.nbytes + self._arrays["places"].nbytes
        return self._rows.memory_bytes + self._centroids.memory_bytes + others

    @property
    def has_raw_vectors(self) -> bool:
        return True

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, self._arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> BinaryIvfIndex:
        return cls(spec, content.arrays)

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        lists = len(self._starts) - 1
        probes = plan.probes(
            params.ratio(NPROBE_KEY, NPROBE_DEFAULT), lists, 1.0 if mask is None else mask.selectivity
        )
        trail = current()
        if trail is not None:
            trail.because("to find the nearest lists")
        nearest_lists = self._centroids.nearest(queries, probes, None, threads).rows
        hits = no_hits(len(queries), k, self.spec.metric_type)
        compared = 0
        for i, query in enumerate(queries):
            places = self._visible_places(nearest_lists[i], mask)
            if len(places) < k:
                places = self._visible_places(np.arange(lists), mask)
            compared += len(places)
            scores, order = best_of(self._rows.scores(query, places), k, self.spec.metric_type)
            hits.distances[i] = scores
            hits.rows[i] = self._row_ids[places[order]]
        if trail is not None:
            asked = math.ceil(params.ratio(NPROBE_KEY, NPROBE_DEFAULT))
            trail.method("lists", compared, nprobe=probes, asked_nprobe=asked, lists=lists)
        return hits

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        hits = no_hits(len(queries), k, self.spec.metric_type)
        places = self._visible_places(np.arange(len(self._starts) - 1), mask)
        for i, query in enumerate(queries):
            scores = self._rows.scores(query, places)
            inside = np.flatnonzero(window.holds(scores))
            best, order = best_of(scores[inside], min(k, len(inside)), self.spec.metric_type)
            hits.distances[i, : len(best)] = best
            hits.rows[i, : len(best)] = self._row_ids[places[inside[order]]]
        return hits

    # for measuring recall, see `elanus.index.measured_lists`

    def lists_of_rows(self) -> RowIds:
        numbers: RowIds = np.searchsorted(self._starts, self._arrays["places"], side="right") - 1
        return numbers

    def nearest_lists(self, queries: Queries) -> RowIds:
        return self._centroids.nearest(queries, len(self._starts) - 1, None, 1).rows

    def by_codes(self, queries: Queries, k: int, threads: int) -> RowIds | None:
        return None

    def candidates(self, k: int) -> int:
        return k

    def _visible_places(self, lists: RowIds, mask: RowMask | None) -> RowIds:
        """Return the places of the visible rows of these lists."""
        places = np.concatenate([np.arange(self._starts[i], self._starts[i + 1]) for i in lists])
        return places if mask is None else places[mask.contains(self._row_ids[places])]

    def _reconstruct(self, rows: RowIds) -> Vectors:
        vectors: Codes = self._rows.stored[self._arrays["places"][rows]]
        return vectors


def _lists_of(dim: int, lists: int, codes: Codes, sample: Codes) -> dict[str, npt.NDArray[Any]]:
    """Train on the sample, order the rows by list, and return the arrays of a `BinaryIvfIndex`."""
    centroids = faiss.IndexBinaryFlat(dim)
    trainer = faiss.IndexBinaryIVF(centroids, dim, lists)
    trainer.train(sample)
    trained = faiss.vector_to_array(centroids.xb).reshape(lists, dim // 8)
    _, assigned = centroids.search(codes, 1)
    row_ids = np.argsort(assigned[:, 0], kind="stable")
    places = np.empty_like(row_ids)
    places[row_ids] = np.arange(len(row_ids))
    return {
        "codes": codes[row_ids],
        "row_ids": row_ids,
        "places": places,
        "starts": np.searchsorted(assigned[row_ids, 0], np.arange(lists + 1)),
        "centroids": trained,
    }


def _build(spec: IndexSpec, codes: Codes, progress: Progress) -> BinaryIvfIndex:
    lists = list_count(spec.params["nlist"], len(codes))
    sample = np.ascontiguousarray(codes[training_rows(len(codes), lists)])
    return BinaryIvfIndex(spec, _lists_of(spec.dim, lists, codes, sample))


BIN_IVF_FLAT = IndexKind(
    "BIN_IVF_FLAT",
    vectors_in(Space.BITS),
    _build,
    BinaryIvfIndex.from_file,
    build_params={"nlist": NLIST},
    search_params={NPROBE_KEY: NPROBE},
    metrics=(Metric.HAMMING, Metric.JACCARD),
)
