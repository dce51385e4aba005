"""Search aggregations in JSON: the request, and the buckets of the answer, in the reference's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elanus.core.buckets import Bucket
from elanus.core.errors import InvalidParameter
from elanus.core.limits import BUCKET_LEVELS_MAX
from elanus.proxy.api.search import SearchResult
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.rest.values import Integers, Row, rows_of
from elanus.proxy.wire.stubs import common_pb2

_HERE = "searchAggregation"


def aggregation_message(body: bodies.Search) -> Any:
    """Return a ``SearchAggregationSpec``. Raises `InvalidParameter`, with the reference's texts."""
    assert body.search_aggregation is not None
    grouped = "cannot be used simultaneously"
    if body.ids:
        raise InvalidParameter(f"ids and {_HERE} {grouped}")
    if body.offset > 0:
        raise InvalidParameter(f"offset is not supported with {_HERE}")
    if body.grouping_field or body.group_size or body.strict_group_size:
        raise InvalidParameter(f"groupingField/groupSize/strictGroupSize and {_HERE} {grouped}")
    inner = body.search_params.get("params")
    given = {*body.search_params, *(inner if isinstance(inner, dict) else ())}
    if "offset" in given:
        raise InvalidParameter(f"searchParams.offset is not supported with {_HERE}")
    for name in ("group_by_field", "group_by_fields"):
        if name in given:
            raise InvalidParameter(f"searchParams.{name} and {_HERE} {grouped}")
    return _level(body.search_aggregation)


def _level(body: bodies.Aggregation, above: int = 0) -> Any:
    if above >= BUCKET_LEVELS_MAX:
        raise InvalidParameter(f"search_aggregation nesting exceeds max {BUCKET_LEVELS_MAX} levels")
    fields = [name.strip() for name in body.fields]
    if not fields:
        raise InvalidParameter(f"{_HERE}.fields must be non-empty")
    if "" in fields:
        raise InvalidParameter(f"{_HERE}.fields must contain non-empty field names")
    if body.size <= 0:
        raise InvalidParameter(f"{_HERE}.size must be positive")
    if body.search_size < 0:
        raise InvalidParameter(f"{_HERE}.searchSize must be non-negative")
    if 0 < body.search_size < body.size:
        raise InvalidParameter(f"{_HERE}.searchSize must be greater than or equal to size")
    message = common_pb2.SearchAggregationSpec(fields=fields, size=body.size, search_size=body.search_size)
    for alias, metric in body.metrics.items():
        name = _given(alias, "metrics alias")
        message.metrics[name].op = _given(metric.op, f"metrics.{name}.op")
        message.metrics[name].field_name = _given(metric.field_name, f"metrics.{name}.fieldName")
    for order in body.order:
        message.order.add(
            key=_given(order.key, "order key"), direction=_given(order.direction, "order direction")
        )
    if body.top_hits is not None:
        _add_best(message.top_hits, body.top_hits)
    if body.sub_aggregation is not None:
        message.sub_aggregation.CopyFrom(_level(body.sub_aggregation, above + 1))
    return message


def _add_best(message: Any, body: bodies.TopHits) -> None:
    if body.size <= 0:
        raise InvalidParameter(f"{_HERE}.topHits.size must be positive")
    message.size = body.size
    for order in body.sort:
        message.sort.add(
            field_name=_given(order.field_name, "topHits.sort fieldName"),
            direction=_given(order.direction, "topHits.sort direction"),
        )


def _given(text: str, what: str) -> str:
    if not text.strip():
        raise InvalidParameter(f"{_HERE}.{what} must be non-empty")
    return text.strip()


def bucket_rows(result: SearchResult, integers: Integers) -> list[Row]:
    """Return an object for each query, with its buckets. A bucket shows its hits as rows."""
    assert result.buckets is not None
    ids = result.ids.tolist()
    rows = rows_of(result.fields, result.schema, len(ids), result.dynamic_fields, integers)
    key = result.schema.primary_field.name
    for row, value, score in zip(rows, ids, result.scores, strict=True):
        row[key] = _shown(value, integers)
        row["distance"] = score
    return [{"buckets": _buckets(result, buckets, 0, rows, integers)} for buckets in result.buckets]


def _buckets(
    result: SearchResult, buckets: Sequence[Bucket], depth: int, rows: Sequence[Row], integers: Integers
) -> list[Row]:
    return [
        {
            "key": [
                {
                    "fieldName": name,
                    "fieldId": _shown(result.schema.by_name[name].field_id, integers),
                    "value": _shown(value, integers),
                }
                for name, value in zip(result.levels[depth].keys, bucket.key, strict=True)
            ],
            "count": _shown(bucket.count, integers),
            "metrics": {alias: _shown(value, integers) for alias, value in bucket.metrics.items()},
            "hits": [rows[place] for place in bucket.hits],
            "subGroups": _buckets(result, bucket.children, depth + 1, rows, integers),
        }
        for bucket in buckets
    ]


def _shown(value: object, integers: Integers) -> object:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return integers.listed((value,))[0] if is_integer else value  # type: ignore[arg-type]
