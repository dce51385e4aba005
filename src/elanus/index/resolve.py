"""Resolve a client's index parameters into an `IndexSpec`, and check every known value's domain.

A client sends ``index_type``, ``metric_type`` and the rest either as JSON text under ``params`` or as
flattened keys next to them; both mean the same. A value of a known key outside its domain is an
error. Unknown keys are kept and have no effect, as in the reference (`ignored_params` names them); AUTOINDEX
takes none.

Kinds, their parameters and the ranges and defaults of these are on the page ``docs/index-types.md``.

`elanus.index.scalar` lists the kinds for scalar fields.

``mmap.enabled`` (all types, default false, for scalars true) maps the index file instead of reading it into
memory. ``dim`` may be repeated and must then match the field. The default metric is COSINE for floats,
HAMMING for bits and IP for sparse vectors; the default type is AUTOINDEX. A client that names a type names
the metric, too (`completed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elanus.core.errors import InvalidDimension, InvalidParameter, NotSupported
from elanus.core.index_properties import MMAP_KEY, WARMUP_KEY
from elanus.core.json_keys import plainly_spelled
from elanus.core.json_texts import json_value
from elanus.core.metrics import LIST_METRICS, Metric
from elanus.core.nullable import NullableVectors
from elanus.core.schema import FieldSchema
from elanus.core.structs import struct_and_name
from elanus.core.types import KINDS as DATA_TYPES
from elanus.core.types import DataType, Space, VectorForm
from elanus.core.vector_lists import VectorLists
from elanus.index.base import VectorIndex
from elanus.index.kinds import KINDS, automatic_kind, exact_kind, kinds_on
from elanus.index.lists import list_index, of_elements
from elanus.index.nullable import NullableIndex
from elanus.index.recipes import FAISS, RECIPE_KEY, RECIPE_TYPES, read_recipe
from elanus.index.scalar.resolve import JSON_PARAMS, JSON_PATH, check_sorted_cast, resolve_scalar
from elanus.index.spec import (
    AUTOINDEX,
    COMMON_KEYS,
    DIM_KEY,
    INDEX_TYPE_KEY,
    METRIC_TYPE_KEY,
    PARAMS_KEY,
    IndexKind,
    IndexSpec,
)
from elanus.index.values import INT32_MAX, integer, mapped

HYBRID, DISKANN = "HYBRID", "DISKANN"
_KNOWN_ELSEWHERE = ("EMB_LIST", "AISAQ", "DISKANN_", "IVF_FLAT_CC", "IVF_SQ_CC")
"""Name prefixes of the reference's other vector index types: known, but not supported here."""


def resolve_field_index(params: Mapping[str, str], field: FieldSchema) -> IndexSpec:
    """Return the index that a client's parameters describe, for a field. Raises as `resolve_index` does.

    The index of a field with lists of vectors is one of the vectors' type; its metric may be one of lists.
    """
    sent = _flatten(params)
    if not field.has_vector_lists:
        in_struct = field.data_type is DataType.ARRAY and struct_and_name(field.name) is not None
        sorts_keys = in_struct or field.data_type is DataType.JSON
        if not sorts_keys or sent.get(INDEX_TYPE_KEY) != "STL_SORT":
            return resolve_index(params, field.data_type, field.dim)
        # The structure is that of INVERTED, whose keys are sorted. Other arrays may not ask for it.
        spec = resolve_index({**params, INDEX_TYPE_KEY: "INVERTED"}, field.data_type, field.dim)
        if field.data_type is DataType.JSON:
            check_sorted_cast(spec)
        return replace(spec, declared_type="STL_SORT")
    form, name = field.vector, sent.get(METRIC_TYPE_KEY)
    offered = [m for m in LIST_METRICS if m.of_vectors in form.metrics]
    default = next(m for m in offered if m.of_vectors is form.default_metric and m is not Metric.MAX_SIM)
    metric = Metric(str(name)) if name in offered else default if name in (None, "") else None
    vectors = {key: value for key, value in params.items() if key != METRIC_TYPE_KEY}
    if metric is None and name not in (Metric.L2, Metric.IP, Metric.COSINE, Metric.HAMMING, Metric.JACCARD):
        raise InvalidParameter(
            f"{form.space.value} vector index does not support metric type: {name}: invalid parameter"
            f"[expected=valid index params][actual=invalid index params]: field {field.name} takes one of "
            f"{', '.join(offered)}, or a metric of single vectors"
        )
    vectors[METRIC_TYPE_KEY] = str(name) if metric is None else str(metric.of_vectors)
    try:
        spec = resolve_index(vectors, field.element_type, field.dim)
    except InvalidParameter as error:
        shown = DATA_TYPES[field.element_type].name
        raise InvalidParameter(
            error.message.replace(f"data type {shown} ", "data type ArrayOfVector ")
        ) from None
    return spec if metric is None else replace(spec, metric=metric)


