"""Resolve a client's index parameters into an `IndexSpec`, and check every known value's domain.

A client sends ``index_type``, ``metric_type`` and the rest either as JSON text under ``params`` or as
flattened keys next to them; both mean the same. A value of a known key outside its domain is an
error. Unknown keys are kept and have no effect, as in the reference (`ignored_params` names them); AUTOINDEX
takes none.

================  =============  ===============================================================
kind              vectors of     parameters, range (default)
================  =============  ===============================================================
FLAT              floats         none; exact
IVF_FLAT          floats         ``nlist`` 1–65536 (128)
IVF_SQ8           floats         ``nlist`` 1–65536 (128); one byte per component
HNSW              floats         ``M`` 2–2048 (16), ``efConstruction`` 1–2147483647 (200)
AUTOINDEX         any            none; HNSW for floats, BIN_FLAT for bits, SPARSE_INVERTED_INDEX
BIN_FLAT          bits           none; exact
BIN_IVF_FLAT      bits           ``nlist`` 1–65536 (128)
SPARSE_INVERTED_  sparse         ``drop_ratio_build`` 0–1 (0), ``inverted_index_algo``; exact unless
INDEX                            values are dropped
SPARSE_WAND       sparse         the same index
================  =============  ===============================================================

``mmap.enabled`` (all types, default false) maps the index file instead of reading it into memory.
``dim`` may be repeated and must then match the field. The default metric is COSINE for floats, HAMMING for
bits and IP for sparse vectors; the default type is AUTOINDEX.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from elanus.core.errors import InvalidDimension, InvalidParameter, NotSupported
from elanus.core.metrics import Metric
from elanus.core.types import KINDS as DATA_TYPES
from elanus.core.types import DataType, Space, VectorForm
from elanus.index.base import VectorIndex
from elanus.index.kinds import KINDS, automatic_kind, exact_kind, kinds_on
from elanus.index.spec import (
    AUTOINDEX,
    COMMON_KEYS,
    DIM_KEY,
    INDEX_TYPE_KEY,
    METRIC_TYPE_KEY,
    MMAP_KEY,
    PARAMS_KEY,
    IndexSpec,
)
from elanus.index.values import INT32_MAX, boolean, integer

_KNOWN_ELSEWHERE = ("IVF_", "HNSW_", "GPU_", "SCANN", "DISKANN", "MINHASH", "EMB_LIST")
"""Name prefixes of the reference's other vector index types: known, but not supported here."""


def resolve_index(params: Mapping[str, str], data_type: DataType, dim: int) -> IndexSpec:
    """Return the index that a client's parameters describe, for a field of this type and dimension.

    Raises `InvalidParameter` naming the parameter, its value and its domain; `NotSupported` for index
    and field types of the reference that are not supported here.
    """
    sent = _flatten(params)
    declared = _declared(sent.get(INDEX_TYPE_KEY), data_type)
    kind = automatic_kind(data_type) if declared == AUTOINDEX else KINDS[declared]
    assert kind is not None  # otherwise AUTOINDEX is not offered for the type
    form = DATA_TYPES[data_type].vector
    metric = None if form is None else _metric(sent.get(METRIC_TYPE_KEY), form, declared)
    if DIM_KEY in sent and integer(DIM_KEY, sent[DIM_KEY], 1, INT32_MAX) != dim:
        raise InvalidDimension(f"dimension mismatch, dimension in schema: {dim}, dimension: {sent[DIM_KEY]}")
    _check_unknown(sent, declared, form)
    return IndexSpec(
        kind=kind,
        data_type=data_type,
        metric=metric,
        dim=dim,
        params={
            name: p.resolve(name, sent, 0) if sent.get(name) is not None else p.default
            for name, p in kind.build_params.items()
        },
        declared_type=declared,
        memory_mapped=boolean(MMAP_KEY, sent[MMAP_KEY]) if MMAP_KEY in sent else False,
    )


