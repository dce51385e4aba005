"""Bytes that an index of vectors takes, computed from its parameters before it is built.

One entry per kind of index: bytes per row, and bytes that do not grow with the rows (centroids, codewords).
The page ``docs/index-types.md`` shows the first. The test compares both with indexes that were built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.types import DataType, Space
from elanus.index import coded_scan
from elanus.index.spec import IndexSpec

_LINKS_ROW_BYTES = 17
"""A row's level in a graph, its offset, and its share of the links above the lowest level."""
_LIST_ID_BYTES = 8
_NORM_BYTES = 4
VALUE_BYTES = 8
"""A sparse vector has a place and a value for each number that is not zero."""
_CODEWORDS_4_BITS = 16
_TRAINING_ROWS = 39
"""Rows that each codeword needs, of more than 256."""
_TABLE_BYTES_MAX = 2 << 30
"""faiss computes no table of distances that is larger."""
_BAND_BYTES = 12
_WITHOUT_COPY = ("FLAT", "BIN_FLAT")
_SQ_BITS = {"SQ4U": 4, "SQ6": 6, "SQ8": 8, "FP16": 16, "BF16": 16}
_REFINE_BITS = _SQ_BITS


@dataclass(frozen=True, slots=True)
class IndexSize:
    """``file_bytes``: of the index file; ``disk_bytes``: the part of it that is not read into memory."""

    memory_bytes: int
    file_bytes: int
    disk_bytes: int


class _Shape(NamedTuple):
    """``row``: bytes of memory for each row; ``fixed``: for a segment; ``made``: for tables that are computed
    when it is loaded; ``disk``: bytes on disk for each row."""

    row: float
    fixed: float = 0.0
    made: float = 0.0
    disk: float = 0.0


def index_size(spec: IndexSpec, rows: int, values_per_row: float = 0.0) -> IndexSize:
    """Return what an index of ``rows`` rows of one segment takes.

    ``values_per_row``: those that are not zero, for sparse vectors. Raises `InvalidParameter` for a kind
    whose size is not known, and for sparse vectors without ``values_per_row``.
    """
    shape = _SHAPES.get(spec.index_type)
    if shape is None:
        raise InvalidParameter(f"the size of an index of type {spec.index_type} is not known")
    found = shape(spec, rows)
    is_sparse = spec.form.space is Space.SPARSE
    each = found.row + _refine(spec) + (sparse_bytes(values_per_row) if is_sparse else 0.0)
    kept, disk = each * rows + found.fixed, found.disk * rows
    return IndexSize(round(kept + found.made), round(kept + disk), round(disk))


def build_bytes_min(spec: IndexSpec, rows: int) -> int:
    """Return the memory that a build of ``rows`` rows takes at least: its values, and an index next to them.

    0 where that is not known: of sparse vectors, and of kinds without a size.
    """
    if spec.form.space is Space.SPARSE or spec.index_type not in _SHAPES:
        return 0
    values = _width(spec) * rows
    if spec.index_type in _WITHOUT_COPY:
        return values
    size = index_size(spec, rows)
    return values + size.file_bytes - size.disk_bytes


def sparse_bytes(values_per_row: float) -> float:
    """Return the bytes of a sparse vector. Raises `InvalidParameter` if its values are not known."""
    if values_per_row <= 0:
        raise InvalidParameter(
            "the size of a sparse vector depends on its values: say how many are not zero (--values)"
        )
    return VALUE_BYTES * values_per_row


def _refine(spec: IndexSpec) -> float:
    if not spec.params.get("refine"):
        return 0.0
    kind = spec.params["refine_type"]
    bits = _REFINE_BITS.get(kind)
    row = _width(spec) if bits is None else bits * spec.dim / 8
    return row + _norms(spec)


def _width(spec: IndexSpec) -> int:
    return spec.form.row_bytes(spec.dim)


def _is_cosine(spec: IndexSpec) -> bool:
    return spec.metric is Metric.COSINE


def _norms(spec: IndexSpec) -> int:
    return _NORM_BYTES if _is_cosine(spec) else 0


def _unit_rest(spec: IndexSpec, kept_as_floats: bool) -> float:
    """Bytes that restore the vectors that COSINE keeps as units: a length, and some bits per dimension."""
    if not _is_cosine(spec):
        return 0.0
    bits = 1 if spec.data_type is DataType.INT8_VECTOR and not kept_as_floats else 2
    return (2 * _NORM_BYTES if kept_as_floats else _NORM_BYTES) + bits * spec.dim / 8


def _links(links: int) -> float:
    return 8 * links + _LINKS_ROW_BYTES


def _centroids(spec: IndexSpec, rows: int, row_bytes: float) -> float:
    return float(min(spec.params["nlist"], max(1, rows)) * row_bytes)


def _codewords(nbits: int, rows: int) -> int:
    """Codewords per part of a vector. More than 256 are trained only where there are rows enough."""
    while nbits > 8 and _TRAINING_ROWS << nbits > rows:
        nbits -= 1
    return 1 << nbits


def _flat(spec: IndexSpec, _: int) -> _Shape:
    return _Shape(_width(spec) + _norms(spec))


def _bits_flat(spec: IndexSpec, _: int) -> _Shape:
    return _Shape(_width(spec) + (0 if spec.metric is Metric.HAMMING else _NORM_BYTES))


