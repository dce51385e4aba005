"""The conversion of a user's Parquet columns, and the error for each kind of misfit."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidParameter
from elanus.core.given_types import check_columns
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.sent_keys import marked
from elanus.pipeline.import_columns import Place, convert

HERE = Place("a.parquet", row_group=2, first_row=100)


def field(name: str, data_type: DataType, **options: Any) -> FieldSchema:
    return FieldSchema(FieldID(100), name, data_type, **options)


def schema(*fields: FieldSchema, auto_id: bool = False, dynamic: bool = False) -> CollectionSchema:
    key = field("id", DataType.INT64, is_primary=True, auto_id=auto_id)
    meta = (field("$meta", DataType.JSON, is_dynamic=True),) if dynamic else ()
    return CollectionSchema("docs", (key, *fields, *meta), enable_dynamic=dynamic)


def imported(of: CollectionSchema, **columns: Any) -> pa.RecordBatch:
    """A file's columns through both steps, as a task takes them."""
    rows = pa.record_batch({name: as_array(values) for name, values in columns.items()})
    check_columns(of, rows.schema, HERE.file)
    keys = pa.array(range(rows.num_rows)) if of.primary_field.auto_id else None
    converted = convert(of, rows, keys, HERE)
    assert converted.schema.equals(of.arrow_schema)
    converted.validate(full=True)
    return converted


def as_array(values: Any) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values)


