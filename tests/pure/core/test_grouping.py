"""Groups of hits against an oracle in plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.core.grouping import Grouping, check_group_size, choose_groups, group_codes, grouping_fields
from elanus.core.ids import FieldID
from elanus.core.json_keys import JsonKey
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

Value = int | None


def oracle(
    queries: list[list[Value]], size: int, limit: int, skipped: int, scorer: str, scores: list[list[float]]
) -> list[list[int]]:
    """The chosen hits of each query, numbered over all queries."""
    chosen: list[list[int]] = []
    first = 0
    for values, of_query in zip(queries, scores, strict=True):
        groups: dict[Value, list[int]] = {}
        for place, value in enumerate(values):
            group = groups.setdefault(value, [])
            if len(group) < size:
                group.append(place)
        worth = {
            "max": lambda group, s: s[group[0]],
            "sum": lambda group, s: sum(s[place] for place in group),
            "avg": lambda group, s: sum(s[place] for place in group) / len(group),
        }[scorer]
        ordered = sorted(groups.values(), key=lambda group, s=of_query: (-worth(group, s), group[0]))
        window = ordered[skipped : skipped + limit]
        chosen.append([first + place for group in window for place in group])
        first += len(values)
    return chosen


@given(
    queries=st.lists(st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=12), min_size=1, max_size=3),
    size=st.integers(1, 3),
    limit=st.integers(1, 4),
    skipped=st.integers(0, 2),
    scorer=st.sampled_from(["max", "sum", "avg"]),
    strict=st.booleans(),
)
def test_the_chosen_groups_are_those_of_a_loop(
    queries: list[list[Value]], size: int, limit: int, skipped: int, scorer: str, strict: bool
) -> None:
    scores = [[float(100 - place) for place in range(len(values))] for values in queries]
    offsets = np.concatenate(([0], np.cumsum([len(values) for values in queries]))).astype(np.int64)
    codes = group_codes([pa.array([value for values in queries for value in values], pa.int64())])
    found = choose_groups(
        offsets,
        codes,
        Grouping(("g",), size, strict),
        limit,
        skipped,
        np.array([score for of_query in scores for score in of_query], dtype=np.float32),
        scorer,
    )
    expected = oracle(queries, size, limit, skipped, scorer, scores)
    assert [found.places[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)] == (
        expected
    )
    for values, complete in zip(queries, found.complete.tolist(), strict=True):
        enough = len(set(values)) >= skipped + limit
        if scorer == "max":
            first_groups = list(dict.fromkeys(values))[: skipped + limit]
            full = all(values.count(value) >= size for value in first_groups)
            assert complete == (enough and (full or not strict))


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.text(max_size=1))), max_size=20))
def test_codes_are_equal_where_all_values_are(rows: list[tuple[int, str | None]]) -> None:
    columns = [pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows], pa.string())]
    codes = group_codes(columns).tolist()
    assert [[codes[i] == codes[j] for j in range(len(rows))] for i in range(len(rows))] == [
        [a == b for b in rows] for a in rows
    ]


SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "price", DataType.DOUBLE),
        FieldSchema(FieldID(102), "tag", DataType.VARCHAR, max_length=9),
        FieldSchema(FieldID(103), "vector", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(104), "facts", DataType.JSON),
        FieldSchema(FieldID(105), "body", DataType.TEXT),
    ),
)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("nowhere", FieldNotFound, "groupBy field not found in schema"),
        ("price", InvalidParameter, "unsupported data type DOUBLE for group by operator"),
        ("vector", InvalidParameter, "unsupported data type VECTOR_FLOAT for group by operator"),
        ("body", InvalidParameter, "unsupported data type TEXT for group by operator: field body"),
        ("facts", InvalidParameter, "json_path is required for json field when doing search_group_by"),
    ],
)
def test_a_field_without_groups_is_refused(name: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        grouping_fields(SCHEMA, ["tag", name])


def test_a_value_inside_json_is_a_key() -> None:
    inside = JsonKey("facts['a']", "facts", ("a",))
    assert [field.name for field in grouping_fields(SCHEMA, ["tag", "facts"], inside)] == ["tag", "facts"]
    columns = {
        "tag": pa.array(["x", "x", "x", "y"]),
        "facts": pa.array(['{"a":1}', '{"a":"1"}', '{"a":1,"b":2}', "{}"]),
    }
    keys = Grouping(("tag", "facts"), inside=inside).keys(columns.__getitem__)
    assert {name: column.to_pylist() for name, column in keys.items()} == {
        "tag": ["x", "x", "x", "y"],
        "facts['a']": ["1", '"1"', "1", None],
    }
    first, text, same, missing = group_codes(keys.values()).tolist()
    assert (first == same, len({first, text, missing})) == (True, 3)


def test_a_whole_document_is_a_key_whatever_the_order_of_its_members() -> None:
    inside = JsonKey("facts", "facts", ())
    assert [field.name for field in grouping_fields(SCHEMA, ["facts"], inside)] == ["facts"]
    texts = ['{"a":1,"b":[2]}', '{"b":[2], "a":1}', "[1]", "{}", "null", None]
    keys = Grouping(("facts",), inside=inside).keys({"facts": pa.array(texts)}.__getitem__)
    assert keys["facts"].to_pylist() == ['{"a":1,"b":[2]}', '{"a":1,"b":[2]}', "[1]", "{}", None, None]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "input group size:0 is negative"), (11, "input group size:11 exceeds configured max group size:10")],
)
def test_a_bad_group_size_is_refused(size: int, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_group_size(size)
