"""IVF_PQ, SCANN, IVF_RABITQ and IVF_RABITQ_FASTSCAN: inverted lists of small codes.

IVF_PQ
    A vector is cut into ``m`` parts, and each part is kept as the number of the nearest of 2^``nbits``
    codewords (Jégou, Douze and Schmid, 2011).
SCANN
    Parts of two dimensions with 16 codewords each, compared by table lookups in registers (André, Kermarrec
    and Le Scouarnec, 2015). The vectors are kept too, and rank ``reorder_k`` candidates. Without
    ``with_raw_data`` there are only the codes, compared one by one.
IVF_RABITQ
    One bit per dimension and two numbers per row (Gao and Long, 2024); ``rbq_query_bits`` is the precision of
    the query, 0 for float32.
IVF_RABITQ_FASTSCAN
    The same codes, always compared with a query of 8 bits. Here both types compare code by code, so this one
    is a name for programs that ask for it, not a faster index. Rows to refine with are the vectors as sent.

Few rows cannot train many codewords: a segment of 2,000 rows gets 8 bits per codeword at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.core.types import DataType
from elanus.index.coded_rows import codeword_bits, faiss_metric
from elanus.index.files import IndexFileContent
from elanus.index.ivf import NLIST, NPROBE, NPROBE_KEY, IvfIndex, filled, list_count, owned
from elanus.index.library import faiss
from elanus.index.masks import RowMask
from elanus.index.refining import BUILD_PARAMS as REFINE_BUILD
from elanus.index.refining import REFINE_TYPE_KEY, UNCHANGED, Refiner, unchanged
from elanus.index.refining import SEARCH_PARAMS as REFINE_SEARCH
from elanus.index.search_params import SearchParams
from elanus.index.spec import (
    BoolParam,
    IndexKind,
    IndexSpec,
    IntParam,
    Progress,
    RequiredInt,
    Sent,
    asks_for_k,
)
from elanus.index.values import INT32_MAX, integer

FLOATING = frozenset({DataType.FLOAT_VECTOR, DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR})
QUERY_BITS_KEY = "rbq_query_bits"
REORDER_K_KEY = "reorder_k"
RAW_DATA_KEY = "with_raw_data"
SCANN_BITS = 4
SCANN_CANDIDATES_PER_HIT = 10
SCANN_CANDIDATES_MIN = 200
"""The candidates if ``reorder_k`` is not sent: comparing 200 rows costs little next to scanning the lists."""
RABITQ_CANDIDATES_PER_HIT = 8
FASTSCAN_QUERY_BITS = 8


class ProductIndex(IvfIndex):
    """IVF_PQ."""

    def _table_bytes(self) -> int:
        codewords = self._lists.pq.centroids.size() + self._lists.precomputed_table.size()
        return int(codewords) * 4


class ScannIndex(IvfIndex):
    """SCANN. A comparison in registers rounds scores to bytes, so its candidates are always ranked.

    Under IP and COSINE faiss finds no row whose rounded score is the least possible one. Those are all rows
    if the codes do not distinguish them, or the query is zeros.
    """

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> ScannIndex:
        refiner = None
        if spec.params[RAW_DATA_KEY]:
            refiner = unchanged(spec, content.arrays["refine"].view(spec.form.dtype))
        return cls(spec, content.faiss_index, None, refiner)

    def _candidates(self, k: int, params: SearchParams) -> int:
        return params.number(REORDER_K_KEY, 0) or max(SCANN_CANDIDATES_MIN, SCANN_CANDIDATES_PER_HIT * k)

    def _table_bytes(self) -> int:
        return int(self._lists.pq.centroids.size()) * 4


class RabitqIndex(IvfIndex):
    """IVF_RABITQ and IVF_RABITQ_FASTSCAN."""

    def _scan_parameters(self, probes: int, params: SearchParams, mask: RowMask | None) -> Any:
        fast = self.spec.kind is IVF_RABITQ_FASTSCAN
        bits = FASTSCAN_QUERY_BITS if fast else params.number(QUERY_BITS_KEY, 0)
        if mask is None:
            return faiss.IVFRaBitQSearchParameters(nprobe=probes, qb=bits)
        return faiss.IVFRaBitQSearchParameters(nprobe=probes, qb=bits, sel=mask.selector)

    def _candidates(self, k: int, params: SearchParams) -> int:
        return super()._candidates(k, params) * RABITQ_CANDIDATES_PER_HIT


def _centroids(spec: IndexSpec) -> tuple[Any, int]:
    metric = faiss_metric(spec.metric_type)
    return faiss.IndexFlat(spec.dim, metric), metric


def _build_product(spec: IndexSpec, vectors: Any, progress: Progress) -> ProductIndex:
    centroids, metric = _centroids(spec)
    count = list_count(spec.params["nlist"], len(vectors))
    bits = codeword_bits(spec.params["nbits"], len(vectors))
    lists = faiss.IndexIVFPQ(centroids, spec.dim, count, spec.params["m"], bits, metric)
    lists.pq.cp.min_points_per_centroid = 1
    filled(spec, owned(lists, centroids), vectors, progress, codewords=1 << bits)
    return ProductIndex(spec, lists, None, Refiner.of(spec, vectors))


def _build_scann(spec: IndexSpec, vectors: Any, progress: Progress) -> ScannIndex:
    centroids, metric = _centroids(spec)
    count = list_count(spec.params["nlist"], len(vectors))
    raw = spec.params[RAW_DATA_KEY]
    kind = faiss.IndexIVFPQFastScan if raw else faiss.IndexIVFPQ
    lists = kind(centroids, spec.dim, count, spec.dim // spec.params["sub_dim"], SCANN_BITS, metric)
    lists.pq.cp.min_points_per_centroid = 1
    filled(spec, owned(lists, centroids), vectors, progress, codewords=1 << SCANN_BITS)
    return ScannIndex(spec, lists, None, unchanged(spec, vectors) if raw else None)


def _build_rabitq(spec: IndexSpec, vectors: Any, progress: Progress) -> RabitqIndex:
    centroids, metric = _centroids(spec)
    count = list_count(spec.params["nlist"], len(vectors))
    lists = faiss.IndexIVFRaBitQ(centroids, spec.dim, count, metric)
    filled(spec, owned(lists, centroids), vectors, progress)
    return RabitqIndex(spec, lists, None, Refiner.of(spec, vectors))


class _ReorderK(IntParam):
    """``reorder_k``: at least k; 0 stands for the default."""

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        if name not in sent:
            return self.default
        reorder_k = integer(name, sent[name], self.low, self.high)
        if reorder_k < k and asks_for_k(sent):
            raise InvalidParameter(f"reorder_k({reorder_k}) should be larger than k({k})")
        return max(reorder_k, k)


def check_parts(params: Mapping[str, Any], dim: int) -> None:
    """The parts of a vector have the same length. Raises `InvalidParameter`."""
    if dim % params["m"]:
        raise InvalidParameter(
            "The dimension of a vector (dim) should be a multiple of the number of subquantizers (m). "
            f"Dimension: {dim}, m: {params['m']}"
        )


def _check_sub_dim(params: Mapping[str, Any], dim: int) -> None:
    if dim % params["sub_dim"]:
        raise InvalidParameter(
            "The dimension of a vector (dim) should be a multiple of sub_dim. "
            f"Dimension:{dim}, sub_dim:{params['sub_dim']}"
        )


def _check_unchanged(params: Mapping[str, Any], _: int) -> None:
    if params[REFINE_TYPE_KEY] not in UNCHANGED:
        raise InvalidParameter(
            f"IVF_RABITQ_FASTSCAN does not support refine_type {params[REFINE_TYPE_KEY]}: use FP32 or FLAT, "
            "or the index type IVF_RABITQ"
        )


IVF_PQ = IndexKind(
    "IVF_PQ",
    FLOATING,
    _build_product,
    ProductIndex.from_file,
    build_params={
        "nlist": NLIST,
        "m": RequiredInt(1, 65_536),
        "nbits": IntParam(1, 24, 8),
        **REFINE_BUILD,
    },
    search_params={NPROBE_KEY: NPROBE, **REFINE_SEARCH},
    check=check_parts,
)
SCANN = IndexKind(
    "SCANN",
    FLOATING,
    _build_scann,
    ScannIndex.from_file,
    build_params={
        "nlist": NLIST,
        RAW_DATA_KEY: BoolParam(default=True),
        "sub_dim": IntParam(1, 65_536, 2),
    },
    search_params={NPROBE_KEY: NPROBE, REORDER_K_KEY: _ReorderK(1, INT32_MAX, 0)},
    check=_check_sub_dim,
)
IVF_RABITQ = IndexKind(
    "IVF_RABITQ",
    FLOATING,
    _build_rabitq,
    RabitqIndex.from_file,
    build_params={"nlist": NLIST, **REFINE_BUILD},
    search_params={NPROBE_KEY: NPROBE, QUERY_BITS_KEY: IntParam(0, 8, 0), **REFINE_SEARCH},
)
IVF_RABITQ_FASTSCAN = IndexKind(
    "IVF_RABITQ_FASTSCAN",
    FLOATING,
    _build_rabitq,
    RabitqIndex.from_file,
    build_params={"nlist": NLIST, **REFINE_BUILD},
    search_params={NPROBE_KEY: NPROBE, QUERY_BITS_KEY: IntParam(0, 0, 0), **REFINE_SEARCH},
    check=_check_unchanged,
)
