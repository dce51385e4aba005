"""Indexes of nullable vectors: rows without a vector are in no index, and are never hits.

The index proper numbers the rows that have a vector from 0. `NullableIndex` is around it and speaks of the
segment's rows: it narrows masks to the rows in the index, and turns hits back. The index file of such rows is
that of the index proper with one array more, the bits of `VALID`. An index of rows that all have a vector
is the plain one, and so is its file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.nullable import Valid
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.files import IndexFileContent, add_arrays, write_index_file
from elanus.index.hits import Hits, RowIds, no_hits
from elanus.index.masks import RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec

VALID = "nullable.valid"
"""The array of an index file with the bits of all rows, packed in numpy's little order."""
ROWS = "nullable.rows"
"""The array with their number."""

_NARROWED_KEPT = 4
"""Masks whose narrowed form is kept: searches come with the same few masks until something changes."""


class NullableIndex(VectorIndex):
    """``vectors``: the index of the rows that have a vector, None if there are none. ``valid``: (rows,)."""

    def __init__(self, spec: IndexSpec, vectors: VectorIndex | None, valid: Valid) -> None:
        super().__init__(spec, len(valid))
        self.valid = valid
        self._index = vectors
        self._row_of = np.flatnonzero(valid)
        self._narrowed: tuple[tuple[RowMask, RowMask], ...] = ()

    @property
    def memory_bytes(self) -> int:
        own = self.valid.nbytes + self._row_of.nbytes
        return own + (0 if self._index is None else self._index.memory_bytes)

    @property
    def has_raw_vectors(self) -> bool:
        return self._index is None or self._index.has_raw_vectors

    @property
    def inner(self) -> VectorIndex | None:
        """The index of the rows that have a vector, None if there are none."""
        return self._index

    def save(self, path: Path) -> None:
        if self._index is None:
            write_index_file(path, IndexFileContent(self.spec, 0, None, {}))
        else:
            self._index.save(path)
        bits = np.packbits(self.valid, bitorder="little")
        add_arrays(path, {VALID: bits, ROWS: np.array([self.rows], dtype=np.int64)})

    def search(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None = None, threads: int = 1
    ) -> Hits:
        """As `VectorIndex.search`; rows without a vector are never hits."""
        if self._index is None:
            return no_hits(len(queries), k, self.spec.metric_type)  # of any form, also sparse ones
        if mask is not None:
            mask = self._narrow(mask)
        return self._in_segment(self._index.search(queries, k, params, mask, threads))

    def work_ns(self, queries: int, params: SearchParams, mask: RowMask | None) -> float:
        if self._index is None:
            return 0.0
        return self._index.work_ns(queries, params, None if mask is None else self._narrow(mask))

    def _in_segment(self, found: Hits) -> Hits:
        return Hits(found.distances, np.where(found.rows < 0, found.rows, self._row_of[found.rows]))

    def _narrow(self, mask: RowMask) -> RowMask:
        for known, narrowed in self._narrowed:
            if known is mask:
                return narrowed
        if mask.rows != self.rows:
            raise ValueError(f"a mask of {mask.rows} rows over an index of {self.rows}")
        narrowed = RowMask.from_bool(mask.to_bool()[self.valid])
        # Two threads may both write: each leaves pairs that belong together.
        self._narrowed = ((mask, narrowed), *self._narrowed)[:_NARROWED_KEPT]
        return narrowed

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        return self.search(queries, k, params, mask, threads)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        narrowed = None if mask is None else self._narrow(mask)
        depth = len(self._row_of) if narrowed is None else narrowed.count
        if self._index is None or not depth:
            return no_hits(len(queries), k, self.spec.metric_type)
        found = self._index._within(queries, min(k, depth), window, narrowed)
        return self._in_segment(found.padded(k, self.spec.metric_type))

    def reconstruct(self, rows: RowIds) -> Vectors:
        """Return the original vectors of these rows, which all have one: see `VectorIndex.reconstruct`."""
        if self._index is None:
            return self.spec.form.to_matrix(pa.array([], self.spec.form.arrow_type(self.spec.dim)))
        return self._index.reconstruct(np.searchsorted(self._row_of, rows))

    def _reconstruct(self, rows: RowIds) -> Vectors:
        return self.reconstruct(rows)


def valid_in(content: IndexFileContent) -> Valid | None:
    """Return which rows of an index file have a vector; None if all have."""
    if VALID not in content.arrays:
        return None
    rows = int(content.arrays[ROWS][0])
    bits: npt.NDArray[np.uint8] = np.ascontiguousarray(content.arrays[VALID])
    valid: Valid = np.unpackbits(bits, count=rows, bitorder="little").view(np.bool_)
    return valid
