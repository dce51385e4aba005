"""What an index is: its type, metric and build parameters, taken from what a client sent and checked.

A client sends ``index_type``, ``metric_type`` and the rest either as JSON text under ``params`` or as
flattened keys beside them; both mean the same. Every key is known and in its domain, or the request is
an error: a parameter that would be ignored is refused, with what to send instead. (The reference keeps
and ignores unknown build parameters.)

================  =============  ===============================================================
FLAT              FloatVector    none; exact
IVF_FLAT          FloatVector    ``nlist`` 1–65536 (128)
IVF_SQ8           FloatVector    ``nlist`` 1–65536 (128); one byte per component
HNSW              FloatVector    ``M`` 2–2048 (16), ``efConstruction`` 1–2147483647 (200)
AUTOINDEX         either         none; HNSW for floats, BIN_FLAT for bits
BIN_FLAT          BinaryVector   none; exact
BIN_IVF_FLAT      BinaryVector   ``nlist`` 1–65536 (128)
================  =============  ===============================================================

``mmap.enabled`` (all types, default false) maps the index file instead of reading it into memory.
``dim`` may be repeated and must then agree with the field. Where no metric is named it is COSINE for
floats and HAMMING for bits; where no type is named it is AUTOINDEX.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elanus.core.errors import InvalidDimension, InvalidParameter, NotSupported
from elanus.core.metrics import BINARY_METRICS, FLOAT_METRICS, Metric
from elanus.core.schema import DataType
from elanus.index.values import INT32_MAX, boolean, integer


class IndexType(StrEnum):
    """The wire's names."""

    FLAT = "FLAT"
    IVF_FLAT = "IVF_FLAT"
    IVF_SQ8 = "IVF_SQ8"
    HNSW = "HNSW"
    AUTOINDEX = "AUTOINDEX"
    BIN_FLAT = "BIN_FLAT"
    BIN_IVF_FLAT = "BIN_IVF_FLAT"


INDEX_TYPE_KEY = "index_type"
METRIC_TYPE_KEY = "metric_type"
PARAMS_KEY = "params"
DIM_KEY = "dim"
MMAP_KEY = "mmap.enabled"
COMMON_KEYS = frozenset({INDEX_TYPE_KEY, METRIC_TYPE_KEY, DIM_KEY, MMAP_KEY})

FLOAT_TYPES = (IndexType.FLAT, IndexType.IVF_FLAT, IndexType.IVF_SQ8, IndexType.HNSW, IndexType.AUTOINDEX)
BINARY_TYPES = (IndexType.BIN_FLAT, IndexType.BIN_IVF_FLAT, IndexType.AUTOINDEX)

_KNOWN_ELSEWHERE = ("IVF_", "HNSW_", "GPU_", "SPARSE_", "SCANN", "DISKANN", "MINHASH", "EMB_LIST")
"""Beginnings of the reference's other vector index types: known, and not built here."""


@dataclass(frozen=True, slots=True)
class _IntParam:
    low: int
    high: int
    default: int


_NLIST = _IntParam(1, 65_536, 128)
_BUILD_PARAMS: dict[IndexType, dict[str, _IntParam]] = {
    IndexType.FLAT: {},
    IndexType.BIN_FLAT: {},
    IndexType.IVF_FLAT: {"nlist": _NLIST},
    IndexType.IVF_SQ8: {"nlist": _NLIST},
    IndexType.BIN_IVF_FLAT: {"nlist": _NLIST},
    IndexType.HNSW: {"M": _IntParam(2, 2048, 16), "efConstruction": _IntParam(1, INT32_MAX, 200)},
    IndexType.AUTOINDEX: {},
}


@dataclass(frozen=True)
class IndexSpec:
    """A resolved index: what is built. ``declared_type`` is what the client asked for.

    They differ for AUTOINDEX only, which is never an ``index_type`` here.
    """

    index_type: IndexType
    metric_type: Metric
    dim: int
    params: Mapping[str, int | float | str] = field(default_factory=dict)
    declared_type: IndexType = IndexType.FLAT
    memory_mapped: bool = False

    @property
    def data_type(self) -> DataType:
        return DataType.BINARY_VECTOR if self.metric_type.is_binary else DataType.FLOAT_VECTOR

    @property
    def row_bytes(self) -> int:
        """Bytes of one raw vector."""
        return self.dim // 8 if self.metric_type.is_binary else self.dim * 4

    def flattened(self) -> dict[str, str]:
        """The resolved parameters as text: what an index file records. `resolve_index` reads it back."""
        flat = {INDEX_TYPE_KEY: str(self.index_type), METRIC_TYPE_KEY: str(self.metric_type)}
        flat |= {name: str(value) for name, value in self.params.items()}
        return flat | ({MMAP_KEY: "true"} if self.memory_mapped else {})


