"""Search aggregations by JSON: the levels of a body as the message that gRPC clients send, and the buckets of
an answer.

::

    data: [{buckets: [bucket]}]
    bucket: {key: [{fieldName, value}], count, metrics: {name: value}, hits: [row], subGroups: [bucket]}

One entry for each query, in the form of the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elanus.core.buckets import Bucket, Levels
from elanus.core.errors import InvalidParameter
from elanus.core.limits import BUCKET_LEVELS_MAX
from elanus.proxy.api import SearchResult
from elanus.proxy.rest import entity_bodies as bodies
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
