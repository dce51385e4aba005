"""Inserted columns: every type, the ways clients say null, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from wire_messages import binary_vectors, dynamic_data, field, float_vectors, scalar_data, schema, steady

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.schema import CollectionSchema, DataType
from elanus.proxy.wire.rows import decode_rows

VECTOR = field("vector", DataType.FLOAT_VECTOR, dim=4)
PLAIN = schema(VECTOR)
KEYS = scalar_data("id", DataType.INT64, [1, 2])
VECTORS = float_vectors("vector", [[0, 1, 2, 3], [4, 5, 6, 7]])


def decode(
    given_schema: CollectionSchema, *columns: Message, rows: int = 2, auto: bool = False
) -> pa.RecordBatch:
    return decode_rows(given_schema, columns, rows, with_auto_key=auto)


def with_field(data_type: DataType, **more: Any) -> CollectionSchema:
    return schema(VECTOR, field("x", data_type, **more))


SAMPLES: dict[DataType, tuple[list[Any], dict[str, Any]]] = {
    DataType.BOOL: ([True, False], {}),
    DataType.INT8: ([-128, 127], {}),
    DataType.INT16: ([-(2**15), 2**15 - 1], {}),
    DataType.INT32: ([-(2**31), 2**31 - 1], {}),
    DataType.INT64: ([-(2**63), 2**63 - 1], {}),
    DataType.FLOAT: ([0.5, -1.5], {}),
    DataType.DOUBLE: ([1e300, -0.25], {}),
    DataType.VARCHAR: (["", "grün"], {"max_length": 5}),
}


@pytest.mark.parametrize("data_type", SAMPLES, ids=lambda data_type: data_type.name)
def test_each_scalar_type_arrives_in_its_column_form(data_type: DataType) -> None:
    values, more = SAMPLES[data_type]
    given_schema = with_field(data_type, **more)
    batch = decode(given_schema, KEYS, VECTORS, scalar_data("x", data_type, values))
    assert batch.schema == given_schema.arrow_schema
    assert batch.column("x").to_pylist() == values
    assert batch.column("id").to_pylist() == [1, 2]
    assert batch.column("vector").to_pylist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_columns_stand_in_the_schemas_order_whatever_the_clients() -> None:
    batch = decode(PLAIN, VECTORS, KEYS)
    assert batch.schema.names == ["id", "vector"]


def test_binary_vectors_keep_their_bytes() -> None:
    given_schema = schema(field("bits", DataType.BINARY_VECTOR, dim=16))
    batch = decode(given_schema, KEYS, binary_vectors("bits", b"abcd", 16))
    assert batch.column("bits").to_pylist() == [b"ab", b"cd"]
    assert batch.schema == given_schema.arrow_schema


def test_json_is_made_compact() -> None:
    given_schema = with_field(DataType.JSON)
    documents = [b'{ "a" : [1, 2 ],\n "b c": "x  y" }', b"null"]
    batch = decode(given_schema, KEYS, VECTORS, scalar_data("x", DataType.JSON, documents))
    assert batch.column("x").to_pylist() == ['{"a":[1,2],"b c":"x  y"}', "null"]


# null and default, as the client generations say them


@pytest.mark.parametrize(
    ("values", "valid", "expected"),
    [
        ([7], [True, False], [7, None]),
        ([7, 0], [True, False], [7, None]),
        ([], [False, False], [None, None]),
        ([7, 8], [True, True], [7, 8]),
        ([7, 8], [], [7, 8]),
        ([], [], [None, None]),
        ([8], [False, True], [None, 8]),
    ],
    ids=["compact", "expanded", "all null", "all valid", "old client", "empty column", "compact, second"],
)
def test_nulls_are_read_in_every_form(
    values: list[int], valid: list[bool], expected: list[int | None]
) -> None:
    column = scalar_data("x", DataType.INT32, values, valid)
    batch = decode(with_field(DataType.INT32, nullable=True), KEYS, VECTORS, column)
    assert batch.column("x").to_pylist() == expected
    filled = decode(with_field(DataType.INT32, default_value=5), KEYS, VECTORS, column)
    assert filled.column("x").to_pylist() == [5 if value is None else value for value in expected]


def test_a_missing_field_gets_its_default_or_null() -> None:
    nullable = decode(with_field(DataType.VARCHAR, max_length=9, nullable=True), KEYS, VECTORS)
    assert nullable.column("x").to_pylist() == [None, None]
    filled = decode(with_field(DataType.VARCHAR, max_length=9, default_value="anon"), KEYS, VECTORS)
    assert filled.column("x").to_pylist() == ["anon", "anon"]
    assert filled.schema == with_field(DataType.VARCHAR, max_length=9).arrow_schema


def test_nulls_of_json_and_strings_are_spread_too() -> None:
    texts = scalar_data("x", DataType.VARCHAR, ["b"], [False, True])
    batch = decode(with_field(DataType.VARCHAR, max_length=9, nullable=True), KEYS, VECTORS, texts)
    assert batch.column("x").to_pylist() == [None, "b"]
    documents = scalar_data("x", DataType.JSON, [b"{}"], [True, False])
    batch = decode(with_field(DataType.JSON, nullable=True), KEYS, VECTORS, documents)
    assert batch.column("x").to_pylist() == ["{}", None]


@pytest.mark.parametrize(
    ("data_type", "values", "expected", "more"),
    [
        (DataType.JSON, [b'{"a":1}', b""], ['{"a":1}', None], {}),
        (DataType.JSON, [b"7", b"\xff{"], ["7", None], {}),
        (DataType.VARCHAR, ["ok", "far too long"], ["ok", None], {"max_length": 3}),
        (DataType.INT8, [5, 1000], [5, None], {}),
        (DataType.BOOL, [True, True], [True, None], {}),
        (DataType.DOUBLE, [0.5, float("nan")], [0.5, None], {}),
    ],
)
def test_what_a_null_row_holds_is_not_read(
    data_type: DataType, values: list[Any], expected: list[Any], more: dict[str, Any]
) -> None:
    column = scalar_data("x", data_type, values, [True, False])
    batch = decode(with_field(data_type, nullable=True, **more), KEYS, VECTORS, column)
    assert batch.column("x").to_pylist() == expected


def test_a_bad_document_before_a_null_row_is_named_by_its_row() -> None:
    column = scalar_data("x", DataType.JSON, [b"", b"{"], [False, True])
    with pytest.raises(InvalidParameter, match="json field 'x' is illegal in row 1"):
        decode(with_field(DataType.JSON, nullable=True), KEYS, VECTORS, column)


@steady
@given(st.lists(st.none() | st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=40), st.booleans())
def test_nullable_columns_come_back_as_sent(values: list[int | None], compact: bool) -> None:
    valid = [value is not None for value in values]
    sent = [value for value in values if value is not None] if compact else [value or 0 for value in values]
    column = scalar_data("x", DataType.INT16, sent, valid)
    rows = len(values)
    batch = decode(
        with_field(DataType.INT16, nullable=True),
        scalar_data("id", DataType.INT64, range(rows)),
        float_vectors("vector", np.zeros((rows, 4))),
        column,
        rows=rows,
    )
    assert batch.column("x").to_pylist() == values


# dynamic fields and generated keys

DYNAMIC = schema(VECTOR, dynamic=True)


@pytest.mark.parametrize("name", ["", "$meta"], ids=["2.3 client", "newer client"])
def test_dynamic_rows_arrive_under_either_name(name: str) -> None:
    column = dynamic_data([b'{"a": 1}', b"{}"], name)
    assert decode(DYNAMIC, KEYS, VECTORS, column).column("$meta").to_pylist() == ['{"a":1}', "{}"]


def test_dynamic_rows_that_are_not_sent_are_empty() -> None:
    assert decode(DYNAMIC, KEYS, VECTORS).column("$meta").to_pylist() == ["{}", "{}"]


def test_a_generated_key_is_left_out_of_inserts_and_taken_in_upserts() -> None:
    given_schema = CollectionSchema(
        "books", (field("id", DataType.INT64, is_primary=True, auto_id=True), VECTOR)
    )
    assert decode(given_schema, VECTORS).schema.names == ["vector"]
    assert decode(given_schema, VECTORS, KEYS, auto=True).schema.names == ["id", "vector"]
    with pytest.raises(InvalidParameter, match="allow_insert_auto_id is false id: leave the key out"):
        decode(given_schema, KEYS, VECTORS)
    with pytest.raises(InvalidParameter, match=r"fieldSchema\(id\) has no corresponding fieldData"):
        decode(given_schema, VECTORS, auto=True)


# refusals

X = DataType.INT64


@pytest.mark.parametrize(
    ("given_schema", "columns", "text"),
    [
        (PLAIN, [KEYS], "fieldSchema(vector) has no corresponding fieldData pass in"),
        (PLAIN, [VECTORS], "fieldSchema(id) has no corresponding fieldData pass in"),
        (PLAIN, [KEYS, KEYS, VECTORS], "duplicated field id found"),
        (PLAIN, [KEYS, VECTORS, scalar_data("y", X, [1, 2])], "field y does not exist in the schema"),
        (PLAIN, [KEYS, VECTORS, dynamic_data([b"{}"] * 2)], "without dynamic schema enabled"),
        (
            PLAIN,
            [scalar_data("id", X, [1]), VECTORS],
            "the num_rows (1) of field (id) is not equal to passed num_rows (2)",
        ),
        (PLAIN, [KEYS, float_vectors("vector", [[0, 1, 2, 3]])], "the num_rows (1) of field (vector)"),
        (PLAIN, [scalar_data("id", DataType.INT32, [1, 2]), VECTORS], "INT64 in the schema, but the data"),
        (PLAIN, [scalar_data("id", DataType.VARCHAR, ["1", "2"]), VECTORS], "passed has VARCHAR"),
        (
            PLAIN,
            [KEYS, float_vectors("vector", [[0, np.nan, 2, 3]] * 2)],
            "value 'NaN' is not a number or inf",
        ),
        (
            PLAIN,
            [KEYS, float_vectors("vector", [[0, 1, 2, 3], [0, -np.inf, 0, 0]])],
            "'-Inf' is not a number",
        ),
        (
            with_field(DataType.INT8),
            [KEYS, VECTORS, scalar_data("x", DataType.INT8, [1, 300])],
            "1th element (300)",
        ),
        (
            with_field(DataType.INT16),
            [KEYS, VECTORS, scalar_data("x", DataType.INT16, [-40000, 1])],
            "[-32768, 32767]",
        ),
        (
            with_field(DataType.VARCHAR, max_length=5),
            [KEYS, VECTORS, scalar_data("x", DataType.VARCHAR, ["a", "ééé"])],
            "the length (6) of 1th string exceeds max length (5)",
        ),
        (
            with_field(DataType.VARCHAR, max_length=5),
            [KEYS, VECTORS, scalar_data("x", DataType.VARCHAR, ["a", "ééé"])],
            "length of varchar field x exceeds max length, row number: 1, length: 6, max length: 5",
        ),
        (
            with_field(DataType.FLOAT),
            [KEYS, VECTORS, scalar_data("x", DataType.FLOAT, [1, float("nan")])],
            "value 'NaN' is not a number or infinity: field x, row 1",
        ),
        (
            with_field(DataType.DOUBLE, nullable=True),
            [KEYS, VECTORS, scalar_data("x", DataType.DOUBLE, [1, float("-inf")], [False, True])],
            "value '-Inf' is not a number or infinity: field x, row 1",
        ),
        (
            with_field(DataType.INT64),
            [KEYS, VECTORS, scalar_data("x", DataType.INT64, [1], [True, False])],
            "field x is null in row 1",
        ),
        (
            with_field(DataType.INT64, nullable=True),
            [KEYS, VECTORS, scalar_data("x", DataType.INT64, [1], [True])],
            "the length of valid_data of field(x) is wrong",
        ),
        (
            with_field(DataType.INT64, nullable=True),
            [KEYS, VECTORS, scalar_data("x", DataType.INT64, [1, 2, 3], [True, False])],
            "the num_rows (3) of field (x)",
        ),
        (DYNAMIC, [KEYS, VECTORS, dynamic_data([b"{}"])], "the num_rows (1) of field ($meta)"),
        (
            DYNAMIC,
            [KEYS, VECTORS, dynamic_data([b"{}", b"[1]"])],
            "row 1 of field $meta must be a JSON object",
        ),
        (
            DYNAMIC,
            [KEYS, VECTORS, dynamic_data([b"{}", b'{"$meta":1}'])],
            "cannot set json key to: $meta (row 1)",
        ),
    ],
)
def test_bad_columns_are_refused(given_schema: CollectionSchema, columns: list[Message], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        decode(given_schema, *columns)
    assert text in refusal.value.message


def test_a_type_that_does_not_exist_is_refused() -> None:
    column = scalar_data("id", DataType.INT64, [1, 2])
    column.type = 77
    with pytest.raises(InvalidParameter, match="passed has the unknown type 77"):
        decode(PLAIN, column, VECTORS)


def test_the_name_of_the_dynamic_field_may_stand_in_a_value() -> None:
    column = dynamic_data([b'{"a":"\\"$meta\\""}', b'{"b":{"$meta":1}}'])
    assert decode(DYNAMIC, KEYS, VECTORS, column).num_rows == 2


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (
            float_vectors("vector", [[0] * 8] * 2),
            "the dim (8) of field data(vector) is not equal to schema dim (4)",
        ),
        (
            float_vectors("vector", [[0] * 5] * 2),
            "the length(10) of float data should divide the dim(4)",
        ),
        (
            float_vectors("vector", [[0, 1, 2]] * 2, dim=4),
            "the length(6) of float data should divide the dim(4)",
        ),
    ],
)
def test_vectors_of_another_dimension_are_refused(column: Message, text: str) -> None:
    with pytest.raises(InvalidDimension) as refusal:
        decode(PLAIN, KEYS, column)
    assert text in refusal.value.message


def test_binary_vectors_of_another_length_are_refused() -> None:
    given_schema = schema(field("bits", DataType.BINARY_VECTOR, dim=16))
    with pytest.raises(InvalidDimension, match=r"the num\(24\) of all bits should divide the dim\(16\)"):
        decode(given_schema, KEYS, binary_vectors("bits", b"abc", 16))
    with pytest.raises(InvalidParameter, match=r"the num_rows \(1\) of field \(bits\)"):
        decode(given_schema, KEYS, binary_vectors("bits", b"ab", 16))


def test_values_of_another_kind_than_their_type_says_are_refused() -> None:
    column = scalar_data("id", DataType.INT64, [1, 2])
    column.scalars.float_data.data.extend([0.5, 1.5])
    with pytest.raises(InvalidParameter, match="needs long_data, but float_data was passed"):
        decode(PLAIN, column, VECTORS)


@pytest.mark.parametrize("rows", [0, -1])
def test_a_request_without_rows_is_refused(rows: int) -> None:
    with pytest.raises(InvalidParameter, match="num_rows should be greater than 0"):
        decode(PLAIN, KEYS, VECTORS, rows=rows)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"{", "illegal in row 1"),
        (b"", "illegal in row 1"),
        (b"NaN", "illegal in row 1"),
        (b'{"a":1} x', "trailing characters"),
        (b'"\xff"', "illegal in row 1"),
        (b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b'"' + b"a" * 70_000 + b'"', "the length (70002) of json field (x) exceeds max length (65536)"),
    ],
    ids=["open", "empty", "NaN", "two", "not UTF-8", "deep", "long"],
)
def test_a_document_that_is_no_json_is_refused(document: bytes, text: str) -> None:
    column = scalar_data("x", DataType.JSON, [b"{}", document])
    with pytest.raises(InvalidParameter) as refusal:
        decode(with_field(DataType.JSON), KEYS, VECTORS, column)
    assert text in refusal.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@steady
@given(st.lists(json_values, min_size=1, max_size=5))
def test_any_json_keeps_its_meaning(values: list[Any]) -> None:
    rows = len(values)
    batch = decode(
        with_field(DataType.JSON),
        scalar_data("id", DataType.INT64, range(rows)),
        float_vectors("vector", np.zeros((rows, 4))),
        scalar_data("x", DataType.JSON, [json.dumps(value, indent=1).encode() for value in values]),
        rows=rows,
    )
    assert [json.loads(text) for text in batch.column("x").to_pylist()] == values
