"""ORDER BY and GROUP BY against Python's own sort and sums."""

from __future__ import annotations

import math
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.aggregation import (
    Aggregation,
    check_group_fields,
    combined,
    finished,
    parse_aggregate,
    partial,
)
from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.ordering import OrderBy, order_groups_within, order_places, order_within, parse_order
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "price", DataType.DOUBLE, nullable=True),
        FieldSchema(FieldID(102), "tag", DataType.VARCHAR, max_length=9, nullable=True),
        FieldSchema(FieldID(103), "vector", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(104), "facts", DataType.JSON),
        FieldSchema(FieldID(105), "sold", DataType.BOOL),
        FieldSchema(FieldID(107), "body", DataType.TEXT),
    ),
)
Row = tuple[int | None, str | None]
ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(-3, 3)), st.one_of(st.none(), st.text("abÄ", max_size=2))),
    max_size=25,
)
ORDERS = st.lists(
    st.builds(OrderBy, st.sampled_from(["n", "s"]), st.booleans(), st.booleans()), min_size=1, max_size=3
)


def compared(a: Row, b: Row, order: list[OrderBy]) -> int:
    for by in order:
        place = "ns".index(by.field)
        one, other = a[place], b[place]
        if one == other:
            continue
        if one is None or other is None:
            return -1 if (one is None) == by.nulls_first else 1
        smaller = one.encode() < other.encode() if isinstance(one, str) else one < other  # type: ignore[union-attr,operator]
        return -1 if smaller != by.descending else 1
    return 0


def columns_of(rows: list[Row]) -> dict[str, pa.Array]:
    return {"n": pa.array([n for n, _ in rows], pa.int64()), "s": pa.array([s for _, s in rows], pa.string())}


@given(rows=ROWS, order=ORDERS)
def test_rows_are_ordered_as_by_a_comparison(rows: list[Row], order: list[OrderBy]) -> None:
    places = order_places(columns_of(rows), order).tolist()
    by = cmp_to_key(lambda i, j: compared(rows[i], rows[j], order))  # type: ignore[arg-type]
    assert places == sorted(range(len(rows)), key=by)


@given(queries=st.lists(ROWS, min_size=1, max_size=3), order=ORDERS)
def test_hits_are_ordered_within_their_query(queries: list[list[Row]], order: list[OrderBy]) -> None:
    rows = [row for query in queries for row in query]
    offsets = np.concatenate(([0], np.cumsum([len(query) for query in queries]))).astype(np.int64)
    places = order_within(offsets, columns_of(rows), order).tolist()
    expected = [
        int(start) + place
        for start, query in zip(offsets, queries, strict=False)
        for place in order_places(columns_of(query), order).tolist()
    ]
    assert places == expected


@given(queries=st.lists(ROWS, min_size=1, max_size=3), order=ORDERS, data=st.data())
def test_groups_are_ordered_by_their_first_hits(
    queries: list[list[Row]], order: list[OrderBy], data: st.DataObject
) -> None:
    codes: list[int] = []
    expected: list[int] = []
    for query in queries:
        sizes = data.draw(st.lists(st.integers(1, 3), min_size=len(query), max_size=len(query)))
        group_of = [g for g, size in enumerate(sizes) for _ in range(size)][: len(query)]
        begin, begins = len(codes), [group_of.index(g) for g in sorted(set(group_of))]
        for g in order_places(columns_of([query[b] for b in begins]), order).tolist() if query else []:
            expected += [begin + i for i, of in enumerate(group_of) if of == g]
        codes += group_of
    offsets = np.concatenate(([0], np.cumsum([len(query) for query in queries]))).astype(np.int64)
    rows = columns_of([row for query in queries for row in query])
    places = order_groups_within(offsets, rows, order, np.array(codes, dtype=np.int64))
    assert places.tolist() == expected


def test_a_number_that_is_none_is_the_largest() -> None:
    column = {"price": pa.array([1.0, math.nan, None, -1.0])}
    assert order_places(column, [OrderBy("price")]).tolist() == [3, 0, 1, 2]
    assert order_places(column, [OrderBy("price", descending=True)]).tolist() == [1, 0, 3, 2]
    assert order_places({"sold": pa.array([True, False])}, [OrderBy("sold")]).tolist() == [1, 0]


