"""HNSW_SQ, HNSW_PQ and HNSW_PRQ: a graph whose rows are codes.

The links are those of a graph over the vectors themselves: they are built over floats, and the codes take the
place of the floats afterwards. A walk compares codes; `elanus.index.refining` ranks what it meets.

HNSW_SQ
    ``sq_type``: SQ4U, SQ6 and SQ8 keep 4, 6 and 8 bits per component, BF16 and FP16 half a float.
HNSW_PQ
    ``m`` parts with 2^``nbits`` codewords each.
HNSW_PRQ
    As HNSW_PQ, ``nrq`` times: each codeword approximates what those before it left over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.index.adding import compared, encode_in_chunks
from elanus.index.coded_rows import (
    LARGEST,
    CodedRows,
    codeword_bits,
    product_codec,
    residual_codec,
    scalar_codec,
)
from elanus.index.files import IndexFileContent
from elanus.index.hnsw import BREADTH, EF_KEY, GRAPH_PARAMS, HnswIndex, new_graph, over_storage
from elanus.index.ivf import TRAINING_ROWS_PER_LIST_MAX, training_rows
from elanus.index.ivf_codes import FLOATING, check_parts
from elanus.index.library import faiss
from elanus.index.parallel import openmp_threads
from elanus.index.refining import BUILD_PARAMS as REFINE_BUILD
from elanus.index.refining import SEARCH_PARAMS as REFINE_SEARCH
from elanus.index.refining import Refiner
from elanus.index.spec import IndexKind, IndexSpec, IntParam, Param, Progress, Sent

GRAPH_SHARE = 0.8
"""The share of a build's work that its graph takes."""
FEW_CODEWORDS = 16
"""Up to so many codewords are trained by one thread. Each of the thousands of steps is so short that several
threads mostly wait for each other, spinning, far longer than they compute where others use the cores."""
_SQ_TYPES = ("SQ4U", "SQ6", "SQ8", "FP16", "BF16")

NewCodec = Callable[[IndexSpec, int], tuple[Any, int]]
"""Makes an empty codec for this many rows, and says how many rows it needs for training at least."""


class CodedHnsw(HnswIndex):
    """A graph over codes."""

    is_coarse = True

    @staticmethod
    def walked(spec: IndexSpec, graph: Any) -> CodedRows:
        """Return the codes that the graph's storage holds."""
        return CodedRows(faiss.downcast_index(graph.storage), spec.metric_type)

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> CodedHnsw:
        graph = content.faiss_index
        return cls(spec, graph, cls.walked(spec, graph), None, Refiner.from_arrays(spec, content.arrays))

    @property
    def has_raw_vectors(self) -> bool:
        return self._refiner is not None and self._refiner.lossless

    def _table_bytes(self) -> int:
        storage = faiss.downcast_index(self._graph.storage)
        if isinstance(storage, faiss.IndexPQ):
            return int(storage.pq.centroids.size()) * 4
        if isinstance(storage, faiss.IndexProductResidualQuantizer):
            return int(storage.prq.codebooks.size()) * 4
        return 0


def coded_graph(
    spec: IndexSpec, vectors: Any, new_codec: NewCodec, links: int, breadth: int, progress: Progress
) -> Any:
    """Build a graph over the vectors, and return it over their codes."""
    over_floats = new_graph(spec, links, breadth)
    encode_in_chunks(spec, over_floats, vectors, lambda share: progress(share * GRAPH_SHARE))
    codec, rows_min = new_codec(spec, len(vectors))
    rows = compared(spec, vectors[training_rows(len(vectors), 1, rows_min)])
    with openmp_threads(1 if rows_min <= FEW_CODEWORDS else faiss.omp_get_max_threads()):
        codec.train(rows)
    encode_in_chunks(spec, codec, vectors, largest=LARGEST.get(spec.params.get("sq_type", "")))
    graph = over_storage(codec, links)
    graph.hnsw = over_floats.hnsw
    graph.ntotal = len(vectors)
    return graph


def _build(new_codec: NewCodec, spec: IndexSpec, vectors: Any, progress: Progress) -> CodedHnsw:
    links, breadth = spec.params["M"], spec.params["efConstruction"]
    graph = coded_graph(spec, vectors, new_codec, links, breadth, progress)
    return CodedHnsw(spec, graph, CodedHnsw.walked(spec, graph), None, Refiner.of(spec, vectors))


def _scalar(spec: IndexSpec, rows: int) -> tuple[Any, int]:
    return scalar_codec(spec.params["sq_type"], spec.dim, spec.metric_type), 256


def _product(spec: IndexSpec, rows: int) -> tuple[Any, int]:
    bits = codeword_bits(spec.params["nbits"], rows)
    return product_codec(spec.dim, spec.params["m"], bits, spec.metric_type), 1 << bits


def _residual(spec: IndexSpec, rows: int) -> tuple[Any, int]:
    bits = codeword_bits(spec.params["nbits"], rows)
    parts, levels = spec.params["m"], spec.params["nrq"]
    trained = min(rows, TRAINING_ROWS_PER_LIST_MAX << bits)
    return residual_codec(spec.dim, parts, levels, bits, spec.metric_type, trained), 1 << bits


@dataclass(frozen=True, slots=True)
class _SqType:
    """One of `_SQ_TYPES`, in either case."""

    default: str = "SQ8"

    def resolve(self, name: str, sent: Sent, k: int) -> str:
        value = sent.get(name, self.default)
        if not isinstance(value, str):
            raise InvalidParameter(f"Type conflict in json: param '{name}' ({value}) should be a string")
        if value.upper() not in _SQ_TYPES:
            raise InvalidParameter(
                f"invalid scalar quantizer type: {name} {value}, use one of {', '.join(_SQ_TYPES)}"
            )
        return value.upper()


def _kind(name: str, new_codec: NewCodec, params: dict[str, Param], *, has_parts: bool) -> IndexKind:
    return IndexKind(
        name,
        FLOATING,
        partial(_build, new_codec),
        CodedHnsw.from_file,
        build_params={**GRAPH_PARAMS, **params, **REFINE_BUILD},
        search_params={EF_KEY: BREADTH, **REFINE_SEARCH},
        check=check_parts if has_parts else None,
    )


_BITS = IntParam(1, 24, 8)
HNSW_SQ = _kind("HNSW_SQ", _scalar, {"sq_type": _SqType()}, has_parts=False)
HNSW_PQ = _kind("HNSW_PQ", _product, {"m": IntParam(1, 65_536, 32), "nbits": _BITS}, has_parts=True)
HNSW_PRQ = _kind(
    "HNSW_PRQ",
    _residual,
    {"m": IntParam(1, 65_536, 2), "nrq": IntParam(1, 16, 2), "nbits": _BITS},
    has_parts=True,
)
