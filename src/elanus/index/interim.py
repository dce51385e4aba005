"""Rows without an index of their own, searched by codes: growing rows until their finished segment is served.

The rows stay where they are; a search compares their codes and ranks the candidates by the rows
(`elanus.index.coded_scan`). Where an exact scan is cheaper (few rows match a filter, or k is large), it
answers instead. Range searches that must be complete are exact as well.

Codes of parts can be joined without encoding any row again, as long as the parts have the same codewords. A
`Codebook` trains these once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elanus.core.nullable import NullableVectors
from elanus.core.types import Space
from elanus.index import plan
from elanus.index.adding import compared, encode_in_chunks
from elanus.index.base import Queries, Vectors
from elanus.index.coded_scan import CodedScan, fits, sample_of, trained
from elanus.index.hits import Hits
from elanus.index.library import faiss
from elanus.index.masks import RowMask
from elanus.index.parallel import openmp_threads
from elanus.index.raw import FLAT, RawVectors
from elanus.index.resolve import brute_force
from elanus.index.search_params import SearchParams
from elanus.index.spec import IndexSpec

Codes = Any
"""faiss's inverted list with the codes of rows."""


class InterimIndex(RawVectors):
    """``vectors`` (n, width) in their stored form, held in place, with their codes."""

    def __init__(self, spec: IndexSpec, vectors: Vectors, codes: Codes) -> None:
        super().__init__(spec, vectors)
        self._coded = CodedScan.over(codes, self._exact)

    @property
    def memory_bytes(self) -> int:
        return super().memory_bytes + self.codes_bytes

    @property
    def codes_bytes(self) -> int:
        """Bytes of the codes."""
        return self._coded.memory_bytes

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        """As `VectorIndex.work_ns`, for k = 1: what codes cost, or less where few rows are visible."""
        visible = self.rows if mask is None else mask.count
        return min(super().work_ns(queries, params, mask), queries * self._coded.cost_ns(1, visible))

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        visible = self.rows if mask is None else mask.count
        exact_ns = plan.exact_cost_ns(visible, self.spec.dim, len(queries), self.rows)
        if self._coded.cost_ns(k, visible) < exact_ns:
            return self._coded.nearest(queries, k, mask, threads)
        return super()._nearest(queries, k, params, mask, threads)


class Codebook:
    """The codewords of one field of rows that keep arriving: trained by the first rows that are encoded.

    For one thread at a time. ``spec``: the field's index; `takes` must be true of it.
    """

    def __init__(self, spec: IndexSpec) -> None:
        assert spec.metric is not None
        self.spec = brute_force(spec.data_type, spec.dim, spec.metric)
        self.is_usable = True
        """False once rows were found that codes cannot distinguish."""
        self._empty: Codes | None = None

    @staticmethod
    def takes(spec: IndexSpec) -> bool:
        """Whether rows of this field can have codes. Where FLAT is declared, answers stay exact."""
        return spec.form.space is Space.FLOATS and spec.kind is not FLAT and fits(spec.dim)

    def codes_of(self, parts: Sequence[tuple[Vectors | NullableVectors, Codes | None]]) -> Codes | None:
        """Return the codes of rows one after the other: each part's vectors, and its codes if it has them.

        None if there can be none: some rows have no vector, or codes cannot distinguish the rows.
        """
        matrices = [vectors for vectors, _ in parts if not isinstance(vectors, NullableVectors)]
        if len(matrices) < len(parts):
            return None
        with openmp_threads(1):
            if self._empty is None:
                self._train(matrices)
            return self._joined(parts) if self.is_usable else None

    def _train(self, vectors: Sequence[Vectors]) -> None:
        sample = self.spec.form.joined(vectors)
        self._empty = trained(self.spec, sample)
        rows = RawVectors(self.spec, sample)
        codes = self._joined([(sample, None)])
        queries = compared(self.spec, sample[sample_of(len(sample))])
        self.is_usable = CodedScan.over(codes, rows._exact).distinguishes_rows(queries)

    def _joined(self, parts: Sequence[tuple[Any, Codes | None]]) -> Codes:
        joined = faiss.clone_index(self._empty)
        for vectors, codes in parts:
            if codes is None or _merging_overflows(joined):
                encode_in_chunks(self.spec, joined, vectors)
            else:
                joined.merge_from(faiss.clone_index(codes), joined.ntotal)  # it empties what it merges
        return joined


def _merging_overflows(codes: Codes) -> bool:
    """Whether faiss writes beyond the codes when others are merged into them.

    Its `BlockInvertedLists::add_entries` (1.15.1) tests for whole blocks by the bytes of a block instead of
    its rows. If the number of rows is a multiple of that, it copies as many blocks as there are afterwards,
    instead of as many as are added. So these rows are encoded again.
    """
    rows: int = codes.ntotal
    return rows > 0 and rows % faiss.downcast_InvertedLists(codes.invlists).block_size == 0


def interim_index(spec: IndexSpec, vectors: Vectors, codes: Codes) -> InterimIndex:
    """Return an index over vectors (n, d), read in place, and their codes. ``spec``: the field's index."""
    assert spec.metric is not None
    return InterimIndex(brute_force(spec.data_type, spec.dim, spec.metric), vectors, codes)