def test_the_text_of_an_order() -> None:
    assert parse_order(" price:desc, tag ,id:ASC:nulls_first", SCHEMA) == (
        OrderBy("price", descending=True, nulls_first=True),
        OrderBy("tag", descending=False, nulls_first=False),
        OrderBy("id", descending=False, nulls_first=True),
    )
    assert parse_order("price:desc:nulls_last", SCHEMA) == (OrderBy("price", descending=True),)
    assert parse_order("", SCHEMA) == ()


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("price:down", InvalidParameter, "invalid order direction 'down' for field 'price'"),
        ("price:asc:first", InvalidParameter, "invalid null ordering 'first' for field 'price'"),
        ("nowhere", InvalidParameter, "order_by field 'nowhere' does not exist in collection schema"),
        ("vector", InvalidParameter, "order_by field 'vector' has type FloatVector which is not sortable"),
        ("body", InvalidParameter, "order_by field 'body' has type Text which is not sortable"),
        ("count(*):desc", InvalidParameter, r"ORDER BY on aggregate expression 'count\(\*\)' is not yet"),
        ("facts", InvalidParameter, "order_by field 'facts' has type JSON which is not sortable"),
        ('facts["a"]', InvalidParameter, "order_by field 'facts\\[\"a\"\\]' does not exist"),
    ],
)
def test_a_bad_order_is_refused(text: str, kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        parse_order(text, SCHEMA)


OPEN = CollectionSchema(
    "open",
    (
        *SCHEMA.fields,
        FieldSchema(FieldID(106), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)


def test_a_search_is_ordered_by_dynamic_keys_and_paths() -> None:
    assert parse_order('age:desc, user["a:b,c"][0], $meta["x"]:asc:nulls_first', OPEN, dynamic=True) == (
        OrderBy("$meta", descending=True, nulls_first=True, path=("age",)),
        OrderBy("$meta", path=("user", "a:b,c", 0)),
        OrderBy("$meta", nulls_first=True, path=("x",)),
    )
    with pytest.raises(InvalidParameter, match="order_by field 'age' does not exist"):
        parse_order("age", OPEN)  # of a query
    for schema in (OPEN, SCHEMA):  # a field of the type JSON needs no dynamic field
        assert parse_order('facts["a"][0]:desc', schema, dynamic=True) == (
            OrderBy("facts", descending=True, nulls_first=True, path=("a", 0)),
        )
    for name, text in {
        "facts": r"'facts' has unsortable type JSON; .*for JSON fields use path syntax like field\[\"key\"\]",
        "$meta": "has unsortable type JSON",
        "body": "'body' has unsortable type Text",
        "vector": "'vector' has unsortable type FloatVector; supported types: bool, int8/16/32/64, float",
        "id[0]": r"order_by field 'id\[0\]' has brackets but is not a JSON type",
        "id:up": "invalid order direction 'up' for field 'id', expected 'asc' or 'desc'",
        ":asc": "empty field name in order_by_fields",
    }.items():
        with pytest.raises(InvalidParameter, match=text):
            parse_order(name, OPEN, dynamic=True)
    with pytest.raises(InvalidParameter, match="order_by field 'nowhere' does not exist"):
        parse_order("nowhere", SCHEMA, dynamic=True)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (['{"k": 2}', '{"k": 10.5}', "{}", '{"k": -1}', None, '{"k": null}'], [2, 4, 5, 3, 0, 1]),
        (['{"k": "b"}', '{"k": "a"}', '{"k": "ä"}', '{"j": 1}'], [3, 1, 0, 2]),
        (['{"k": true}', '{"k": false}'], [1, 0]),
        (['{"k": "x"}', '{"k": 5}', '{"k": [1]}'], [0, 1, 2]),
        (['{"k": 99999999999999999999}', '{"k": 3}'], [1, 0]),
    ],
)
def test_values_inside_documents_are_ordered_by_their_kind(
    texts: list[str | None], expected: list[int]
) -> None:
    column = {"$meta": pa.array(texts, pa.string())}
    assert order_places(column, [OrderBy("$meta", nulls_first=True, path=("k",))]).tolist() == expected


NAMES = ("count(*)", "count(n)", "sum(n)", "min(n)", "MAX( n )", "avg(n)", "min(s)")
OWN = CollectionSchema(
    "own",
    (
        FieldSchema(FieldID(100), "n", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "s", DataType.VARCHAR, max_length=9),
    ),
)


def aggregated(values: list[Row]) -> dict[str, Any]:
    numbers = [n for n, _ in values if n is not None]
    texts = [s for _, s in values if s is not None]
    return {
        "count(*)": len(values),
        "count(n)": len(numbers),
        "sum(n)": sum(numbers) if numbers else None,
        "min(n)": min(numbers, default=None),
        "MAX( n )": max(numbers, default=None),
        "avg(n)": sum(numbers) / len(numbers) if numbers else None,
        "min(s)": min(texts, default=None, key=str.encode),
    }


@given(nodes=st.lists(ROWS, min_size=1, max_size=3), keys=st.sampled_from([(), ("s",), ("n", "s")]))
def test_aggregates_are_those_of_a_loop_however_rows_are_spread(
    nodes: list[list[Row]], keys: tuple[str, ...]
) -> None:
    parsed = [parse_aggregate(name, OWN) for name in NAMES]
    aggregation = Aggregation(keys, tuple(a for a in parsed if a is not None))
    parts = [partial(columns_of(rows), len(rows), aggregation) for rows in nodes]
    result = finished(combined(parts, aggregation), aggregation)
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
    for row in (row for rows in nodes for row in rows):
        groups.setdefault(tuple(row["ns".index(key)] for key in keys), []).append(row)
    got = {
        tuple(row[key] for key in keys): {name: row[name] for name in NAMES}
        for row in pa.table(result).to_pylist()
    }
    assert got == {key: aggregated(rows) for key, rows in groups.items()}
    assert result["avg(n)"].type == pa.float64()


def test_moments_are_grouped_and_compared() -> None:
    of = CollectionSchema(
        "events",
        (
            FieldSchema(FieldID(100), "n", DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), "at", DataType.TIMESTAMPTZ),
        ),
    )
    check_group_fields(of, ["at"])
    latest = parse_aggregate("max(at)", of)
    assert latest is not None
    aggregation = Aggregation((), (latest,))
    moments = pa.array([5, 9, 7], of.field("at").arrow_type)
    result = finished(combined([partial({"at": moments}, 3, aggregation)], aggregation), aggregation)
    assert result["max(at)"].to_pylist() == [moments[1].as_py()]
    with pytest.raises(InvalidParameter, match="aggregation operator sum does not support"):
        parse_aggregate("sum(at)", of)


