"""MINHASH_LSH: MinHash signatures in buckets, by locality-sensitive hashing.

A signature is cut into bands of r consecutive elements, and each band is hashed. Two signatures with
similarity s share a band with probability s^r, so similar ones meet in some bucket and others do not (Indyk
and Motwani, 1998). A search compares a query with the rows that share a bucket with it. If fewer than
k of those are visible, it compares all visible rows, so no search returns fewer hits than there are.

For each band there is a sorted array of the rows' hashes, and the rows in that order: a bucket is a range.
Scores are always those of whole signatures, whatever bucket a row was found in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.trail import current
from elanus.core.types import Space, vectors_in
from elanus.index.base import Queries, VectorIndex, Vectors
from elanus.index.binary_rows import Codes
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.hits import Hits, RowIds, stacked
from elanus.index.masks import RowMask
from elanus.index.minhash_rows import (
    ELEMENT_BITS_DEFAULT,
    ELEMENT_BITS_KEY,
    Elements,
    MinHashRows,
    elements_of,
)
from elanus.index.search_params import SearchParams, Window
from elanus.index.spec import BoolParam, IndexKind, IndexSpec, IntParam, Progress
from elanus.index.values import INT32_MAX

BANDS_KEY = "mh_lsh_band"
ELEMENT_BITS = (8, 16, 32, 64)
_CHUNK_ROWS = 65_536
_SEED = 0x5EED

Hashes = npt.NDArray[np.uint64]


class MinHashLshIndex(VectorIndex):
    """Arrays: ``vectors`` (n, dim / 8); ``hashes`` (bands, n), ascending in each band; ``row_ids``
    (bands, n), the rows in that order.
    """

    def __init__(self, spec: IndexSpec, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__(spec, len(arrays["vectors"]))
        self._arrays = arrays
        self._bits = int(spec.params[ELEMENT_BITS_KEY])
        self._exact = MinHashRows(arrays["vectors"], self._bits)
        self._hashes: Hashes = arrays["hashes"]
        self._row_ids: npt.NDArray[np.int32] = arrays["row_ids"]

    @property
    def memory_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    @property
    def has_raw_vectors(self) -> bool:
        return True

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, self._arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> MinHashLshIndex:
        return cls(spec, content.arrays)

    def candidates(self, query: Codes) -> RowIds:
        """Return the rows that share a bucket with a query, ascending. (dim / 8,) → (m,)."""
        wanted = band_hashes(elements_of(query[None], self._bits), len(self._hashes))[:, 0]
        found = []
        for hashes, rows, value in zip(self._hashes, self._row_ids, wanted, strict=True):
            first, last = np.searchsorted(hashes, value), np.searchsorted(hashes, value, side="right")
            found.append(rows[first:last])
        return np.unique(np.concatenate(found)).astype(np.int64)

    def _nearest(
        self, queries: Queries, k: int, params: SearchParams, mask: RowMask | None, threads: int
    ) -> Hits:
        parts = []
        trail = current()
        for i in range(len(queries)):
            query = queries[i : i + 1]
            rows = self.candidates(query[0])
            if mask is not None:
                rows = rows[mask.contains(rows)]
            if len(rows) >= k:
                if trail is not None:
                    trail.method("bands", len(rows), bands=len(self._hashes))
                parts.append(self._exact.nearest_of(query, k, rows))
            else:
                if trail is not None:
                    trail.because("too few rows share a band with the query")
                parts.append(self._exact.nearest(query, k, mask, threads))
        return stacked(parts)

    def _within(self, queries: Queries, k: int, window: Window, mask: RowMask | None) -> Hits:
        return self._exact.within(queries, k, window, mask)

    def _reconstruct(self, rows: RowIds) -> Vectors:
        return self._exact.taken(rows)


def band_hashes(elements: Elements, bands: int) -> Hashes:
    """Return the hash of each band of each signature. (n, h) → (bands, n).

    The last elements, if they fill no band, are left out.
    """
    width = elements.shape[1] // bands
    factors = np.random.PCG64(_SEED).random_raw(bands * width).reshape(bands, width) | np.uint64(1)
    hashes = np.empty((bands, len(elements)), dtype=np.uint64)
    for start in range(0, len(elements), _CHUNK_ROWS):
        chunk = elements[start : start + _CHUNK_ROWS]
        for band in range(bands):
            part = chunk[:, band * width : (band + 1) * width].astype(np.uint64)
            hashes[band, start : start + len(chunk)] = (part * factors[band]).sum(axis=1, dtype=np.uint64)
    return hashes


def _build(spec: IndexSpec, codes: Codes, progress: Progress) -> MinHashLshIndex:
    hashes = band_hashes(elements_of(codes, spec.params[ELEMENT_BITS_KEY]), spec.params[BANDS_KEY])
    row_ids = np.empty(hashes.shape, dtype=np.int32)
    for band in range(len(hashes)):
        row_ids[band] = np.argsort(hashes[band], kind="stable")
        hashes[band] = hashes[band][row_ids[band]]
        progress((band + 1) / len(hashes))
    return MinHashLshIndex(spec, {"vectors": codes, "hashes": hashes, "row_ids": row_ids})


def _check(params: Mapping[str, Any], dim: int) -> None:
    bits, bands = params[ELEMENT_BITS_KEY], params[BANDS_KEY]
    if bits not in ELEMENT_BITS or dim % bits:
        raise InvalidParameter(
            f"{ELEMENT_BITS_KEY} should be 8, 16, 32 or 64 and divide the dimension {dim}, but got {bits}"
        )
    if bands > dim // bits:
        raise InvalidParameter(
            f"{BANDS_KEY} ({bands}) should not exceed the number of elements in a signature, {dim // bits} "
            f"(dimension {dim}, {ELEMENT_BITS_KEY} {bits})"
        )


MINHASH_LSH = IndexKind(
    "MINHASH_LSH",
    vectors_in(Space.BITS),
    _build,
    MinHashLshIndex.from_file,
    build_params={
        ELEMENT_BITS_KEY: IntParam(8, 256, ELEMENT_BITS_DEFAULT),
        BANDS_KEY: IntParam(1, INT32_MAX, 1),
        "with_raw_data": BoolParam(False),
    },
    metrics=(Metric.MHJACCARD,),
    is_automatic=True,
    check=_check,
)
