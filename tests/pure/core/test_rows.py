"""Row validation, the same for every front."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.quarantine import misfit_rows
from elanus.core.row_faults import Fault, Problem
from elanus.core.rows import Given, check_sent, conform
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

VECTOR = FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2)
VECTORS = Given(pa.array([[1.0, 2.0], [3.0, 4.0]], VECTOR.arrow_type))
KEYS = Given(pa.array([1, 2], pa.int64()))


def schema(*fields: FieldSchema, auto_id: bool = False, dynamic: bool = False) -> CollectionSchema:
    key = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True, auto_id=auto_id)
    meta = (FieldSchema(FieldID(102), "$meta", DataType.JSON, is_dynamic=True),) if dynamic else ()
    return CollectionSchema("c", (key, VECTOR, *fields, *meta), enable_dynamic=dynamic)


def x(data_type: DataType, **more: Any) -> FieldSchema:
    return FieldSchema(FieldID(110), "x", data_type, **more)


def conformed(of: CollectionSchema, *, with_auto_key: bool = True, **more: Given) -> pa.RecordBatch:
    given = {"id": KEYS, "v": VECTORS, **more}
    return conform(of, lambda field: given.get(field.name), 2, with_auto_key=with_auto_key)


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        (x(DataType.INT8), Given(pa.array([-128, 127], pa.int32())), [-128, 127]),
        (x(DataType.DOUBLE), Given(pa.array([1, 2], pa.int64())), [1.0, 2.0]),
        (x(DataType.VARCHAR, max_length=2), Given(pa.array(["é", ""], pa.large_string())), ["é", ""]),
        (x(DataType.JSON), Given([b'{"a": 1}', b"null"]), ['{"a":1}', "null"]),
        (x(DataType.INT8, nullable=True), Given(pa.array([7]), np.array([False, True])), [None, 7]),
        (x(DataType.INT8, default_value=5), Given(pa.array([7]), np.array([False, True])), [5, 7]),
        (x(DataType.JSON, nullable=True), Given([b"1"], np.array([True, False])), ["1", None]),
        (x(DataType.INT8, default_value=5), None, [5, 5]),
        (x(DataType.VARCHAR, max_length=2, nullable=True), None, [None, None]),
    ],
)
def test_what_fits_becomes_the_columns_of_the_schema(
    field: FieldSchema, given: Given | None, expected: list[object]
) -> None:
    of = schema(field)
    rows = conformed(of, **({} if given is None else {"x": given}))
    assert rows.column("x").to_pylist() == expected
    assert rows.schema == of.arrow_schema
    assert misfit_rows(rows, of) == ""


def test_dynamic_rows_that_are_not_given_are_empty() -> None:
    assert conformed(schema(dynamic=True)).column("$meta").to_pylist() == ["{}", "{}"]


def test_a_generated_key_is_left_out_unless_it_names_rows() -> None:
    assert conformed(schema(auto_id=True), with_auto_key=False).schema.names == ["v"]
    assert conformed(schema(auto_id=True)).schema.names == ["id", "v"]


SECOND = np.array([False, True])


@pytest.mark.parametrize(
    ("field", "given", "problem", "row", "value"),
    [
        (x(DataType.INT8), Given(pa.array([1, 300])), Problem.NUMBER, 1, 300),
        (x(DataType.INT8, nullable=True), Given(pa.array([300]), SECOND), Problem.NUMBER, 1, 300),
        (x(DataType.FLOAT), Given(pa.array([1e39, 1.0])), Problem.NUMBER, 0, 1e39),
        (x(DataType.VARCHAR, max_length=1), Given(pa.array(["a", "é"])), Problem.LENGTH, 1, "é"),
        (x(DataType.INT8), Given(pa.array([1], pa.int8()), SECOND), Problem.NULL, 0, None),
        (x(DataType.JSON), Given([b"{}", b"{"]), Problem.DOCUMENT, 0, None),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_row(
    field: FieldSchema, given: Given, problem: Problem, row: int, value: object
) -> None:
    found: list[Fault] = []

    def refusal(fault: Fault) -> InvalidParameter:
        found.append(fault)
        return InvalidParameter("as this front says it")

    columns = {"id": KEYS, "v": VECTORS, "x": given}
    with pytest.raises(InvalidParameter, match="as this front says it"):
        conform(schema(field), lambda f: columns[f.name], 2, with_auto_key=True, refusal=refusal)
    (fault,) = found
    assert (fault.field, fault.problem, fault.row, fault.value) == (field, problem, row, value)


def test_a_vector_is_finite_and_shown_as_it_was_given() -> None:
    infinite = pa.array([[1.0, 2.0], [3.0, float("inf")]], VECTOR.arrow_type)
    with pytest.raises(InvalidParameter, match=r"value '\+Inf' is not a number or infinity: field v, row 1"):
        conformed(schema(), v=Given(infinite))
    found: list[Fault] = []
    shown = Given(infinite, shown=pa.array([1.0, 2.0, 3.0, 1e39]))
    with pytest.raises(InvalidParameter):
        conform(
            schema(),
            lambda f: {"id": KEYS, "v": shown}[f.name],
            2,
            with_auto_key=True,
            refusal=lambda fault: found.append(fault) or InvalidParameter("no"),
        )
    assert (found[0].row, found[0].position, found[0].value) == (1, 1, 1e39)


@pytest.mark.parametrize(
    ("of", "sent", "text"),
    [
        (schema(), ["id", "y"], "field y does not exist in the schema of collection c"),
        (schema(), ["id", "id"], "duplicated field id found"),
        (schema(), ["$meta"], "without dynamic schema enabled"),
        (
            schema(auto_id=True),
            ["v", "id"],
            "more fieldData has pass in: can not assign primary field data when",
        ),
    ],
)
def test_only_fields_of_the_collection_may_be_sent(of: CollectionSchema, sent: list[str], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        check_sent(of, sent, with_auto_key=False)
    assert text in refusal.value.message


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(InvalidParameter, match=r"fieldSchema\(x\) has no corresponding fieldData"):
        conformed(schema(x(DataType.BOOL)))