def located(params: Mapping[str, str], field: FieldSchema, named: str) -> Mapping[str, str]:
    """Return an index's parameters with the path of the values in a JSON field.

    Without one it is the name in the request: ``named`` is the field's, or a key of the dynamic field. A path
    with escapes is spelled as indexes read it.
    """
    if field.data_type is not DataType.JSON:
        return params
    sent = _flatten(params)
    if JSON_PATH not in sent:
        return {**params, JSON_PATH: named}
    path = str(sent[JSON_PATH]).strip()
    plain = plainly_spelled(path)
    if plain == path:
        return params
    # at the end: the last one is the one that counts
    return {**{name: value for name, value in params.items() if name != JSON_PATH}, JSON_PATH: plain}


def completed(params: Mapping[str, str], field: FieldSchema) -> Mapping[str, str]:
    """Return an index's parameters as its definition shows them: that of a vector has a type and a metric.

    Without a type it is AUTOINDEX, which has a default metric. Raises `InvalidParameter` if a type is named
    without a metric, as the reference does, and otherwise what `resolve_field_index` raises.
    """
    if not field.is_searched:
        return params
    sent = _flatten(params)
    index_type, metric = sent.get(INDEX_TYPE_KEY) or AUTOINDEX, sent.get(METRIC_TYPE_KEY)
    if not metric and index_type != AUTOINDEX:
        raise InvalidParameter(
            "metric type not set for vector index: invalid parameter[expected=valid index params]"
            f"[actual=invalid index params]: send {METRIC_TYPE_KEY} with the index on field {field.name}"
        )
    shown = {
        INDEX_TYPE_KEY: str(index_type),
        METRIC_TYPE_KEY: str(metric or resolve_field_index(params, field).metric_type),
    }
    return {**params, **{key: value for key, value in shown.items() if not sent.get(key)}}


def resolve_index(params: Mapping[str, str], data_type: DataType, dim: int) -> IndexSpec:
    """Return the index that a client's parameters describe, for a field of this type and dimension.

    Raises `InvalidParameter` naming the parameter, its value and its domain; `NotSupported` for index
    and field types of the reference that are not supported here.
    """
    sent = _flatten(params)
    form = DATA_TYPES[data_type].vector
    if form is None:
        return resolve_scalar(sent, data_type, kinds_on(data_type), KINDS)
    declared = _declared(sent.get(INDEX_TYPE_KEY), data_type)
    metric = _metric(sent.get(METRIC_TYPE_KEY), data_type, form, declared)
    if declared == FAISS:
        _check_unknown(sent, declared, form)
        name, built = read_recipe(sent, data_type)
        kind: IndexKind | None = KINDS[name]
        sent = {name: value for name, value in sent.items() if name in COMMON_KEYS} | built
    else:
        kind = automatic_kind(data_type, metric) if declared == AUTOINDEX else KINDS[declared]
        _check_unknown(sent, declared, form)
    assert kind is not None  # otherwise AUTOINDEX is not offered for the type
    _check_metric(kind, metric)
    if DIM_KEY in sent and integer(DIM_KEY, sent[DIM_KEY], 1, INT32_MAX) != dim:
        raise InvalidDimension(f"dimension mismatch, dimension in schema: {dim}, dimension: {sent[DIM_KEY]}")
    given = {name: value for name, value in sent.items() if value is not None}
    resolved = {name: param.resolve(name, given, 0) for name, param in kind.build_params.items()}
    if kind.check is not None:
        kind.check(resolved, dim)
    return IndexSpec(
        kind=kind,
        data_type=data_type,
        metric=metric,
        dim=dim,
        params=resolved,
        declared_type=declared,
        memory_mapped=mapped(sent, default=False),
    )