def _bits_ivf(spec: IndexSpec, rows: int) -> _Shape:
    width = _width(spec)
    counts = 0 if spec.metric is Metric.HAMMING else _NORM_BYTES
    return _Shape(width + 2 * _LIST_ID_BYTES + counts, _centroids(spec, rows, width))


def _ivf_flat(spec: IndexSpec, rows: int) -> _Shape:
    floats = spec.data_type is DataType.FLOAT_VECTOR
    row = _width(spec) + 2 * _LIST_ID_BYTES + _unit_rest(spec, floats)
    return _Shape(row, _centroids(spec, rows, 4 * spec.dim))


def _ivf_sq8(spec: IndexSpec, rows: int) -> _Shape:
    return _Shape(spec.dim + _LIST_ID_BYTES, _centroids(spec, rows, 4 * spec.dim))


def _ivf_pq(spec: IndexSpec, rows: int) -> _Shape:
    parts, words = spec.params["m"], _codewords(spec.params["nbits"], rows)
    fixed = _centroids(spec, rows, 4 * spec.dim) + 4 * spec.dim * words
    table_bytes = _centroids(spec, rows, 4 * parts * words) if spec.metric is Metric.L2 else 0.0
    code = parts * (words.bit_length() - 1) / 8
    made = table_bytes if table_bytes <= _TABLE_BYTES_MAX else 0.0
    return _Shape(code + _LIST_ID_BYTES, fixed, made)


def _ivf_rabitq(spec: IndexSpec, rows: int) -> _Shape:
    return _Shape(spec.dim / 8 + 2 * _LIST_ID_BYTES, _centroids(spec, rows, 4 * spec.dim))


def _scann(spec: IndexSpec, rows: int) -> _Shape:
    row = spec.dim / spec.params["sub_dim"] / 2 + _LIST_ID_BYTES
    if spec.params["with_raw_data"]:
        row += _width(spec) + _norms(spec)
    return _Shape(row, _centroids(spec, rows, 4 * spec.dim) + 4 * spec.dim * _CODEWORDS_4_BITS)


def _hnsw(spec: IndexSpec, rows: int) -> _Shape:
    floats = spec.data_type is DataType.FLOAT_VECTOR
    row = _width(spec) + _links(spec.params["M"]) + _unit_rest(spec, floats)
    if coded_scan.serves_sparse_filters(spec.dim, rows):
        return _Shape(row + spec.dim / coded_scan.ROW_PART_DIMS, coded_scan.row_words_bytes(spec.dim))
    if not coded_scan.serves_filters(spec.dim, rows):
        return _Shape(row)
    return _Shape(row + coded_scan.row_bytes(spec.dim), coded_scan.table_bytes(spec.dim))


def _hnsw_sq(spec: IndexSpec, _: int) -> _Shape:
    return _Shape(_SQ_BITS[spec.params["sq_type"]] * spec.dim / 8 + _links(spec.params["M"]))


def _hnsw_pq(spec: IndexSpec, rows: int) -> _Shape:
    words = _codewords(spec.params["nbits"], rows)
    code = spec.params["m"] * (words.bit_length() - 1) / 8
    return _Shape(code + _links(spec.params["M"]), 4 * spec.dim * words)


def _hnsw_prq(spec: IndexSpec, rows: int) -> _Shape:
    words = _codewords(spec.params["nbits"], rows)
    code = spec.params["m"] * spec.params["nrq"] * (words.bit_length() - 1) / 8
    norms = _NORM_BYTES if spec.metric is Metric.L2 else 0
    return _Shape(code + norms + _links(spec.params["M"]), 4 * spec.dim * words * spec.params["nrq"])


def _diskann(spec: IndexSpec, _: int) -> _Shape:
    row = spec.dim / 4 + _links(max(2, spec.params["max_degree"] // 3)) + _norms(spec)
    return _Shape(row, 4 * spec.dim * _CODEWORDS_4_BITS, disk=_width(spec))


def _sparse(_: IndexSpec, __: int) -> _Shape:
    return _Shape(0.0)


def _minhash_lsh(spec: IndexSpec, rows: int) -> _Shape:
    """The signatures, and for each band a hash and a row."""
    return _Shape(_width(spec) + _BAND_BYTES * spec.params["mh_lsh_band"])


_SHAPES: Mapping[str, Callable[[IndexSpec, int], _Shape]] = {
    "FLAT": _flat,
    "IVF_FLAT": _ivf_flat,
    "IVF_SQ8": _ivf_sq8,
    "IVF_PQ": _ivf_pq,
    "IVF_RABITQ": _ivf_rabitq,
    "IVF_RABITQ_FASTSCAN": _ivf_rabitq,
    "SCANN": _scann,
    "HNSW": _hnsw,
    "HNSW_SQ": _hnsw_sq,
    "HNSW_PQ": _hnsw_pq,
    "HNSW_PRQ": _hnsw_prq,
    "DISKANN": _diskann,
    "BIN_FLAT": _bits_flat,
    "BIN_IVF_FLAT": _bits_ivf,
    "MINHASH_LSH": _minhash_lsh,
    "SPARSE_INVERTED_INDEX": _sparse,
    "SPARSE_WAND": _sparse,
}