def typed(values: list[Any], found: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(found):
        return pa.array(values, found.value_type).dictionary_encode()
    if pa.types.is_decimal(found):
        return pa.array([decimal.Decimal(value) for value in values], found)
    return pa.array(values).cast(found)


def column(of: FieldSchema, values: Any) -> list[Any]:
    """The values of one field after its import."""
    found: list[Any] = imported(schema(of), id=range(len(values)), **{of.name: values})[of.name].to_pylist()
    return found


@pytest.mark.parametrize(
    ("data_type", "found", "values"),
    [
        (DataType.BOOL, pa.bool_(), [True, False]),
        (DataType.INT8, pa.int64(), [-128, 127]),
        (DataType.INT16, pa.uint16(), [0, 32767]),
        (DataType.INT32, pa.int8(), [-1, 1]),
        (DataType.INT64, pa.uint64(), [0, 2**63 - 1]),
        (DataType.INT64, pa.dictionary(pa.int32(), pa.int64()), [7, 7]),
        (DataType.FLOAT, pa.float64(), [0.5, -2.0]),
        (DataType.DOUBLE, pa.float32(), [0.5, -2.0]),
        (DataType.DOUBLE, pa.int64(), [3, 2**53]),
        (DataType.DOUBLE, pa.decimal128(38, 2), [0.25, -1e20]),
        (DataType.FLOAT, pa.decimal128(4, 2), [0.25, 3.5]),
        (DataType.INT64, pa.decimal128(18, 0), [10**18 - 1, -7]),
        (DataType.INT8, pa.decimal128(3, 0), [127, -128]),
    ],
)
def test_numbers_of_any_width_fit_if_their_values_do(
    data_type: DataType, found: pa.DataType, values: list[Any]
) -> None:
    assert column(field("x", data_type), typed(values, found)) == values


@pytest.mark.parametrize(
    ("data_type", "found", "wrong"),
    [
        (DataType.INT8, pa.int64(), 128),
        (DataType.INT8, pa.uint8(), 200),
        (DataType.INT32, pa.int64(), -(2**31) - 1),
        (DataType.INT64, pa.uint64(), 2**63),
        (DataType.FLOAT, pa.float64(), 1e39),
        (DataType.FLOAT, pa.int64(), 2**24 + 1),
        (DataType.DOUBLE, pa.int64(), 2**53 + 1),
        (DataType.DOUBLE, pa.int64(), 2**63 - 1),
        (DataType.FLOAT, pa.uint64(), 2**64 - 1),
        (DataType.INT8, pa.decimal128(3, 0), 128),
    ],
)
def test_a_number_that_does_not_fit_is_named_with_its_row(
    data_type: DataType, found: pa.DataType, wrong: float
) -> None:
    with pytest.raises(InvalidParameter) as error:
        column(field("x", data_type), pa.array([1, wrong], found))
    assert error.value.message == (
        f"a.parquet, row group 2, row 101: field x cannot hold {pa.scalar(wrong, found).as_py()}: "
        f"its type is {data_type.name}"
    )


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_no_integer_is_ever_changed(values: list[int]) -> None:
    try:
        kept = column(field("x", DataType.INT16), pa.array(values, pa.int64()))
    except InvalidParameter:
        assert any(not -(2**15) <= v < 2**15 for v in values)
    else:
        assert kept == values


def test_floats_that_are_no_numbers_are_refused_as_inserts_refuse_them() -> None:
    with pytest.raises(InvalidParameter, match="row 101: field x holds inf: numbers are finite"):
        column(field("x", DataType.FLOAT), pa.array([1.0, math.inf], pa.float64()))


@pytest.mark.parametrize("found", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_strings(found: pa.DataType) -> None:
    values = ["ü", "abcd"]
    assert column(field("x", DataType.VARCHAR, max_length=4), typed(values, found)) == values


@pytest.mark.parametrize("found", [pa.int64(), pa.uint8(), pa.float16(), pa.float32(), pa.decimal128(6, 1)])
def test_vectors_of_bytes_as_numbers_also_as_a_reader_has_them(found: pa.DataType) -> None:
    """Spark reads them as arrays of floats, and a table of theirs is inserted into by the same type."""
    of, ok = field("x", DataType.INT8_VECTOR, dim=2), typed([3, 127, 0, 1], found)
    given = pa.ListArray.from_arrays([0, 2, 4], ok)
    assert column(of, given) == [bytes([3, 127]), bytes([0, 1])]
    wrong = [128] if pa.types.is_integer(found) else [128, -129, 0.5]
    for value in [*wrong, *([math.nan, math.inf] if pa.types.is_floating(found) else [])]:
        bad = pa.concat_arrays([ok.slice(1), typed([value], found)])
        with pytest.raises(InvalidParameter, match=r"row 101: field x holds .* at position 1: values"):
            column(of, pa.ListArray.from_arrays([0, 2, 4], bad))


def test_a_string_longer_than_its_field_counts_in_bytes() -> None:
    with pytest.raises(
        InvalidParameter, match="row 101: field x is 6 bytes long, its max_length is 4: 'üüü'"
    ):
        column(field("x", DataType.VARCHAR, max_length=4), ["ab", "üüü"])


def test_nulls_stay_become_the_default_or_are_refused() -> None:
    assert column(field("x", DataType.INT32, nullable=True), [1, None]) == [1, None]
    assert column(field("x", DataType.INT32, default_value=5), [1, None]) == [1, 5]
    assert column(field("x", DataType.JSON, nullable=True), ["[1, 2]", None, "{}"]) == ["[1,2]", None, "{}"]
    with pytest.raises(InvalidParameter, match="row 101: field x is null: it is neither nullable nor has a"):
        column(field("x", DataType.INT32), [1, None])


def test_a_column_of_nothing_but_nulls_has_no_type_of_its_own() -> None:
    """As pandas writes it."""
    nothing = pa.nulls(2)
    assert column(field("x", DataType.VARCHAR, nullable=True, max_length=9), nothing) == [None, None]
    assert column(field("x", DataType.JSON, nullable=True), nothing) == [None, None]
    assert column(field("x", DataType.INT32, default_value=5), nothing) == [5, 5]
    with pytest.raises(InvalidParameter, match="row 100: field x is null: it is neither nullable nor has a"):
        column(field("x", DataType.VARCHAR, max_length=9), nothing)


@pytest.mark.parametrize(
    ("data_type", "found"),
    [
        (DataType.FLOAT_VECTOR, pa.list_(pa.float32())),
        (DataType.FLOAT16_VECTOR, pa.list_(pa.float32())),
        (DataType.BFLOAT16_VECTOR, pa.list_(pa.float32())),
        (DataType.INT8_VECTOR, pa.list_(pa.float32())),
        (DataType.INT8_VECTOR, pa.list_(pa.int8())),
        (DataType.BINARY_VECTOR, pa.binary()),
    ],
)
def test_a_batch_of_nothing_but_absent_vectors(data_type: DataType, found: pa.DataType) -> None:
    assert column(field("x", data_type, dim=8, nullable=True), pa.nulls(2, found)) == [None, None]


def test_a_column_that_is_not_there_is_its_default_or_null() -> None:
    optional = schema(
        field("a", DataType.INT32, default_value=5), field("b", DataType.VARCHAR, nullable=True)
    )
    rows = imported(optional, id=[1, 2])
    assert (rows["a"].to_pylist(), rows["b"].to_pylist()) == ([5, 5], [None, None])


def test_json_is_checked_and_compact() -> None:
    assert column(field("x", DataType.JSON), [b'{"a": [1, 2.0]}', b"null"]) == ['{"a":[1,2.0]}', "null"]
    with pytest.raises(
        InvalidParameter, match=r"a.parquet, row group 2: json field 'x' is illegal in row 101"
    ):
        column(field("x", DataType.JSON), ["{}", "{"])


VECTORS = [[1.0, 2.0], [-3.0, 0.5]]


@pytest.mark.parametrize(
    "found",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float16(), 2),
    ],
)
def test_float_vectors_of_every_form(found: pa.DataType) -> None:
    values = pa.array(VECTORS, pa.list_(pa.float32())).cast(found)
    assert column(field("v", DataType.FLOAT_VECTOR, dim=2), values) == VECTORS
    part = schema(field("v", DataType.FLOAT_VECTOR, dim=2))
    rows = pa.record_batch({"id": pa.array([1, 2]), "v": values}).slice(1)
    assert convert(part, rows, None, HERE)["v"].to_pylist() == VECTORS[1:]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [1.0]], "row 101: field v has 1 values, its dimension asks for 2"),
        ([[1.0, 2.0], None], "row 101: field v is null"),
        ([[1.0, 2.0], [1.0, None]], "row 101: field v holds a null among its numbers"),
        ([[1.0, 2.0], [1.0, math.inf]], "row 101: field v holds inf at position 1: vectors are finite"),
        ([[1.0, 2.0], [1e39, 1.0]], "row 101: field v holds 1e.39 at position 0: vectors are finite"),
    ],
)
def test_a_float_vector_that_does_not_fit(values: list[Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        column(field("v", DataType.FLOAT_VECTOR, dim=2), values)


BITS = [b"\x01\x02", b"\xff\x00"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(BITS, pa.binary()),
        pa.array(BITS, pa.large_binary()),
        pa.array(BITS, pa.binary(2)),
        pa.array([list(b) for b in BITS], pa.list_(pa.uint8())),
        pa.array([list(b) for b in BITS], pa.list_(pa.uint8(), 2)),
    ],
)
def test_binary_vectors_of_every_form(values: pa.Array) -> None:
    assert column(field("v", DataType.BINARY_VECTOR, dim=16), values) == BITS


def test_a_binary_vector_of_another_width() -> None:
    with pytest.raises(InvalidParameter, match="row 101: field v has 1 bytes, its dimension asks for 2"):
        column(field("v", DataType.BINARY_VECTOR, dim=16), [b"ab", b"a"])


def test_further_columns_become_keys_of_dynamic_rows() -> None:
    found = imported(
        schema(dynamic=True),
        id=[1, 2, 3],
        n=[1, None, 3],
        f=[0.1, 1e300, None],
        s=['q"uote', "ü\n", None],
        b=[True, None, False],
        nothing=pa.nulls(3),
        nested=[{"x": [1, None]}, None, {"x": []}],
    )["$meta"].to_pylist()
    assert [json.loads(text) for text in found] == [
        {"n": 1, "f": 0.1, "s": 'q"uote', "b": True, "nested": {"x": [1, None]}},
        {"f": 1e300, "s": "ü\n"},
        {"n": 3, "b": False, "nested": {"x": []}},
    ]


@pytest.mark.parametrize("found", [pa.float16(), pa.float32(), pa.float64()])
def test_whole_floats_stay_floats_in_dynamic_rows(found: pa.DataType) -> None:
    """To a filter 7 / 2 is 3 and 7.0 / 2 is 3.5."""
    floats = pa.array([6.5, 7.0, -0.0, -12.0, None]).cast(found)
    rows = imported(schema(dynamic=True), id=range(5), f=floats)["$meta"]
    assert rows.to_pylist() == ['{"f":6.5}', '{"f":7.0}', '{"f":-0.0}', '{"f":-12.0}', "{}"]


def test_floats_of_any_size_stay_floats_in_dynamic_rows() -> None:
    values = [1e9, 1e10, 2.0**53, 1e300, -5e-324, 1.7976931348623157e308, 1e-5, 123456789.0]
    rows = imported(schema(dynamic=True), id=range(len(values)), f=values)["$meta"].to_pylist()
    found = [json.loads(text)["f"] for text in rows]
    assert found == values
    assert set(map(type, found)) == {float}


def test_rows_without_anything_dynamic_are_empty_objects() -> None:
    assert imported(schema(dynamic=True), id=[1, 2])["$meta"].to_pylist() == ["{}", "{}"]
    assert (
        imported(schema(dynamic=True), id=[1, 2], n=pa.nulls(2, pa.int8()))["$meta"].to_pylist() == ["{}"] * 2
    )


def test_a_meta_column_holds_objects() -> None:
    rows = imported(schema(dynamic=True), id=[1, 2], **{"$meta": ['{"a": 1}', None]})
    assert rows["$meta"].to_pylist() == ['{"a":1}', "{}"]
    with pytest.raises(InvalidParameter, match=r"row 101 of field \$meta must be a JSON object"):
        imported(schema(dynamic=True), id=[1, 2], **{"$meta": ["{}", "7"]})


def test_automatic_keys() -> None:
    assert imported(schema(field("x", DataType.INT8), auto_id=True), x=[5, 6])["id"].to_pylist() == [0, 1]


def test_keys_of_a_file_are_taken_where_the_collection_allows_it() -> None:
    taking = marked(schema(field("x", DataType.INT8), auto_id=True))
    assert imported(taking, id=[7, 3], x=[5, 6])["id"].to_pylist() == [7, 3]
    assert imported(taking, x=[5, 6])["id"].to_pylist() == [0, 1]
    with pytest.raises(InvalidParameter, match=r"row 1.* id"):
        imported(taking, id=[7, None], x=[5, 6])
    own = schema()
    assert marked(own) is own


@pytest.mark.parametrize(
    ("of", "columns", "message"),
    [
        (schema(field("x", DataType.INT8)), {"id": [1]}, "a.parquet has no column x, which collection docs"),
        (schema(), {"id": [1], "y": [1]}, "column y is no field of collection docs: leave it out, or create"),
        (schema(auto_id=True), {"id": [1]}, "primary key id is generated by the server"),
        (schema(), {"id": ["a"]}, "column id has type string, which does not fit field id of type INT64"),
        (schema(dynamic=True), {"id": [1], "$meta": ["{}"], "y": [1]}, "give either"),
        (
            schema(field("v", DataType.FLOAT_VECTOR, dim=3)),
            {"id": [1], "v": pa.array([[1.0]], pa.list_(pa.float32(), 1))},
            r"does not fit field v of type FLOAT_VECTOR with dim 3",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_any_row_is_read(
    of: CollectionSchema, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        imported(of, **columns)


MOMENT_NS = 1_700_000_000_123_456_789
MOMENTS = pa.struct({"a": pa.list_(pa.timestamp("ns", "UTC"))})
BLOB = pa.struct({"a": pa.list_(pa.large_binary())})
NESTED = pa.struct(
    {
        "prices": pa.list_(pa.decimal128(4, 2)),
        "day": pa.date32(),
        "of": pa.map_(pa.string(), pa.int32()),
    }
)


def test_a_dynamic_value_that_json_cannot_hold() -> None:
    with pytest.raises(InvalidParameter, match="row 101: field f is nan, which JSON has no word for"):
        imported(schema(dynamic=True), id=[1, 2], f=np.array([1.0, np.nan]))
    for found, value in ((pa.binary(), b"x"), (pa.list_(pa.binary()), [b"x"]), (BLOB, {"a": [b"x"]})):
        with pytest.raises(InvalidParameter, match=r"column d of type .*binary.* has no form in JSON"):
            imported(schema(dynamic=True), id=[1], d=pa.array([value], found))


@pytest.mark.parametrize(
    ("value", "found", "expected"),
    [
        ([MOMENT_NS], pa.list_(pa.timestamp("ns")), ["2023-11-14T22:13:20.123456"]),
        ([MOMENT_NS], pa.list_(pa.timestamp("ns"), 1), ["2023-11-14T22:13:20.123456"]),
        ({"a": [MOMENT_NS]}, MOMENTS, {"a": ["2023-11-14T22:13:20.123456Z"]}),
        ([("k", MOMENT_NS)], pa.map_(pa.string(), pa.timestamp("ns")), {"k": "2023-11-14T22:13:20.123456"}),
    ],
)
def test_moments_inside_of_dynamic_values_are_cut_to_microseconds(
    value: object, found: pa.DataType, expected: object
) -> None:
    """pandas and Parquet files have nanoseconds."""
    [row, other] = imported(schema(dynamic=True), id=[1, 2], d=pa.array([value, None], found)).to_pylist()
    assert json.loads(row["$meta"]) == {"d": expected}
    assert json.loads(other["$meta"]) == {}


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ([1.0, None], [math.inf], pa.list_(pa.float64())),
        ({"a": [1.0]}, {"a": [2.0, math.nan]}, pa.struct({"a": pa.list_(pa.float32())})),
        ([("x", 1.0)], [("x", -math.inf)], pa.map_(pa.string(), pa.float64())),
    ],
)
def test_a_float_within_a_dynamic_value_that_is_no_number(
    right: object, wrong: object, found: pa.DataType
) -> None:
    fine = pa.array([right, None], found)
    assert len(imported(schema(dynamic=True), id=[1, 2], f=fine)) == 2
    with pytest.raises(InvalidParameter, match="row 102: field f holds a nan or an inf, which JSON has no"):
        imported(schema(dynamic=True), id=[1, 2, 3], f=pa.array([right, None, wrong], found))


def test_decimals_are_elements_of_vectors_and_arrays() -> None:
    """Spark's ``array(1.5, 2.5)`` is an array of decimals."""
    halves = pa.array([[decimal.Decimal("1.5"), decimal.Decimal("2.5")]], pa.list_(pa.decimal128(2, 1)))
    assert column(field("v", DataType.FLOAT_VECTOR, dim=2), halves) == [[1.5, 2.5]]
    elements = field("a", DataType.ARRAY, element_type=DataType.DOUBLE, max_capacity=4)
    assert column(elements, halves) == [[1.5, 2.5]]


@pytest.mark.parametrize("found", [pa.decimal128(19, 0), pa.decimal128(5, 1)])
def test_decimals_that_may_be_no_integer_are_refused(found: pa.DataType) -> None:
    with pytest.raises(InvalidParameter, match="which does not fit field x of type INT64"):
        check_columns(schema(field("x", DataType.INT64)), pa.schema({"id": pa.int64(), "x": found}), "f")


def test_a_map_with_a_key_twice_is_no_object() -> None:
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
    with pytest.raises(
        InvalidParameter, match=r"row 10\d: field m has a value that has no form in JSON: .*a"
    ):
        imported(schema(dynamic=True), id=[1], m=twice)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 4_000_000], pa.date32()),
        pa.array([0, -(2**60)], pa.timestamp("us", "UTC")),
        pa.StructArray.from_arrays([pa.array([0, 2**60], pa.timestamp("us"))], ["at"]),
    ],
)
def test_times_of_dynamic_rows_beyond_the_years_of_iso_8601_are_refused_by_their_row(
    values: pa.Array,
) -> None:
    """Spark's reach from the year -290308 to 294247."""
    with pytest.raises(
        InvalidParameter, match=r"row 101: field d has .* no form in JSON: .* years 1 to 9999"
    ):
        imported(schema(dynamic=True), id=[1, 2], d=values)


def test_decimals_dates_and_maps_in_dynamic_rows() -> None:
    """The same within lists and structs: Spark's literal 1.5 is a decimal, and its maps are objects."""
    day, price = datetime.date(2026, 11, 23), decimal.Decimal("1.50")
    found = imported(
        schema(dynamic=True),
        id=[1, 2],
        price=pa.array([price, None]),
        day=pa.array([day, None]),
        at=pa.array([datetime.datetime(2026, 11, 23, 12), None], pa.timestamp("ns", "UTC")),
        sizes=pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int32())),
        nested=pa.array([{"prices": [price], "day": day, "of": [("x", 1)]}, None], NESTED),
    )["$meta"].to_pylist()
    assert [json.loads(text) for text in found] == [
        {
            "price": 1.5,
            "day": "2026-11-23",
            "at": "2026-11-23T12:00:00Z",
            "sizes": {"a": 1, "b": None},
            "nested": {"prices": [1.5], "day": "2026-11-23", "of": {"x": 1}},
        },
        {},
    ]
