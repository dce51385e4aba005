"""Rows without an index whose vectors are computed when the first read wants them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.hits import Hits, RowIds
from elanus.index.masks import RowMask
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import IndexSpec


class DeferredVectors(VectorIndex):
    """``make``: returns the index over the computed vectors, which holds them. It is called once, or twice by
    two threads at the same time."""

    def __init__(self, spec: IndexSpec, rows: int, make: Callable[[], VectorIndex]) -> None:
        super().__init__(spec, rows)
        self._make = make
        self._made: VectorIndex | None = None

    @property
    def memory_bytes(self) -> int:
        """0: the block that computes the vectors counts them."""
        return 0

    @property
    def has_raw_vectors(self) -> bool:
        return True

    def save(self, path: Path) -> None:
        self._index.save(path)

    @property
    def _index(self) -> VectorIndex:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        return self._index._nearest(queries, k, params, mask, threads)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._index._within(queries, k, window, mask)

    def _reconstruct(self, rows: RowIds) -> Vectors:
        return self._index._reconstruct(rows)
