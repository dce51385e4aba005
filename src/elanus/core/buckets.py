"""Search aggregation: the hits of a search in a tree of buckets, with metrics and the best hits of each.

A search with an aggregation is a grouping search: its groups are the values of the key fields of all levels
together, and the hits that it keeps of each group are what the buckets are made of. So counts and metrics are
those of the kept hits, not of the collection. Everything here touches as many items as there are hits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping, grouping_fields
from elanus.core.limits import BUCKET_ENTRIES_MAX, BUCKET_LEVELS_MAX
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.types import Family

Value = int | float | str | bool | None
Rank = tuple[Any, ...]
Item = TypeVar("Item")
SCORE = "_score"
ALL_HITS = "*"
COUNT_ORDER = "_count"
KEY_ORDER = "_key"
_NUMBERS = (Family.INTEGER, Family.FLOATING)
_ORDERED = (*_NUMBERS, Family.TEXT, Family.TIME)
_FAMILIES = {"sum": _NUMBERS, "avg": _NUMBERS, "min": _ORDERED, "max": _ORDERED}
OPERATORS = ("avg", "sum", "count", "min", "max")
_SORTABLE = (Family.BOOL, *_ORDERED)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class BucketMetric:
    """``operator``: one of `OPERATORS`. ``field``: a field's name, `SCORE`, or `ALL_HITS` for a count."""

    alias: str
    operator: str
    field: str


