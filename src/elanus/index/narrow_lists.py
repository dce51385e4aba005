"""IVF_FLAT over vectors of half precision or of bytes: the lists hold them in their own width.

Under COSINE they hold unit vectors that were rounded to that width (`elanus.index.narrow_units`). The lists
then find candidates, and the restored vectors rank these, so that scores are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from elanus.core.metrics import Metric
from elanus.core.types import DataType
from elanus.index.adding import add_to_lists
from elanus.index.base import Queries
from elanus.index.coded_rows import faiss_metric, scalar_quantizer
from elanus.index.decoded_rows import DecodedRows, parts
from elanus.index.exact import Block
from elanus.index.float_rows import Floats
from elanus.index.hits import RowIds
from elanus.index.library import faiss
from elanus.index.narrow_units import NarrowUnitRows, NarrowUnits
from elanus.index.refining import Refiner
from elanus.index.spec import IndexSpec, Progress

NARROW = {
    DataType.FLOAT16_VECTOR: "FP16",
    DataType.BFLOAT16_VECTOR: "BF16",
    DataType.INT8_VECTOR: "INT8",
}
"""The types whose vectors are kept as they are, in fewer bytes than a float: their codes are exact."""
_BYTE_MAX = 127


class ListedRows(DecodedRows):
    """The rows behind the direct map of lists."""

    def __init__(self, lists: Any, metric: Metric) -> None:
        super().__init__(lists.ntotal, lists.d, metric)
        self._lists = lists

    @property
    def memory_bytes(self) -> int:
        return 0  # the index counts the lists

    def taken(self, rows: RowIds) -> Floats:
        return self.compared(rows)

    def compared(self, block: Block) -> Floats:
        rows = np.arange(self.count)[block] if isinstance(block, slice) else block
        decoded: Floats = self._lists.reconstruct_batch(np.ascontiguousarray(rows, dtype=np.int64))
        return decoded


def empty_lists(spec: IndexSpec, centroids: Any, count: int) -> Any:
    """Return lists without rows that keep vectors of the spec's type as they are."""
    quantizer = scalar_quantizer(NARROW[spec.data_type])
    lists = faiss.IndexIVFScalarQuantizer(
        centroids, spec.dim, count, quantizer, faiss_metric(spec.metric_type)
    )
    lists.by_residual = False  # a residual would be rounded
    return lists


def add_narrow(
    spec: IndexSpec, lists: Any, vectors: Any, units: NarrowUnits | None, report: Progress
) -> None:
    """Add all rows to trained lists; ``units``: how those are made that COSINE compares."""
    for part in parts(len(vectors)):
        rows = vectors[part]
        add_to_lists(lists, spec.form.compared(rows) if units is None else units.units(rows, part))
        report(min(1.0, part.stop / len(vectors)))


def scanned(spec: IndexSpec, lists: Any, queries: Queries) -> Queries:
    """Return the queries to scan lists with.

    faiss rounds a query to bytes where the rows are bytes. Under COSINE queries have unit length, and little
    would be left of them; another length changes no order.
    """
    if spec.metric_type is not Metric.COSINE or not _holds_bytes(spec, lists):
        return queries
    floats = np.asarray(queries, dtype=np.float32)
    peaks = np.abs(floats).max(axis=1, keepdims=True)
    scaled: Floats = np.divide(floats * _BYTE_MAX, peaks, out=np.zeros_like(floats), where=peaks > 0)
    return scaled


def narrow_refiner(spec: IndexSpec, lists: Any, units: NarrowUnits | None) -> Refiner | None:
    """Return what ranks the rows that lists find; None where their own scores are exact.

    ``lists``: with a direct map. Scores of bytes are those of a rounded query (`scanned`).
    """
    if units is not None:
        rows = NarrowUnitRows(ListedRows(lists, Metric.COSINE), units)
        return Refiner(rows, lossless=True, arrays=units.arrays)
    if _holds_bytes(spec, lists):
        return Refiner(ListedRows(lists, spec.metric_type), lossless=True, arrays={})
    return None


def _holds_bytes(spec: IndexSpec, lists: Any) -> bool:
    return spec.data_type is DataType.INT8_VECTOR and lists.code_size == spec.dim