def test_groups_alone_and_counts_alone() -> None:
    rows: list[Row] = [(1, "b"), (2, "a"), (3, None), (4, "a")]
    groups = Aggregation(("s",), ())
    assert combined([partial(columns_of(rows), 4, groups)], groups)["s"].to_pylist() == ["a", "b", None]
    count = parse_aggregate("count()", OWN)
    assert count is not None
    counting = Aggregation((), (count,))
    assert finished(combined([partial({}, 4, counting)], counting), counting)["count()"].to_pylist() == [4]


def test_what_cannot_be_aggregated_is_refused() -> None:
    assert parse_aggregate("price", SCHEMA) is None
    assert parse_aggregate("sum(price", SCHEMA) is None
    for aggregate, text in {
        "sum(nowhere)": "target field nowhere for aggregation:sum does not exist",
        "sum(*)": r"sum\(\*\) is not supported, only count\(\*\) is allowed",
        "Max()": r"max\(\) is not supported, only count\(\*\) is allowed",
        "sum(tag)": "aggregation operator sum does not support data type VarChar",
        "max(sold)": "operator max does not support data type Bool",
        "max(body)": "operator max does not support data type Text",
        "min(vector)": "operator min does not support data type FloatVector",
    }.items():
        with pytest.raises(InvalidParameter, match=text):
            parse_aggregate(aggregate, SCHEMA)
    with pytest.raises(InvalidParameter, match="field nowhere not exist"):
        check_group_fields(SCHEMA, ["nowhere"])
    with pytest.raises(InvalidParameter, match="group by field price has unsupported data type Double"):
        check_group_fields(SCHEMA, ["tag", "price"])
    with pytest.raises(InvalidParameter, match="group by field body has unsupported data type Text"):
        check_group_fields(SCHEMA, ["body"])
    counted = parse_aggregate("count(body)", SCHEMA)
    assert counted is not None
    assert counted.operator == "count"