@dataclass(frozen=True, slots=True)
class BucketOrder:
    """``key``: the alias of a metric of the level, `COUNT_ORDER` or `KEY_ORDER`.

    ``nulls_first``: null is first in either direction; otherwise it is below all values.
    """

    key: str
    descending: bool
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class HitOrder:
    """``field``: a field's name or `SCORE`."""

    field: str
    descending: bool
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class BestHits:
    """The hits that a bucket shows: ``size`` of them, in an order; the best scores break ties."""

    size: int
    order: tuple[HitOrder, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketLevel:
    """``size``: buckets in the answer, for each bucket of the level above; ``candidates``: searched for."""

    keys: tuple[str, ...]
    size: int
    candidates: int
    metrics: tuple[BucketMetric, ...] = ()
    order: tuple[BucketOrder, ...] = ()
    best: BestHits | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """``key``: the values of the level's fields. ``hits``: places of the hits that it shows."""

    key: tuple[Value, ...]
    count: int
    metrics: Mapping[str, Value]
    hits: tuple[int, ...]
    children: tuple[Bucket, ...]


Levels = tuple[BucketLevel, ...]


def bucket_grouping(levels: Levels) -> tuple[Grouping, int]:
    """Return the grouping that finds the hits of the buckets, and how many groups it has to find."""
    keys = tuple(key for level in levels for key in level.keys)
    size = max((level.best.size for level in levels if level.best is not None), default=1)
    return Grouping(keys, size, strict=True), math.prod(level.candidates for level in levels)


def bucket_columns(levels: Levels) -> tuple[str, ...]:
    """Return the names of the fields that `buckets_of` reads, each once."""
    if not levels:
        return ()
    names = [key for level in levels for key in level.keys]
    names += [m.field for level in levels for m in level.metrics]
    names += [by.field for level in levels if level.best is not None for by in level.best.order]
    return tuple(dict.fromkeys(name for name in names if name not in (SCORE, ALL_HITS)))


def check_levels(levels: Levels, schema: CollectionSchema) -> None:
    """Raises `InvalidParameter`, with the reference's texts."""
    if len(levels) > BUCKET_LEVELS_MAX:
        raise InvalidParameter(f"search_aggregation nesting exceeds max {BUCKET_LEVELS_MAX} levels")
    seen: set[str] = set()
    for level in levels:
        if not level.keys:
            raise InvalidParameter("group_by level has no fields")
        for key in level.keys:
            _check_key(key, schema)
            if level.keys.count(key) > 1:
                raise InvalidParameter(f'duplicated group_by field "{key}" in one level')
            if key in seen:
                raise InvalidParameter(f'duplicated group_by field "{key}" across levels')
        seen.update(level.keys)
        for metric in level.metrics:
            _check_metric(metric, schema)
        for hit_order in () if level.best is None else level.best.order:
            _check_sortable(hit_order.field, schema)
        for order in level.order:
            if order.key not in (COUNT_ORDER, KEY_ORDER, *(metric.alias for metric in level.metrics)):
                raise InvalidParameter(f'order key "{order.key}" is neither reserved key nor metric alias')


def check_entries(levels: Levels, queries: int) -> None:
    """Check the size of the largest possible answer. Raises `InvalidParameter`."""
    grouping, groups = bucket_grouping(levels)
    if queries * groups * grouping.size > BUCKET_ENTRIES_MAX:
        raise InvalidParameter(
            "number of search_aggregation result entries is too large: "
            f"{queries} query vectors x {groups} buckets x {grouping.size} hits, at most {BUCKET_ENTRIES_MAX}"
        )


def buckets_of(
    levels: Levels,
    offsets: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    fields: Mapping[str, pa.Array],
    *,
    larger_is_better: bool,
) -> tuple[tuple[Bucket, ...], ...]:
    """Return the buckets of each query: a tuple of nq tuples.

    ``offsets``: int64 (nq + 1,); the hits of query i are ``offsets[i]:offsets[i + 1]``. ``scores``: float32
    (hits,). ``fields``: by name, the values of each hit; at least those of `bucket_columns`.
    Buckets without an order are in the order of their best hits.
    Raises `InvalidParameter` for a sum of integers that does not fit 64 bits.
    """
    columns = {name: fields[name].to_pylist() for name in bucket_columns(levels)}
    columns[SCORE] = scores.tolist()
    worth = -scores if larger_is_better else scores
    tree = _Tree(levels, columns)
    ends = offsets.tolist()
    result = []
    for begin, end in itertools.pairwise(ends):
        order = np.argsort(worth[begin:end], kind="stable")
        result.append(tree.buckets(0, (order + begin).tolist()))
    return tuple(result)


class _Tree:
    def __init__(self, levels: Levels, columns: Mapping[str, list[Value]]) -> None:
        self._levels = levels
        self._columns = columns

    def buckets(self, depth: int, rows: list[int]) -> tuple[Bucket, ...]:
        """``rows``: the places of hits, best first."""
        if depth == len(self._levels):
            return ()
        level = self._levels[depth]
        groups: dict[tuple[Value, ...], list[int]] = {}
        for row in rows:
            groups.setdefault(tuple(self._columns[key][row] for key in level.keys), []).append(row)
        found = [(key, own, self._metrics(level, own)) for key, own in groups.items()]
        for by in reversed(level.order):
            found = _sorted(found, [_order_key(by, *item) for item in found], by.descending)
        return tuple(
            Bucket(key, len(own), metrics, self._best(level, own), self.buckets(depth + 1, own))
            for key, own, metrics in found[: level.size]
        )

    def _metrics(self, level: BucketLevel, rows: list[int]) -> dict[str, Value]:
        return {metric.alias: self._metric(metric, rows) for metric in level.metrics}

    def _metric(self, metric: BucketMetric, rows: list[int]) -> Value:
        if metric.field == ALL_HITS:
            return len(rows)
        column = self._columns[metric.field]
        values = [value for row in rows if (value := column[row]) is not None]
        if metric.operator == "count":
            return len(values)
        if not values:
            return None
        if metric.operator in ("min", "max"):
            return (min if metric.operator == "min" else max)(values, key=_comparable)
        numbers = [value for value in values if not isinstance(value, str)]
        total = _sum_of_floats(numbers) if isinstance(numbers[0], float) else sum(numbers)
        if metric.operator == "avg":
            return total / len(numbers)
        if isinstance(total, int) and not _INT64_MIN <= total <= _INT64_MAX:
            raise InvalidParameter(
                f'metric "{metric.alias}": the sum of field {metric.field} does not fit 64 bits: use avg'
            )
        return total

    def _best(self, level: BucketLevel, rows: list[int]) -> tuple[int, ...]:
        if level.best is None:
            return ()
        ordered = list(rows)
        for by in reversed(level.best.order):
            column = self._columns[by.field]
            present = [row for row in ordered if column[row] is not None]
            absent = [row for row in ordered if column[row] is None]
            present = _sorted(present, [_comparable(column[row]) for row in present], by.descending)
            ordered = absent + present if by.nulls_first else present + absent
        return tuple(ordered[: level.best.size])


def _sum_of_floats(numbers: list[float]) -> float:
    """Return the rounded sum; infinity where it is too large for a float, as in queries."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # ValueError: infinities of both signs
        return sum(numbers)


def _sorted(items: list[Item], ranks: list[Rank], descending: bool) -> list[Item]:
    """Return the items in the order of their ranks; those of equal rank keep theirs."""
    places = sorted(range(len(items)), key=ranks.__getitem__, reverse=descending)
    return [items[place] for place in places]


def _comparable(value: Value, *, nulls_above: bool = False) -> Rank:
    """Null is below all values, or above them, and a float that is not a number above the others."""
    odd = isinstance(value, float) and math.isnan(value)
    return (value is None) is nulls_above, odd, 0 if odd or value is None else value


def _order_key(
    by: BucketOrder, key: tuple[Value, ...], rows: list[int], metrics: Mapping[str, Value]
) -> Rank:
    nulls_above = by.nulls_first and by.descending
    if by.key == COUNT_ORDER:
        return (len(rows),)
    if by.key == KEY_ORDER:
        return tuple(_comparable(value, nulls_above=nulls_above) for value in key)
    return _comparable(metrics[by.key], nulls_above=nulls_above)


def _check_key(name: str, schema: CollectionSchema) -> None:
    try:
        field = _field(name, schema, "group_by field")
    except _NotFound:
        raise InvalidParameter(f'invalid group_by field "{name}": {_not_found(name)}') from None
    if field.data_type in (DataType.FLOAT, DataType.DOUBLE):
        raise InvalidParameter(
            f'group_by field "{name}": FLOAT / DOUBLE fields are not supported with search_aggregation '
            "(BucketKeyEntry has no float variant; equality on floats is fragile)"
        )
    grouping_fields(schema, (name,))


def _check_metric(metric: BucketMetric, schema: CollectionSchema) -> None:
    if not metric.alias.strip():
        raise InvalidParameter("metric alias cannot be empty")
    try:
        _check_source(metric, schema)
    except InvalidParameter as error:
        raise InvalidParameter(f'invalid metric "{metric.alias}": {error.message}') from None


def _check_source(metric: BucketMetric, schema: CollectionSchema) -> None:
    if metric.operator not in OPERATORS:
        raise InvalidParameter(
            f'unsupported metric op "{metric.operator}": use one of {", ".join(OPERATORS)}'
        )
    if not metric.field:
        raise InvalidParameter("metric field_name is empty")
    if metric.field == ALL_HITS and metric.operator != "count":
        raise InvalidParameter("field_name '*' only supports count op")
    if metric.field in (ALL_HITS, SCORE):
        return
    try:
        field = _field(metric.field, schema, "metric field")
    except _NotFound:
        raise InvalidParameter(_not_found(metric.field)) from None
    families = _FAMILIES.get(metric.operator)
    if families is not None and (field.kind.family not in families or field.kind.is_long_text):
        raise InvalidParameter(
            f"aggregation operator {metric.operator} does not support data type {field.kind.name}"
        )


def _check_sortable(name: str, schema: CollectionSchema) -> None:
    if name == SCORE:
        return
    if not name:
        raise InvalidParameter("top_hits.sort field_name is empty")
    if "[" in name and "]" in name:
        raise InvalidParameter(f'top_hits.sort JSON path is not yet supported: "{name}"')
    try:
        field = _field(name, schema, "top_hits.sort field")
    except _NotFound:
        raise InvalidParameter(f'invalid top_hits.sort field "{name}": {_not_found(name)}') from None
    if field.kind.family not in _SORTABLE or field.kind.is_long_text:
        raise InvalidParameter(
            f'top_hits.sort field "{name}" has unsortable type {field.kind.name}: '
            "sort by a bool, a number, a text or a moment"
        )


class _NotFound(Exception):
    pass


def _field(name: str, schema: CollectionSchema, usage: str) -> FieldSchema:
    """Return the field. Raises `_NotFound`, and `InvalidParameter` for JSON."""
    field = schema.by_name.get(name) or schema.by_name.get(name.partition("[")[0])
    if field is None and schema.dynamic_field is not None:
        field = schema.dynamic_field
    if field is None:
        raise _NotFound
    if field.kind.family is Family.JSON:
        raise InvalidParameter(
            f'{usage} "{name}": JSON / dynamic fields are not yet supported with search_aggregation'
        )
    return field


def _not_found(name: str) -> str:
    return f'field "{name}" not found in schema'
