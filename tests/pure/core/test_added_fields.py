"""Adding a field: which may be added, and what rows have in it that were written before."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.field_changes import with_added_field
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.quarantine import Quarantined, checked
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp

OLD = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(102), "stars", DataType.INT8, is_clustering_key=True),
        FieldSchema(FieldID(103), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)
NUMBER = FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True)
TEXT = FieldSchema(FieldID(0), "s", DataType.VARCHAR, max_length=8, nullable=True, default_value="d")
NEW = with_added_field(with_added_field(OLD, NUMBER), TEXT)


def rows(of: CollectionSchema) -> pa.RecordBatch:
    values = {"id": [1, 2], "v": [[1.0, 2.0]] * 2, "stars": [3, 4], "$meta": ["{}"] * 2, "n": [7, None]}
    columns = [pa.array(values.get(f.name, ["t", None]), f.arrow_type) for f in of.fields]
    return pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)


def insert(batch: pa.RecordBatch) -> InsertMessage:
    return InsertMessage(Timestamp(9), "vc", CollectionID(7), PartitionID(1), SegmentID(3), 0, batch)


def test_a_field_is_added_before_the_dynamic_one_under_a_number_of_its_own() -> None:
    assert [f.name for f in NEW.fields] == ["id", "v", "stars", "n", "s", "$meta"]
    assert [f.field_id for f in NEW.fields] == [100, 101, 102, 104, 105, 103]
    assert [f.name for f in NEW.added_fields] == ["n", "s"]


def test_older_rows_have_the_default_or_null() -> None:
    message = checked(insert(rows(OLD)), 0, CollectionID(7), NEW)
    assert isinstance(message, InsertMessage)
    assert message.rows.schema.equals(NEW.arrow_schema)
    assert message.rows.column("n").to_pylist() == [None, None]
    assert message.rows.column("s").to_pylist() == ["d", "d"]
    assert message.rows.select(OLD.arrow_schema.names).equals(rows(OLD))


def test_rows_of_between_and_of_now_fit_too() -> None:
    between = with_added_field(OLD, NUMBER)
    message = checked(insert(rows(between)), 0, CollectionID(7), NEW)
    assert isinstance(message, InsertMessage)
    assert message.rows.column("n").to_pylist() == [7, None]
    assert checked(insert(rows(NEW)), 0, CollectionID(7), NEW) == insert(rows(NEW))


@pytest.mark.parametrize("missing", ["id", "stars", "$meta"])
def test_no_other_column_may_be_missing(missing: str) -> None:
    whole = rows(OLD)
    lacking = whole.select([name for name in whole.schema.names if name != missing])
    assert isinstance(checked(insert(lacking), 0, CollectionID(7), NEW), Quarantined)


def test_rows_with_more_than_the_schema_do_not_fit() -> None:
    assert isinstance(checked(insert(rows(NEW)), 0, CollectionID(7), OLD), Quarantined)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (replace(NUMBER, nullable=False), "added field must be nullable, please check it, field name = n"),
        (replace(NUMBER, is_primary=True), "not support to add pk field, field name = n"),
        (replace(NUMBER, is_partition_key=True), "not support to add partition key field, field name  = n"),
        (replace(NUMBER, is_clustering_key=True), "already has another clustering key field, field name: n"),
        (replace(NUMBER, name="stars"), "duplicated field name stars.* duplicate field name: stars"),
        (replace(NUMBER, name="RowID"), "not support to add system field, field name = RowID"),
        (replace(NUMBER, name="$meta"), r"not support to add system field, field name = \$meta"),
        (
            FieldSchema(FieldID(0), "w", DataType.FLOAT_VECTOR, dim=2),
            "not support to add vector field, field name = w",
        ),
    ],
)
def test_what_cannot_be_added(field: FieldSchema, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        with_added_field(OLD, field)


def test_there_is_a_limit_to_fields() -> None:
    full = OLD
    for number in range(61):
        full = with_added_field(full, replace(NUMBER, name=f"n{number}"))
    with pytest.raises(InvalidParameter, match="The number of fields has reached the maximum value 64"):
        with_added_field(full, NUMBER)


def test_a_nullable_vector_field_may_be_added_up_to_the_limit() -> None:
    full = OLD
    for number in range(9):
        added = FieldSchema(FieldID(0), f"v{number}", DataType.FLOAT_VECTOR, dim=2, nullable=True)
        full = with_added_field(full, added)
    with pytest.raises(InvalidParameter, match="maximum vector field's number should be limited to 10"):
        with_added_field(full, replace(added, name="more"))
