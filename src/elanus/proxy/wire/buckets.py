"""Search aggregations on the wire: the requested levels, and the buckets of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from elanus.core.buckets import (
    BestHits,
    Bucket,
    BucketLevel,
    BucketMetric,
    BucketOrder,
    HitOrder,
    Levels,
    Value,
    check_levels,
)
from elanus.core.errors import InvalidParameter
from elanus.core.geometry import texts_of
from elanus.core.limits import BUCKET_LEVELS_MAX
from elanus.core.moments import TimeFormat
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.grouping import GROUPING_FIELD, GROUPING_FIELDS, GROUPING_SIZE
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, schema_pb2

_Aggregation = common_pb2.SearchAggregationSpec
_DIRECTIONS = {"": True, "desc": True, "asc": False}


def bucket_levels(
    request: milvus_pb2.SearchRequest, params: Mapping[str, str], schema: CollectionSchema, offset: int
) -> Levels:
    """Return the requested levels; none if the search has no aggregation. Raises `InvalidParameter`."""
    if not request.HasField("search_aggregation"):
        return ()
    if params.get(GROUPING_FIELD) or params.get(GROUPING_SIZE):
        raise InvalidParameter("search_aggregation and group_by_field/group_size are mutually exclusive")
    if params.get(GROUPING_FIELDS):
        raise InvalidParameter("group_by_fields and search_aggregation cannot be used simultaneously")
    if offset:
        raise InvalidParameter("offset is not supported with search_aggregation")
    if request.HasField("highlighter"):
        raise InvalidParameter("highlighter and search_aggregation cannot be used simultaneously")
    message: _Aggregation | None = request.search_aggregation
    levels: list[BucketLevel] = []
    while message is not None and len(levels) <= BUCKET_LEVELS_MAX:
        levels.append(_level(message))
        message = message.sub_aggregation if message.HasField("sub_aggregation") else None
    check_levels(tuple(levels), schema)
    return tuple(levels)


def add_buckets(data: schema_pb2.SearchResultData, result: SearchResult, times: TimeFormat) -> None:
    """Replace the hits of an answer by buckets."""
    assert result.buckets is not None
    columns = {
        name: _shown(result.schema.by_name[name], column, times) for name, column in result.fields.items()
    }
    encoder = _Encoder(result, columns)
    for buckets in result.buckets:
        data.agg_topks.append(len(buckets))
        encoder.add(data.agg_buckets, buckets, 0)


class _Encoder:
    def __init__(self, result: SearchResult, columns: Mapping[str, list[object]]) -> None:
        self._schema = result.schema
        self._ids = result.ids.tolist()
        self._scores = result.scores.tolist()
        self._columns = [(result.schema.by_name[name], values) for name, values in columns.items()]
        self._levels = result.levels

    def add(
        self,
        target: RepeatedCompositeFieldContainer[schema_pb2.AggBucket],
        buckets: Sequence[Bucket],
        depth: int,
    ) -> None:
        for bucket in buckets:
            message = target.add(count=bucket.count)
            for name, value in zip(self._levels[depth].keys, bucket.key, strict=True):
                entry = message.key.add(field_id=self._schema.by_name[name].field_id, field_name=name)
                _set_value(entry, value)
            for alias, value in bucket.metrics.items():
                message.metrics[alias].SetInParent()
                _set_value(message.metrics[alias], value)
            for row in bucket.hits:
                self._add_hit(message.hits.add(score=self._scores[row]), row)
            self.add(message.sub_groups, bucket.children, depth + 1)

    def _add_hit(self, hit: schema_pb2.AggHit, row: int) -> None:
        key = self._ids[row]
        if isinstance(key, str):
            hit.str_pk = key
        else:
            hit.int_pk = key
        for field, values in self._columns:
            shown = hit.fields.add(field_id=field.field_id, field_name=field.name)
            value = values[row]
            if isinstance(value, bytes):
                shown.bytes_val = value
            elif isinstance(value, float) and field.data_type is DataType.FLOAT:
                shown.float_val = value
            elif value is None or isinstance(value, int | float | str | bool):
                _set_value(shown, value)


def _set_value(
    target: schema_pb2.BucketKeyEntry | schema_pb2.MetricValue | schema_pb2.AggHitField, value: Value
) -> None:
    """Null leaves all members of the message's ``oneof`` unset."""
    if isinstance(value, bool):
        target.bool_val = value
    elif isinstance(value, int):
        target.int_val = value
    elif isinstance(value, str):
        target.string_val = value
    elif isinstance(value, float):
        assert not isinstance(target, schema_pb2.BucketKeyEntry)
        target.double_val = value


def _shown(field: FieldSchema, column: pa.Array, times: TimeFormat) -> list[object]:
    if field.data_type is DataType.TIMESTAMPTZ:
        column = times.texts(column)
    if field.data_type is DataType.GEOMETRY:
        column = texts_of(column)
    if field.data_type is DataType.JSON:
        column = column.cast(pa.binary())
    values: list[object] = column.to_pylist()
    return values


def _level(message: _Aggregation) -> BucketLevel:
    if message.size < 0:
        raise InvalidParameter("search_aggregation size must be non-negative")
    if message.search_size < 0:
        raise InvalidParameter("search_aggregation search_size must be non-negative")
    size = max(1, message.size)
    candidates = message.search_size or size
    if candidates < size:
        raise InvalidParameter("search_aggregation search_size must be greater than or equal to size")
    return BucketLevel(
        tuple(name.strip() for name in message.fields),
        size,
        candidates,
        tuple(
            BucketMetric(alias, metric.op.strip().lower(), metric.field_name.strip())
            for alias, metric in sorted(message.metrics.items())
        ),
        tuple(BucketOrder(*_order(by.key, by.direction), by.null_first) for by in message.order),
        _best(message.top_hits) if message.HasField("top_hits") else None,
    )


def _order(key: str, direction: str) -> tuple[str, bool]:
    name = key.strip()
    if not name:
        raise InvalidParameter("order key is empty")
    return name, _descending(direction, f'invalid order direction for key "{name}"')


def _best(message: common_pb2.TopHitsSpec) -> BestHits:
    if message.size < 0:
        raise InvalidParameter("top_hits size must be non-negative")
    order = []
    for by in message.sort:
        name = by.field_name.strip()
        descending = _descending(by.direction, f'invalid top_hits.sort direction for "{name}"')
        order.append(HitOrder(name, descending, by.null_first))
    return BestHits(max(1, message.size), tuple(order))


def _descending(direction: str, what: str) -> bool:
    found = _DIRECTIONS.get(direction.strip().lower())
    if found is None:
        raise InvalidParameter(f"{what}: direction must be asc or desc, got {direction}")
    return found
