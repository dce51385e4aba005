<<<<<<< HEAD
"""Search aggregations in JSON: the request, and the buckets of the answer, in the reference's form."""
=======
"""Search aggregations by JSON: the levels of a body as the message that gRPC clients send, and the buckets of
an answer.

::

    data: [{buckets: [bucket]}]
    bucket: {key: [{fieldName, value}], count, metrics: {name: value}, hits: [row], subGroups: [bucket]}

One entry for each query, in the form of the reference.
"""
>>>>>>> door

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

<<<<<<< HEAD
from elanus.core.buckets import Bucket
=======
from elanus.core.buckets import Bucket, Levels
>>>>>>> door
from elanus.core.errors import InvalidParameter
from elanus.core.limits import BUCKET_LEVELS_MAX
from elanus.proxy.api import SearchResult
from elanus.proxy.rest import entity_bodies as bodies
<<<<<<< HEAD
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
=======
from elanus.proxy.rest.values import Integers, Row
from elanus.proxy.wire.stubs import common_pb2


def aggregation_message(body: bodies.Search) -> Any:
    """Return the ``SearchAggregationSpec`` of a search that has one. Raises `InvalidParameter`."""
    if body.order_by_fields:
        raise InvalidParameter("orderByFields and searchAggregation cannot be used simultaneously")
    if body.grouping_field or body.group_size or body.strict_group_size:
        raise InvalidParameter(
            "groupingField/groupSize/strictGroupSize and searchAggregation cannot be used simultaneously"
        )
    levels: list[bodies.Aggregation] = []
    level = body.search_aggregation
    while level is not None and len(levels) <= BUCKET_LEVELS_MAX:  # one more is refused with the others' text
        levels.append(level)
        level = level.sub_aggregation
    message = None
    for level in reversed(levels):
        message = _message(level, message)
    return message


def _message(level: bodies.Aggregation, below: Any) -> Any:
    message = common_pb2.SearchAggregationSpec(
        fields=level.fields,
        size=level.size,
        search_size=level.search_size,
        metrics={
            name: common_pb2.MetricAggSpec(op=metric.op, field_name=metric.field_name)
            for name, metric in level.metrics.items()
        },
        order=[common_pb2.OrderSpec(key=by.key, direction=by.direction) for by in level.order],
    )
    if level.top_hits is not None:
        sort = [
            common_pb2.SortSpec(field_name=by.field_name, direction=by.direction, null_first=by.null_first)
            for by in level.top_hits.sort
        ]
        message.top_hits.CopyFrom(common_pb2.TopHitsSpec(size=level.top_hits.size, sort=sort))
    if below is not None:
        message.sub_aggregation.CopyFrom(below)
    return message


def buckets_shown(
    buckets: Sequence[Sequence[Bucket]], result: SearchResult, rows: Sequence[Row], integers: Integers
) -> list[Row]:
    """Return the data of an answer. ``rows``: those of all hits."""
    return [{"buckets": _shown(found, result.levels, rows, integers)} for found in buckets]


def _shown(buckets: Sequence[Bucket], levels: Levels, rows: Sequence[Row], integers: Integers) -> list[Row]:
    return [
        {
            "key": [
                {"fieldName": name, "value": integers.applied(value)}
                for name, value in zip(levels[0].keys, bucket.key, strict=True)
            ],
            "count": bucket.count,
            "metrics": integers.applied(dict(bucket.metrics)),
            "hits": [rows[at] for at in bucket.hits],
            "subGroups": _shown(bucket.children, levels[1:], rows, integers),
        }
        for bucket in buckets
    ]
>>>>>>> door