def over_rows(data_type: DataType, dim: int, metric: Metric, vectors: Any) -> VectorIndex:
    """Serve rows without an index, exactly; ``vectors`` are held in place."""
    spec = brute_force(data_type, dim, metric)
    assert spec.kind.over_rows is not None  # it is an exact kind
    return spec.kind.over_rows(spec, vectors)


def brute_force(data_type: DataType, dim: int, metric: Metric) -> IndexSpec:
    """The spec of plain rows without an index: growing chunks, small segments."""
    exact = exact_kind(data_type)
    return IndexSpec(exact, data_type, metric, dim, declared_type=exact.name)


def _flatten(params: Mapping[str, str]) -> dict[str, object]:
    """Merge the keys inside the JSON text ``params`` and those next to it into one level."""
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


def _declared(name: object, data_type: DataType) -> str:
    """The name of the kind, or AUTOINDEX."""
    kinds = kinds_on(data_type)
    if not kinds:
        raise NotSupported(f"create index on {data_type.name} field is not supported: {_indexed_types()}")
    names = [kind.name for kind in kinds] + ([AUTOINDEX] if automatic_kind(data_type) else [])
    if (name is None or name == "") and AUTOINDEX in names:
        return AUTOINDEX
    if name in names:
        return str(name)
    supported = ", ".join(names)
    if name == AUTOINDEX or name in KINDS:
        raise InvalidParameter(
            f"data type {data_type.name} can't build with this index {name}: use one of {supported}"
        )
    if str(name).startswith(_KNOWN_ELSEWHERE):
        raise NotSupported(
            f"invalid index type: {name} is not supported for {data_type.name}: use one of {supported}"
        )
    raise InvalidParameter(f"invalid index type: {name}: {data_type.name} fields take one of {supported}")


def _indexed_types() -> str:
    """The field types that some kind supports, in words."""
    indexed = [kind for kind in DATA_TYPES.values() if kinds_on(kind.data_type)]
    vectors = _listed([kind.data_type.name for kind in indexed if kind.vector is not None])
    scalars = _listed([kind.data_type.name for kind in indexed if kind.vector is None])
    return f"{vectors} fields have vector indexes" + (f", {scalars} fields scalar ones" if scalars else "")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _metric(name: object, form: VectorForm, declared: str) -> Metric:
    if name is None or name == "":
        return form.default_metric
    if name in form.metrics:
        return Metric(str(name))
    if form.space is Space.SPARSE:
        raise _no_sparse_metric(name)
    raise InvalidParameter(
        f"{form.space.value} vector index does not support metric type: {name}: invalid parameter"
        f"[expected=valid index params][actual=invalid index params]: "
        f"{declared} takes one of {', '.join(form.metrics)}"
    )


def _no_sparse_metric(name: object) -> InvalidParameter:
    return InvalidParameter(
        "only IP&BM25 is the supported metric type for sparse index: invalid parameter"
        f"[expected=valid index params][actual=invalid index params]: got {name}"
    )


def ignored_params(params: Mapping[str, str], spec: IndexSpec) -> tuple[str, ...]:
    """The names in a client's parameters that have no effect on the index they describe."""
    return _unknown(_flatten(params), spec.declared_type, DATA_TYPES[spec.data_type].vector)


def _unknown(sent: Mapping[str, object], declared: str, form: VectorForm | None) -> tuple[str, ...]:
    known = KINDS[declared].build_params if declared != AUTOINDEX else {}
    common = COMMON_KEYS if form is not None else COMMON_KEYS - {METRIC_TYPE_KEY, DIM_KEY}
    return tuple(name for name in sent if name not in known and name not in common)


def _check_unknown(sent: Mapping[str, object], declared: str, form: VectorForm | None) -> None:
    unknown = _unknown(sent, declared, form)
    if unknown and declared == AUTOINDEX:
        raise InvalidParameter(
            f"only metric type can be passed when use AutoIndex: got {unknown[0]}={sent[unknown[0]]}; "
            "name an index_type to set its parameters"
        )
