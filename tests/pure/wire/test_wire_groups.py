"""Values of groups, and aggregates, as answers carry them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message
from wire_messages import field, schema

from elanus.core.schema import DataType
from elanus.proxy.api.query import QueryResult
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.results import encode_query, encode_search

BOOKS = schema(
    field("vector", DataType.FLOAT_VECTOR, dim=4),
    field("x", DataType.INT64),
    field("tag", DataType.VARCHAR, max_length=9),
)


def answer(groups: dict[str, pa.Array]) -> Message:
    result = SearchResult(
        np.array([0, 2]),
        np.array([1, 2]),
        np.array([0.5, 0.25], np.float32),
        {},
        (),
        (),
        BOOKS,
        1,
        None,
        groups,
    )
    return encode_search(result, "books")


def test_the_values_of_groups_are_sent() -> None:
    one = answer({"tag": pa.array(["a", None])}).results
    assert one.group_by_field_value.scalars.string_data.data == ["a", ""]
    assert one.group_by_field_value.valid_data == [True, False]
    two = answer({"tag": pa.array(["a", "b"]), "x": pa.array([1, 2])}).results
    assert [values.field_name for values in two.group_by_field_values] == ["tag", "x"]
    assert not two.HasField("group_by_field_value")
    assert not answer({}).results.HasField("group_by_field_value")


def test_aggregates_are_sent_with_their_types() -> None:
    fields = {
        "x": pa.array([1], pa.int64()),
        "count(*)": pa.array([2], pa.int64()),
        "avg(x)": pa.array([0.5], pa.float64()),
        "max(tag)": pa.array([None], pa.string()),
    }
    sent = encode_query(QueryResult(fields, tuple(fields), (), BOOKS, 1), "books")
    assert [(f.field_name, f.type) for f in sent.fields_data] == [
        ("x", DataType.INT64),
        ("count(*)", DataType.INT64),
        ("avg(x)", DataType.DOUBLE),
        ("max(tag)", DataType.VARCHAR),
    ]
    assert sent.fields_data[3].valid_data == [False]
