"""Search aggregations on the wire: as the newest client sends them, and as it reads the buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from wire_messages import field, resolved, schema, search_request

from elanus.core.buckets import BestHits, Bucket, BucketLevel, BucketMetric, BucketOrder, HitOrder
from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.results import encode_search
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

BOOKS = schema(
    field("vector", DataType.FLOAT_VECTOR, dim=4),
    field("kind", DataType.INT64),
    field("brand", DataType.VARCHAR, max_length=9, nullable=True),
    field("price", DataType.FLOAT),
    field("doc", DataType.JSON),
)


def spec(**more: Any) -> Message:
    return common_pb2.SearchAggregationSpec(**{"fields": ["brand"], "size": 2, **more})


def decode(aggregation: Message, params: dict[str, object] | None = None, **more: Any) -> Any:
    request = search_request(params=params, search_aggregation=aggregation, **more)
    return decode_search(request, resolved(BOOKS), TemplateCache())


def test_all_parts_of_a_request_are_read() -> None:
    search = decode(
        spec(
            search_size=5,
            metrics={"mean": common_pb2.MetricAggSpec(op=" AVG", field_name="price ")},
            order=[
                common_pb2.OrderSpec(key="mean", direction="asc"),
                common_pb2.OrderSpec(key="_key", null_first=True),
            ],
            sub_aggregation=spec(
                fields=["kind"],
                size=0,
                top_hits=common_pb2.TopHitsSpec(
                    size=20, sort=[common_pb2.SortSpec(field_name="_score", null_first=True)]
                ),
            ),
        )
    )
    order = (BucketOrder("mean", False), BucketOrder("_key", True, True))
    best = BestHits(20, (HitOrder("_score", True, True),))
    asked = search.template
    assert asked.levels == (
        BucketLevel(("brand",), 2, 5, (BucketMetric("mean", "avg", "price"),), order),
        BucketLevel(("kind",), 1, 1, best=best),
    )
    assert (asked.grouping, asked.limit) == (Grouping(("brand", "kind"), 20, strict=True), 5)


@pytest.mark.parametrize(
    ("params", "more", "text"),
    [
        (
            {"group_by_field": "kind"},
            {},
            "search_aggregation and group_by_field/group_size are mutually excl",
        ),
        ({"group_size": 2}, {}, "search_aggregation and group_by_field/group_size are mutually exclusive"),
        (
            {"group_by_fields": "kind"},
            {},
            "group_by_fields and search_aggregation cannot be used simultaneous",
        ),
        ({"offset": 1}, {}, "offset is not supported with search_aggregation"),
        ({}, {"highlighter": common_pb2.Highlighter()}, "highlighter and search_aggregation cannot be used"),
    ],
)
def test_what_contradicts_an_aggregation_is_refused(
    params: dict[str, object], more: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        decode(spec(), params, **more)
    assert text in refused.value.message


@pytest.mark.parametrize(
    ("aggregation", "text"),
    [
        (spec(size=-1), "search_aggregation size must be non-negative"),
        (spec(search_size=-1), "search_aggregation search_size must be non-negative"),
        (spec(search_size=1), "search_size must be greater than or equal to size"),
        (spec(top_hits=common_pb2.TopHitsSpec(size=-1)), "top_hits size must be non-negative"),
        (spec(order=[common_pb2.OrderSpec(key="_key", direction="up")]), "direction must be asc or desc"),
        (spec(order=[common_pb2.OrderSpec()]), "order key is empty"),
        (spec(size=10_001), "number of search_aggregation result entries is too large"),
        (spec(fields=["x"]), 'field "x" not found in schema'),
    ],
)
def test_numbers_and_names_are_checked(aggregation: Message, text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        decode(aggregation)
    assert text in refused.value.message


def test_deep_nesting_is_refused_without_walking_it() -> None:
    aggregation = spec()
    for _ in range(50):
        aggregation = spec(sub_aggregation=aggregation)
    with pytest.raises(InvalidParameter, match="nesting exceeds max 4 levels"):
        decode(aggregation)


def test_buckets_take_the_place_of_hits() -> None:
    level = BucketLevel(("brand", "kind"), 2, 2)
    child = Bucket((True,), 1, {}, (), ())
    result = SearchResult(
        np.array([0, 2, 2]),
        np.array([7, 8]),
        np.array([0.5, 0.25], np.float32),
        {
            "brand": pa.array(["a", None]),
            "price": pa.array([1.5, 2.5], pa.float32()),
            "doc": pa.array(["{}", "1"]),
        },
        ("brand", "price", "doc"),
        (),
        BOOKS,
        Timestamp(5),
        levels=(level, BucketLevel(("kind",), 1, 1)),
        buckets=(
            (Bucket(("a", 3), 2, {"n": 2, "mean": 1.5, "low": "x", "none": None}, (1, 0), (child,)),),
            (),
        ),
    )
    message = milvus_pb2.SearchResults.FromString(encode_search(result, "books").SerializeToString())
    data = message.results
    assert (data.num_queries, list(data.topks), list(data.agg_topks)) == (2, [0, 0], [1, 0])
    assert (list(data.ids.int_id.data), list(data.scores), len(data.fields_data)) == ([], [], 0)
    (bucket,) = data.agg_buckets
    brand = BOOKS.by_name["brand"]
    assert (bucket.key[0].field_id, bucket.key[0].field_name) == (brand.field_id, "brand")
    assert (bucket.key[0].string_val, bucket.key[1].int_val, bucket.count) == ("a", 3, 2)
    assert bucket.sub_groups[0].key[0].bool_val is True
    metrics = bucket.metrics
    assert (metrics["n"].int_val, metrics["mean"].double_val, metrics["low"].string_val) == (2, 1.5, "x")
    assert metrics["none"].WhichOneof("value") is None
    second, first = bucket.hits
    assert (first.int_pk, first.score, second.int_pk, second.score) == (7, 0.5, 8, 0.25)
    assert [f.field_name for f in first.fields] == ["brand", "price", "doc"]
    assert (first.fields[0].string_val, first.fields[1].float_val, first.fields[2].bytes_val) == (
        "a",
        1.5,
        b"{}",
    )
    assert second.fields[0].WhichOneof("value") is None
