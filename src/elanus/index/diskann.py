"""DISKANN: codes and links in memory, vectors on the local disk.

As in DiskANN (Subramanya et al., 2019), a search walks a graph over small codes that stay in memory, and then
reads the vectors of the rows it met from disk to rank them. The graph here is that of HNSW. The codes have
four bits for two dimensions: a sixteenth of float32.

The vectors are read from the index file with ``pread``, in the order of the rows, so neighbors in the file
are one read. They are not mapped: a mapping would count as memory of this process.
``search_list`` is the number of rows that are met and read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index.coded_rows import codeword_bits, product_codec
from elanus.index.decoded_rows import DecodedRows, parts
from elanus.index.exact import Block
from elanus.index.files import FiledArray, IndexFileContent
from elanus.index.float_rows import Floats, inverse_norms
from elanus.index.hits import RowIds
from elanus.index.hnsw_codes import CodedHnsw, coded_graph
from elanus.index.ivf_codes import FLOATING
from elanus.index.refining import Refiner, unchanged
from elanus.index.search_params import SearchParams
from elanus.index.spec import IndexKind, IndexSpec, IntParam, Progress, Sent, asks_for_k
from elanus.index.unit import unit
from elanus.index.values import INT32_MAX, integer

SEARCH_LIST_KEY = "search_list"
SEARCH_LIST_DEFAULT = 64
SEARCH_LIST_PER_K = 2
CODEWORD_BITS = 4
DEGREE_PER_LINK = 3
"""``max_degree`` is that of a Vamana graph. A third of it as M gives two thirds of the links in the lowest
layer."""
READ_WEIGHT = 10.0
"""A row of an exact scan costs ten times as much as one in memory: a system call and a copy."""


class DiskRows(DecodedRows):
    """Vectors in their stored form in a file, under L2, IP or COSINE."""

    def __init__(self, spec: IndexSpec, filed: FiledArray) -> None:
        super().__init__(filed.shape[0], spec.dim, spec.metric_type)
        self._form = spec.form
        self._filed = filed
        self._inverse_norms = self._norms() if spec.metric_type is Metric.COSINE else None

    @property
    def memory_bytes(self) -> int:
        return 0 if self._inverse_norms is None else self._inverse_norms.nbytes

    def taken(self, rows: RowIds) -> Matrix:
        return self._filed.read(rows).view(self._form.dtype)

    def compared(self, block: Block) -> Floats:
        vectors: Floats = self._filed.read(block).view(self._form.dtype).astype(np.float32, copy=False)
        if self._inverse_norms is not None:
            inverse_norms = self._inverse_norms[block]
            short = np.isinf(inverse_norms)
            if short.any():
                vectors[short] = unit(vectors[short])
                inverse_norms = np.where(short, np.float32(1), inverse_norms)
            vectors *= inverse_norms[:, None]
        return vectors

    def _norms(self) -> Floats:
        norms = np.empty(self.count, dtype=np.float32)
        for part in parts(self.count):
            vectors = self._filed.read(part).view(self._form.dtype)
            norms[part] = inverse_norms(vectors.astype(np.float32, copy=False))
        return norms


class DiskannIndex(CodedHnsw):
    """A graph over codes whose vectors are in the index file; until it is saved, in memory."""

    exact_weight = READ_WEIGHT

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> DiskannIndex:
        refiner = Refiner(DiskRows(spec, content.filed["refine"]), lossless=True, arrays={})
        graph = content.faiss_index
        return cls(spec, graph, cls.walked(spec, graph), None, refiner)

    @property
    def disk_bytes(self) -> int:
        return self.rows * self.spec.form.row_bytes(self.spec.dim)

    def save(self, path: Path) -> None:
        if isinstance(self._exact, DiskRows):
            raise ValueError("an index that was read from a file is not saved again")
        super().save(path)

    def _asked_ef(self, params: SearchParams) -> int:
        return params.number(SEARCH_LIST_KEY, SEARCH_LIST_DEFAULT)


def _new_codec(spec: IndexSpec, rows: int) -> tuple[Any, int]:
    bits = codeword_bits(CODEWORD_BITS, rows)
    count = spec.dim // 2 if spec.dim % 2 == 0 else spec.dim
    return product_codec(spec.dim, count, bits, spec.metric_type), 1 << bits


def _build(spec: IndexSpec, vectors: Any, progress: Progress) -> DiskannIndex:
    links = max(2, spec.params["max_degree"] // DEGREE_PER_LINK)
    breadth = spec.params["search_list_size"]
    graph = coded_graph(spec, vectors, _new_codec, links, breadth, progress)
    return DiskannIndex(spec, graph, DiskannIndex.walked(spec, graph), None, unchanged(spec, vectors))


class _SearchList(IntParam):
    """``search_list``: at least k; if it is not given, the default for k."""

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        if name not in sent:
            return max(self.default, SEARCH_LIST_PER_K * k)
        size = integer("search_list_size", sent[name], self.low, self.high)
        if size < k and asks_for_k(sent):
            raise InvalidParameter(f"search_list_size({size}) should be larger than k({k})")
        return max(size, k)


DISKANN = IndexKind(
    "DISKANN",
    FLOATING,
    _build,
    DiskannIndex.from_file,
    build_params={"max_degree": IntParam(1, 2048, 48), "search_list_size": IntParam(1, INT32_MAX, 128)},
    search_params={SEARCH_LIST_KEY: _SearchList(1, INT32_MAX, SEARCH_LIST_DEFAULT)},
    filed_arrays=frozenset({"refine"}),
)
