"""Search aggregation: buckets of kept hits, their metrics and order, against values counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.aggregation import Aggregate, Aggregation, combined, finished, partial
from elanus.core.buckets import (
    BestHits,
    Bucket,
    BucketLevel,
    BucketMetric,
    BucketOrder,
    HitOrder,
    Levels,
    bucket_columns,
    bucket_grouping,
    buckets_of,
    check_entries,
    check_levels,
)
from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

BRAND = BucketLevel(("brand",), 2, 3)
FIELDS = {
    "brand": pa.array(["b", "a", "a", None, "b", "a"]),
    "kind": pa.array([1, 1, 2, 1, 2, 1], pa.int32()),
    "price": pa.array([5.0, 1.0, None, 2.0, float("nan"), 3.0]),
    "stock": pa.array([10, 7, 8, None, 1, 2], pa.int64()),
}
SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], np.float32)
BOOKS = CollectionSchema(
    "books",
    (
        FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "vector", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(102), "brand", DataType.VARCHAR, max_length=9, nullable=True),
        FieldSchema(FieldID(103), "kind", DataType.INT32),
        FieldSchema(FieldID(104), "price", DataType.DOUBLE, nullable=True),
        FieldSchema(FieldID(105), "doc", DataType.JSON),
        FieldSchema(FieldID(106), "body", DataType.TEXT),
    ),
)


def found(*levels: BucketLevel, larger_is_better: bool = True) -> tuple[Bucket, ...]:
    (buckets,) = buckets_of(levels, np.array([0, 6]), SCORES, FIELDS, larger_is_better=larger_is_better)
    return buckets


def keys(buckets: tuple[Bucket, ...]) -> list[Any]:
    return [bucket.key[0] for bucket in buckets]


def test_buckets_are_in_the_order_of_their_best_hits() -> None:
    buckets = found(BRAND)
    assert [(b.key, b.count, b.hits, b.children) for b in buckets] == [
        (("b",), 2, (), ()),
        (("a",), 3, (), ()),
    ]
    assert keys(found(replace(BRAND, size=9), larger_is_better=False)) == ["a", "b", None]


@pytest.mark.parametrize(
    ("operator", "field", "values"),
    [
        ("count", "*", [2, 3, 1]),
        ("count", "price", [2, 2, 1]),
        ("sum", "stock", [11, 17, None]),
        ("avg", "stock", [5.5, 17 / 3, None]),
        ("min", "price", [5.0, 1.0, 2.0]),
        ("max", "stock", [10, 8, None]),
        ("max", "brand", ["b", "a", None]),
        ("max", "_score", [pytest.approx(0.9), pytest.approx(0.8), pytest.approx(0.6)]),
    ],
)
def test_metrics_skip_nulls(operator: str, field: str, values: list[Any]) -> None:
    level = replace(BRAND, size=3, metrics=(BucketMetric("m", operator, field),))
    assert [bucket.metrics["m"] for bucket in found(level)] == values


@pytest.mark.parametrize(
    ("operator", "values", "total"),
    [
        ("sum", [2**62, 2**62 - 1], 2**63 - 1),
        ("sum", [-(2**62), -(2**62)], -(2**63)),
        ("avg", [2**62, 2**62], 2**62),
        ("sum", [2**62, 2**62], None),
        ("sum", [-(2**63), -1], None),
    ],
)
def test_a_sum_that_does_not_fit_64_bits_is_refused(
    operator: str, values: list[int], total: int | None
) -> None:
    level = BucketLevel(("k",), 1, 1, (BucketMetric("all", operator, "n"),))
    columns = {"k": pa.array([1, 1]), "n": pa.array(values, pa.int64())}
    given = (np.array([0, 2]), np.array([1, 0], np.float32), columns)
    if total is None:
        with pytest.raises(InvalidParameter, match='"all": the sum of field n does not fit 64 bits: use avg'):
            buckets_of((level,), *given, larger_is_better=True)
        return
    (buckets,) = buckets_of((level,), *given, larger_is_better=True)
    assert buckets[0].metrics == {"all": total}


@pytest.mark.parametrize("operator", ["sum", "avg"])
@pytest.mark.parametrize(
    ("values", "total"),
    [([1.5e308, 1.5e308], math.inf), ([-1.5e308, -1.5e308], -math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_a_sum_that_is_too_large_for_a_float_is_infinite_as_in_queries(
    operator: str, values: list[float], total: float
) -> None:
    level = BucketLevel(("k",), 1, 1, (BucketMetric("all", operator, "x"),))
    columns = {"k": pa.array([1, 1]), "x": pa.array(values)}
    (buckets,) = buckets_of(
        (level,), np.array([0, 2]), np.array([1, 0], np.float32), columns, larger_is_better=True
    )
    wanted = Aggregation((), (Aggregate(operator, "x", "all"),))
    queried = finished(combined([partial({"x": columns["x"]}, 2, wanted)], wanted), wanted)["all"].to_pylist()
    assert [buckets[0].metrics["all"], *queried] == pytest.approx([total, total], nan_ok=True)


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ([("_key", False)], [None, "a", "b"]),
        ([("_key", True)], ["b", "a", None]),
        ([("_count", True)], ["a", "b", None]),
        ([("m", False)], [None, "b", "a"]),
        ([("same", False), ("_count", False)], [None, "b", "a"]),
        ([("same", True)], ["b", "a", None]),
        ([("_key", True, True)], [None, "b", "a"]),
        ([("_key", False, True)], [None, "a", "b"]),
        ([("m", True, True)], [None, "a", "b"]),
        ([("m", False, True)], [None, "b", "a"]),
    ],
)
def test_buckets_are_ordered_before_they_are_cut(order: list[Any], wanted: list[Any]) -> None:
    """Null is the smallest value; buckets that are equal stay in the order of their best hits."""
    metrics = (BucketMetric("m", "sum", "stock"), BucketMetric("same", "min", "kind"))
    level = replace(BRAND, metrics=metrics, order=tuple(BucketOrder(*by) for by in order))
    assert keys(found(replace(level, size=3))) == wanted
    assert keys(found(level)) == wanted[:2]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ((), (1, 2)),
        ((HitOrder("price", descending=True),), (5, 1)),
        ((HitOrder("price", descending=False),), (1, 5)),
        ((HitOrder("price", descending=True, nulls_first=True),), (2, 5)),
        ((HitOrder("kind", descending=False), HitOrder("_score", descending=False)), (5, 1)),
    ],
)
def test_the_best_hits_of_a_bucket_have_an_order_of_their_own(
    order: tuple[HitOrder, ...], wanted: tuple[int, ...]
) -> None:
    assert found(replace(BRAND, best=BestHits(2, order)))[1].hits == wanted


def test_levels_are_nested() -> None:
    inner = BucketLevel(("kind",), 5, 5, (BucketMetric("n", "count", "*"),), (BucketOrder("n", True),))
    b, a = found(BRAND, inner)
    assert [(child.key, child.count) for child in b.children] == [((1,), 1), ((2,), 1)]
    assert [(child.key, child.metrics) for child in a.children] == [((1,), {"n": 2}), ((2,), {"n": 1})]


def test_each_query_has_its_own_buckets() -> None:
    one, none, two = buckets_of((BRAND,), np.array([0, 1, 1, 6]), SCORES, FIELDS, larger_is_better=True)
    assert (keys(one), none, keys(two)) == (["b"], (), ["a", None])


def test_the_search_groups_by_the_keys_of_all_levels() -> None:
    levels = (
        replace(BRAND, metrics=(BucketMetric("n", "count", "*"),)),
        BucketLevel(("kind",), 4, 4, best=BestHits(7, (HitOrder("price", True), HitOrder("_score", True)))),
    )
    assert bucket_grouping(levels) == (Grouping(("brand", "kind"), 7, strict=True), 12)
    assert bucket_columns(levels) == ("brand", "kind", "price")
    assert bucket_grouping((BRAND,)) == (Grouping(("brand",), 1, strict=True), 3)
    check_entries(levels, 10_000 // 84)
    with pytest.raises(InvalidParameter, match="number of search_aggregation result entries is too large"):
        check_entries(levels, 10_000 // 84 + 1)


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ((BRAND,) * 5, "search_aggregation nesting exceeds max 4 levels"),
        ((BRAND, BRAND), 'duplicated group_by field "brand" across levels'),
        ((replace(BRAND, keys=("kind", "kind")),), 'duplicated group_by field "kind" in one level'),
        ((replace(BRAND, keys=()),), "group_by level has no fields"),
        ((replace(BRAND, keys=("no",)),), 'invalid group_by field "no": field "no" not found in schema'),
        (
            (replace(BRAND, keys=("price",)),),
            "FLOAT / DOUBLE fields are not supported with search_aggregation",
        ),
        ((replace(BRAND, keys=("doc",)),), "JSON / dynamic fields are not yet supported with search_agg"),
        ((replace(BRAND, keys=("vector",)),), "unsupported data type VECTOR_FLOAT for group by operator"),
        ((replace(BRAND, metrics=(BucketMetric("m", "median", "kind"),)),), 'unsupported metric op "median"'),
        ((replace(BRAND, metrics=(BucketMetric("m", "sum", "*"),)),), "'*' only supports count op"),
        (
            (replace(BRAND, metrics=(BucketMetric("m", "sum", "brand"),)),),
            "does not support data type VarChar",
        ),
        ((replace(BRAND, metrics=(BucketMetric("m", "max", "body"),)),), "not support data type Text"),
        ((replace(BRAND, best=BestHits(1, (HitOrder("body", True),))),), 'body" has unsortable type Text'),
        (
            (replace(BRAND, metrics=(BucketMetric("m", "sum", "x"),)),),
            'invalid metric "m": field "x" not found',
        ),
        ((replace(BRAND, metrics=(BucketMetric(" ", "count", "*"),)),), "metric alias cannot be empty"),
        ((replace(BRAND, order=(BucketOrder("m", True),)),), "neither reserved key nor metric alias"),
        (
            (replace(BRAND, best=BestHits(1, (HitOrder("doc['a']", True),))),),
            "JSON path is not yet supported",
        ),
        ((replace(BRAND, best=BestHits(1, (HitOrder("vector", True),))),), "unsortable type FloatVector"),
    ],
)
def test_what_makes_no_sense_is_refused(levels: Levels, text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        check_levels(levels, BOOKS)
    assert text in refused.value.message
