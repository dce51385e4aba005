"""Memory, disk and build time of a collection that does not exist yet: an index over each of its segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elanus.core.errors import InvalidParameter
from elanus.core.estimate import SYSTEM_ROW_BYTES, Estimate, SegmentPlan, total
from elanus.core.types import KINDS, Space
from elanus.index.build_work import build_seconds
from elanus.index.resolve import resolve_index
from elanus.index.sizes import index_size, sparse_bytes
from elanus.index.spec import IndexSpec

SEGMENT_BYTES = 384 << 20
"""At which a segment is sealed by default."""
INDEX_ROWS_MIN = 1024
"""Segments of fewer rows get no index by default."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``rows``: of the collection; ``other_row_bytes``: of a row's other fields, the primary key included;
    ``values_per_row``: those of a sparse vector that are not zero; ``segment_bytes``: at which a segment is
    sealed; ``index_rows_min``: smaller segments get no index."""

    rows: int
    segment_bytes: int
    other_row_bytes: int = 8
    values_per_row: float = 0.0
    replicas: int = 1
    index_rows_min: int = 0


def planned_index(
    index_type: str, type_name: str, dim: int, metric: str, params: Mapping[str, str]
) -> IndexSpec:
    """Return the index of a plan.

    ``type_name``: of the field, such as ``FLOAT_VECTOR`` or ``FloatVector``; ``metric``: "" for the type's
    own. Raises `InvalidParameter`.
    """
    vectors = {kind.data_type.name: kind for kind in KINDS.values() if kind.vector is not None}
    by_letters = {name.replace("_", ""): kind for name, kind in vectors.items()}
    kind = by_letters.get(type_name.upper().replace("_", ""))
    if kind is None or kind.vector is None:
        raise InvalidParameter(f"the type {type_name} is not one of vectors: use one of {', '.join(vectors)}")
    if kind.vector.space is Space.SPARSE:
        dim = 0
    elif dim < 1:
        raise InvalidParameter(f"dim is {dim}: say the dimension of the vectors")
    sent = {"index_type": index_type.upper(), **params}
    if metric:
        sent["metric_type"] = metric.upper()
    return resolve_index(sent, kind.data_type, dim)


def estimate(spec: IndexSpec, plan: Plan) -> Estimate:
    """Return what a collection with this index takes. Raises `InvalidParameter`."""
    for name in ("rows", "segment_bytes", "replicas"):
        if getattr(plan, name) < 1:
            raise InvalidParameter(f"{name} is {getattr(plan, name)}: it must be at least 1")
    vector_bytes = vector_row_bytes(spec, plan.values_per_row)
    row_bytes = vector_bytes + plan.other_row_bytes + SYSTEM_ROW_BYTES
    segment_rows = min(plan.rows, max(1, plan.segment_bytes // row_bytes))
    count, rest = divmod(plan.rows, segment_rows)
    last = _segment(spec, plan, rest, vector_bytes) if rest else None
    return total(_segment(spec, plan, segment_rows, vector_bytes), count, last, plan.replicas)


def vector_row_bytes(spec: IndexSpec, values_per_row: float) -> int:
    """Return the bytes of one vector as it is stored.

    Raises `InvalidParameter` if it is sparse and its values are not known.
    """
    if spec.form.space is Space.SPARSE:
        return round(sparse_bytes(values_per_row))
    return spec.form.row_bytes(spec.dim)


def _segment(spec: IndexSpec, plan: Plan, rows: int, vector_bytes: int) -> SegmentPlan:
    if rows < plan.index_rows_min:
        return SegmentPlan(rows, vector_bytes, plan.other_row_bytes, rows * vector_bytes, 0, 0)
    size = index_size(spec, rows, plan.values_per_row)
    return SegmentPlan(
        rows,
        vector_bytes,
        plan.other_row_bytes,
        size.memory_bytes,
        size.file_bytes,
        size.disk_bytes,
        build_seconds(spec, rows, plan.values_per_row),
    )