def check_choice(spec: IndexSpec) -> None:
    """Raise `InvalidParameter` if clients cannot choose this index.

    That is a kind which is withheld for fields of this type, a kind that only AUTOINDEX chooses, or a mapped
    file of a kind whose file is not mapped.
    """
    if spec.data_type in spec.kind.withheld_from:
        raise _not_on(spec.data_type, spec.declared_type, _offered(spec.data_type))
    if spec.declared_type == HYBRID:
        raise InvalidParameter(f"{_unknown_type(HYBRID)}: name {AUTOINDEX}, which chooses it")
    if spec.memory_mapped:
        check_mappable([spec.index_type])


def check_mappable(index_types: Iterable[str | None]) -> None:
    """Raises `InvalidParameter` if the file of an index of these types is not mapped."""
    if DISKANN in index_types:
        raise InvalidParameter(f"invalid mmap type params: index type {DISKANN} does not support mmap")


def _offered(data_type: DataType) -> Sequence[str]:
    names = [kind.name for kind in kinds_on(data_type) if data_type not in kind.withheld_from]
    return names + ([AUTOINDEX] if automatic_kind(data_type) else [])


def _not_on(data_type: DataType, name: str, offered: Sequence[str]) -> InvalidParameter:
    return InvalidParameter(
        f"data type {DATA_TYPES[data_type].name} can't build with this index {name}: invalid parameter"
        f"[expected=valid index params][actual=invalid index params]: use one of {', '.join(offered)}"
    )


