"""Rows kept as codes of a quantizer, and the quantizers.

A codec is a faiss index that holds the codes of all rows in their order. The same object is searched (as the
storage of a graph), and decoded here for exact comparison. The codes approximate the vectors, and a score is
that of the decoded vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.index.decoded_rows import DecodedRows
from elanus.index.exact import Block
from elanus.index.float_rows import Floats
from elanus.index.hits import RowIds
from elanus.index.library import faiss

SCALAR_QUANTIZERS: Mapping[str, str] = {
    "SQ4U": "QT_4bit_uniform",
    "SQ6": "QT_6bit",
    "SQ8": "QT_8bit",
    "FP16": "QT_fp16",
    "BF16": "QT_bf16",
    "INT8": "QT_8bit_direct_signed",
}
"""faiss's names of the bits per component, or of the type that a component is kept in. INT8 holds whole
numbers from -128 to 127."""

LARGEST: Mapping[str, float] = {"FP16": 65504.0}
"""The largest component of quantizers that make larger ones infinite: a score would be, too, and the row in
no result. A row whose larger components are cut keeps a score, as by the other quantizers."""

CODEWORDS_WITHOUT_ROWS_MAX = 256
"""Up to this many codewords are trained however few rows there are."""
ROWS_PER_CODEWORD = 39


class CodedRows(DecodedRows):
    """The rows of a filled codec. Under COSINE the codes are those of unit vectors."""

    def __init__(self, codec: Any, metric: Metric) -> None:
        super().__init__(codec.ntotal, codec.d, metric)
        self._codec = codec  # owns the memory of the codes
        pointer = faiss.rev_swig_ptr(codec.codes.data(), codec.codes.size())
        self._codes: npt.NDArray[np.uint8] = pointer.reshape(codec.ntotal, codec.code_size)

    @property
    def memory_bytes(self) -> int:
        return self._codes.nbytes

    def taken(self, rows: RowIds) -> Floats:
        return self.compared(rows)

    def compared(self, block: Block) -> Floats:
        decoded: Floats = self._codec.sa_decode(np.ascontiguousarray(self._codes[block]))
        return decoded


def faiss_metric(metric: Metric) -> int:
    return int(faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT)


def scalar_quantizer(name: str) -> int:
    """Return faiss's number of one of `SCALAR_QUANTIZERS`."""
    return int(getattr(faiss.ScalarQuantizer, SCALAR_QUANTIZERS[name]))


def scalar_codec(name: str, dim: int, metric: Metric) -> Any:
    """Return an empty codec of one of `SCALAR_QUANTIZERS`."""
    return faiss.IndexScalarQuantizer(dim, scalar_quantizer(name), faiss_metric(metric))


def product_codec(dim: int, parts: int, bits: int, metric: Metric) -> Any:
    """Return an empty codec of one codeword of 2^bits for each of ``parts`` parts of a vector."""
    codec = faiss.IndexPQ(dim, parts, bits, faiss_metric(metric))
    codec.pq.cp.min_points_per_centroid = 1
    return codec


def residual_codec(dim: int, parts: int, levels: int, bits: int, metric: Metric, rows: int) -> Any:
    """Return an empty codec of ``levels`` codewords for each part, each for what those before it left
    over. ``rows``: how many it will be trained with."""
    search = faiss.AdditiveQuantizer
    kind = search.ST_norm_float if metric is Metric.L2 else search.ST_LUT_nonorm
    codec = faiss.IndexProductResidualQuantizer(dim, parts, levels, bits, faiss_metric(metric), kind)
    for number in range(parts):
        part = faiss.downcast_AdditiveQuantizer(codec.prq.subquantizer(number))
        part.cp.min_points_per_centroid = 1
        if rows < dim // parts:  # too few to find the main axes of a part, along which faiss trains otherwise
            part.train_type = faiss.ResidualQuantizer.Train_default
    return codec


def codeword_bits(asked: int, rows: int) -> int:
    """Return how many bits a codeword gets: fewer than asked if too few rows can train as many codewords."""
    most = max(CODEWORDS_WITHOUT_ROWS_MAX, rows // ROWS_PER_CODEWORD)
    return max(1, min(asked, min(most, rows).bit_length() - 1))