def resolve_index(params: Mapping[str, str], data_type: DataType, dim: int) -> IndexSpec:
    """The index that a client's parameters describe, for a field of this type and dimension.

    Raises `InvalidParameter` naming the parameter, its value and its domain; `NotSupported` for index
    and field types of the reference that are not built here.
    """
    sent = _flatten(params)
    types, metrics = _choices(data_type)
    declared = _index_type(sent.get(INDEX_TYPE_KEY), types, data_type)
    metric = _metric(sent.get(METRIC_TYPE_KEY), metrics, declared)
    if DIM_KEY in sent and integer(DIM_KEY, sent[DIM_KEY], 1, INT32_MAX) != dim:
        raise InvalidDimension(f"dimension mismatch, dimension in schema: {dim}, dimension: {sent[DIM_KEY]}")
    _refuse_unknown(sent, declared)
    built = _built_type(declared, data_type)
    return IndexSpec(
        index_type=built,
        metric_type=metric,
        dim=dim,
        params={
            name: integer(name, sent[name], p.low, p.high) if sent.get(name) is not None else p.default
            for name, p in _BUILD_PARAMS[built].items()
        },
        declared_type=declared,
        memory_mapped=boolean(MMAP_KEY, sent[MMAP_KEY]) if MMAP_KEY in sent else False,
    )


def brute_force(data_type: DataType, dim: int, metric: Metric) -> IndexSpec:
    """The spec of plain rows without an index: growing chunks, small segments."""
    exact = IndexType.BIN_FLAT if data_type is DataType.BINARY_VECTOR else IndexType.FLAT
    return IndexSpec(exact, metric, dim, declared_type=exact)


def _flatten(params: Mapping[str, str]) -> dict[str, object]:
    """One level of keys: those inside the JSON text ``params``, and those beside it."""
    sent: dict[str, object] = {}
    for name, value in params.items():
        if name != PARAMS_KEY:
            sent[name] = value
            continue
        try:
            inner = json.loads(value) if value else {}
        except ValueError as error:
            raise InvalidParameter(f"index parameter 'params' is not JSON: {value!r} ({error})") from None
        if not isinstance(inner, dict):
            raise InvalidParameter(f"index parameter 'params' should be a JSON object, not {value!r}")
        sent |= inner
    return sent


def _choices(data_type: DataType) -> tuple[tuple[IndexType, ...], tuple[Metric, ...]]:
    if data_type is DataType.FLOAT_VECTOR:
        return FLOAT_TYPES, FLOAT_METRICS
    if data_type is DataType.BINARY_VECTOR:
        return BINARY_TYPES, BINARY_METRICS
    raise NotSupported(
        f"create index on {data_type.name} field is not supported: "
        "FLOAT_VECTOR and BINARY_VECTOR fields have vector indexes"
    )


def _index_type(name: object, types: tuple[IndexType, ...], data_type: DataType) -> IndexType:
    if name is None or name == "":
        return IndexType.AUTOINDEX
    if name in types:
        return IndexType(str(name))
    supported = ", ".join(types)
    if name in IndexType.__members__:
        raise InvalidParameter(
            f"data type {data_type.name} can't build with this index {name}: use one of {supported}"
        )
    if str(name).startswith(_KNOWN_ELSEWHERE):
        raise NotSupported(
            f"invalid index type: {name} is not supported for {data_type.name}: use one of {supported}"
        )
    raise InvalidParameter(f"invalid index type: {name}: {data_type.name} fields take one of {supported}")


def _metric(name: object, metrics: tuple[Metric, ...], index_type: IndexType) -> Metric:
    if name is None or name == "":
        return metrics[0] if metrics is BINARY_METRICS else Metric.COSINE
    if name in metrics:
        return Metric(str(name))
    kind = "binary" if metrics is BINARY_METRICS else "float"
    raise InvalidParameter(
        f"{kind} vector index does not support metric type: {name}: invalid parameter"
        f"[expected=valid index params][actual=invalid index params]: "
        f"{index_type} takes one of {', '.join(metrics)}"
    )


def _refuse_unknown(sent: Mapping[str, object], declared: IndexType) -> None:
    known = _BUILD_PARAMS[declared]
    unknown = [name for name in sent if name not in known and name not in COMMON_KEYS]
    if not unknown:
        return
    if declared is IndexType.AUTOINDEX:
        raise InvalidParameter(
            f"only metric type can be passed when use AutoIndex: got {unknown[0]}={sent[unknown[0]]}; "
            "name an index_type to set its parameters"
        )
    takes = ", ".join(known) or "no parameters"
    raise InvalidParameter(
        f"unknown index parameter '{unknown[0]}' ({sent[unknown[0]]}): {declared} takes {takes}"
    )


def _built_type(declared: IndexType, data_type: DataType) -> IndexType:
    if declared is not IndexType.AUTOINDEX:
        return declared
    return IndexType.HNSW if data_type is DataType.FLOAT_VECTOR else IndexType.BIN_FLAT
