"""Refining: the candidates that an index of codes finds are compared once more, by more exact rows.

An index of codes is small, and its scores are approximate. With ``refine`` it also keeps its rows in the form
``refine_type``, and the candidates of a search are ranked by these. FP32 and FLAT (the same) keep the vectors
as the client sent them: scores are then exact, and output columns are read from the index. The others keep an
approximation.

``refine_k`` (1 or more) multiplies the number of candidates for each hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.vectors import dtype_of
from elanus.index.adding import compared, encode_in_chunks
from elanus.index.coded_rows import LARGEST, CodedRows, scalar_codec
from elanus.index.decoded_rows import parts
from elanus.index.exact import ExactRows
from elanus.index.hits import Hits, best_of, no_hits
from elanus.index.library import faiss
from elanus.index.narrow_rows import NarrowRows
from elanus.index.raw import exact_rows
from elanus.index.spec import BoolParam, IndexSpec, NumberParam, Param, Sent

REFINE_KEY = "refine"
REFINE_TYPE_KEY = "refine_type"
REFINE_K_KEY = "refine_k"
UNCHANGED = ("FP32", "FLAT")
_TYPES = ("SQ4U", "SQ6", "SQ8", "FP16", "BF16", *UNCHANGED)
_HALVES = {"FP16": "float16", "BF16": "bfloat16"}
"""The numpy types of codes of half precision, by name."""
_HALF_BYTES = 2
CANDIDATES_PER_HIT = 4
"""Candidates for each hit with ``refine_k`` 1. The hits themselves alone would only get better scores."""
_TRAINING_ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class _RefineType:
    """One of `_TYPES`, in either case. ``wording``: how the reference calls a wrong one."""

    default: str = "FP32"

    def resolve(self, name: str, sent: Sent, k: int) -> str:
        value = sent.get(name, self.default)
        if str(value).upper() not in _TYPES:
            raise InvalidParameter(
                f"invalid refine type : {value}, optional types are "
                "[sq4u, sq6, sq8, fp16, bf16, fp32, flat]: invalid refine type type"
            )
        return str(value).upper()


BUILD_PARAMS: Mapping[str, Param] = {REFINE_KEY: BoolParam(default=False), REFINE_TYPE_KEY: _RefineType()}
SEARCH_PARAMS: Mapping[str, Param] = {REFINE_K_KEY: NumberParam(1.0, float(np.finfo(np.float32).max), 1.0)}


@dataclass(frozen=True, slots=True)
class Refiner:
    """``rows``: compared with candidates; ``lossless``: they are the vectors that the client sent.

    ``arrays``: what `from_arrays` needs to make it again.
    """

    rows: ExactRows
    lossless: bool
    arrays: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, spec: IndexSpec, vectors: Any) -> Refiner | None:
        """Return the rows to refine with; None if the index has none. ``vectors``: in their stored form."""
        if not spec.params[REFINE_KEY]:
            return None
        name = spec.params[REFINE_TYPE_KEY]
        if _is_unchanged(name, spec):
            return unchanged(spec, vectors)
        if name in _HALVES:
            return cls.from_arrays(spec, {"refine": _halved(spec, vectors, name).view(np.uint16)})
        codec = scalar_codec(name, spec.dim, spec.metric_type)
        codec.train(compared(spec, vectors[:_TRAINING_ROWS_MAX]))
        encode_in_chunks(spec, codec, vectors)
        return _coded(spec, codec)

    @classmethod
    def from_arrays(cls, spec: IndexSpec, arrays: Mapping[str, npt.NDArray[Any]]) -> Refiner | None:
        """Read the arrays of an index file; None if the index has no rows to refine with."""
        if not spec.params.get(REFINE_KEY, False):
            return None
        name = spec.params[REFINE_TYPE_KEY]
        if _is_unchanged(name, spec):
            return unchanged(spec, arrays["refine"].view(spec.form.dtype))
        if name in _HALVES:
            rows = NarrowRows(arrays["refine"].view(dtype_of(_HALVES[name])), spec.metric_type)
            return cls(rows, lossless=False, arrays={"refine": arrays["refine"]})
        codec = scalar_codec(name, spec.dim, spec.metric_type)
        faiss.copy_array_to_vector(np.ascontiguousarray(arrays["refine_trained"]), codec.sq.trained)
        codec.is_trained = True
        codec.add_sa_codes(np.ascontiguousarray(arrays["refine"]))
        return _coded(spec, codec)

    def best(self, queries: npt.NDArray[Any], candidates: Hits, k: int) -> Hits:
        """Return the k best of each query's candidates by these rows, padded. ``candidates``: padded with
        -1."""
        hits = no_hits(len(queries), k, self.rows.metric)
        for i, query in enumerate(queries):
            rows = candidates.rows[i][candidates.rows[i] >= 0]
            scores, order = best_of(self.rows.scores(query, rows), min(k, len(rows)), self.rows.metric)
            hits.distances[i, : len(order)] = scores
            hits.rows[i, : len(order)] = rows[order]
        return hits


def unchanged(spec: IndexSpec, vectors: Any) -> Refiner:
    """Refine with the vectors in their stored form."""
    stored = np.ascontiguousarray(vectors)
    rows = exact_rows(spec.form, stored, spec.metric_type)
    return Refiner(rows, lossless=True, arrays={"refine": _plain(stored)})


def _is_unchanged(name: str, spec: IndexSpec) -> bool:
    """Whether the stored form is as small as what is asked for."""
    return name in UNCHANGED or (name in _HALVES and spec.form.dtype.itemsize <= _HALF_BYTES)


def _halved(spec: IndexSpec, vectors: Any, name: str) -> npt.NDArray[Any]:
    """Return the vectors in one of `_HALVES`. Under COSINE they have length one: half a float has a small
    range. Otherwise components beyond the range are cut (`LARGEST`)."""
    halves = np.empty(vectors.shape, dtype_of(_HALVES[name]))
    largest = LARGEST.get(name, np.inf)
    for part in parts(len(vectors)):
        halves[part] = np.clip(compared(spec, vectors[part]), -largest, largest)
    return halves


def _coded(spec: IndexSpec, codec: Any) -> Refiner:
    codes = faiss.vector_to_array(codec.codes).reshape(codec.ntotal, codec.code_size)
    arrays = {"refine": codes, "refine_trained": faiss.vector_to_array(codec.sq.trained)}
    return Refiner(CodedRows(codec, spec.metric_type), lossless=False, arrays=arrays)


def _plain(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the vectors as a type that a file's footer can name."""
    return vectors if vectors.dtype.isbuiltin == 1 else vectors.view(np.uint16)