def mapped_params(built: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a built index with ``mmap.enabled`` as the index is declared now."""
    is_vector = METRIC_TYPE_KEY in built
    mapped = str(_flatten(declared).get(MMAP_KEY, not is_vector)).lower()
    params = {name: value for name, value in built.items() if name != MMAP_KEY}
    return params if is_vector and mapped == "false" else params | {MMAP_KEY: mapped}


def over_rows(
    data_type: DataType,
    dim: int,
    metric: Metric,
    vectors: Any,
    params: Mapping[str, Any] | None = None,
) -> VectorIndex:
    """Serve rows without an index, exactly.

    ``vectors`` (also `NullableVectors`, `VectorLists`) are held in place.
    ``params``: those of the field's index; the metric MHJACCARD depends on one.
    """
    spec = brute_force(data_type, dim, metric, params)
    assert spec.kind.over_rows is not None  # it is an exact kind
    if isinstance(vectors, VectorLists):
        some = len(vectors.vectors) > 0
        elements = spec.kind.over_rows(of_elements(spec), vectors.vectors) if some else None
        return list_index(spec, elements, vectors.offsets, is_view=True)
    if isinstance(vectors, NullableVectors):
        some = len(vectors.vectors) > 0
        exact = spec.kind.over_rows(spec, vectors.vectors) if some else None
        return NullableIndex(spec, exact, vectors.valid)
    return spec.kind.over_rows(spec, vectors)


def brute_force(
    data_type: DataType, dim: int, metric: Metric, params: Mapping[str, Any] | None = None
) -> IndexSpec:
    """Return the spec of plain rows without an index: growing chunks, small segments."""
    exact = exact_kind(data_type)
    return IndexSpec(exact, data_type, metric, dim, params or {}, declared_type=exact.name)


def _flatten(params: Mapping[str, str]) -> dict[str, object]:
    """Merge the keys inside the JSON text ``params`` and those next to it into one level."""
    sent: dict[str, object] = {}
    for name, value in params.items():
        if name != PARAMS_KEY:
            sent[name] = value
            continue
        try:
            inner = json_value(value) if value else {}
        except ValueError as error:
            raise InvalidParameter(
                f"index parameter 'params' is not JSON: {value[:100]!r} ({error})"
            ) from None
        if not isinstance(inner, dict):
            raise InvalidParameter(f"index parameter 'params' should be a JSON object, not {value!r}")
        sent |= inner
    return sent


def _declared(name: object, data_type: DataType) -> str:
    """Return the name of the kind, or AUTOINDEX or FAISS."""
    kinds = kinds_on(data_type)
    names = [kind.name for kind in kinds] + ([AUTOINDEX] if automatic_kind(data_type) else [])
    if (name is None or name == "") and AUTOINDEX in names:
        return AUTOINDEX
    if name in names or (name == FAISS and data_type in RECIPE_TYPES):
        return str(name)
    offered = _offered(data_type)
    if name == AUTOINDEX or (name in KINDS and name != HYBRID):
        raise _not_on(data_type, str(name), offered)
    unknown = _unknown_type(name)
    if str(name).startswith("GPU_"):
        raise NotSupported(
            f"{unknown}: it needs a GPU, which is not supported: use one of {', '.join(offered)}"
        )
    if str(name).startswith(_KNOWN_ELSEWHERE):
        raise NotSupported(f"{unknown}: {name} is not supported: use one of {', '.join(offered)}")
    raise InvalidParameter(f"{unknown}: {data_type.name} fields take one of {', '.join(offered)}")


def _unknown_type(name: object) -> str:
    return f"invalid parameter[expected=valid index][actual=invalid index type: {name}]"


def _metric(name: object, data_type: DataType, form: VectorForm, declared: str) -> Metric:
    if name is None or name == "":
        return form.default_metric
    if name in form.metrics:
        return Metric(str(name))
    if form.space is Space.SPARSE:
        raise _no_sparse_metric(name)
    called = "int" if data_type is DataType.INT8_VECTOR else form.space.value
    raise InvalidParameter(
        f"{called} vector index does not support metric type: {name}: invalid parameter"
        f"[expected=valid index params][actual=invalid index params]: "
        f"{declared} takes one of {', '.join(form.metrics)}"
    )


def _check_metric(kind: IndexKind, metric: Metric | None) -> None:
    if metric is not None and kind.metrics is not None and metric not in kind.metrics:
        raise InvalidParameter(
            f"metric type {metric} not found or not supported, supported: [{' '.join(kind.metrics)}]: "
            f"{kind.name} does not support it"
        )


def _no_sparse_metric(name: object) -> InvalidParameter:
    return InvalidParameter(
        "only IP&BM25 is the supported metric type for sparse index: invalid parameter"
        f"[expected=valid index params][actual=invalid index params]: got {name}"
    )


def ignored_params(params: Mapping[str, str], spec: IndexSpec) -> tuple[str, ...]:
    """Return the names in a client's parameters that have no effect on the index they describe."""
    return _unknown(_flatten(params), spec.declared_type, DATA_TYPES[spec.data_type].vector)


def _unknown(sent: Mapping[str, object], declared: str, form: VectorForm | None) -> tuple[str, ...]:
    known = KINDS[declared].build_params if declared in KINDS else {RECIPE_KEY} if declared == FAISS else ()
    common = COMMON_KEYS if form is not None else {INDEX_TYPE_KEY, MMAP_KEY, WARMUP_KEY, *JSON_PARAMS}
    return tuple(name for name in sent if name not in known and name not in common)


def _check_unknown(sent: Mapping[str, object], declared: str, form: VectorForm | None) -> None:
    unknown = _unknown(sent, declared, form)
    if unknown and declared == AUTOINDEX:
        raise InvalidParameter(
            f"only metric type can be passed when use AutoIndex: got {unknown[0]}={sent[unknown[0]]}; "
            "name an index_type to set its parameters"
        )
    if unknown and declared == FAISS:
        raise InvalidParameter(
            f"unknown parameter {unknown[0]} of the index type {FAISS}: send {RECIPE_KEY} alone"
        )
