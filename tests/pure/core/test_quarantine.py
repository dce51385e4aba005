"""Which writes are left out by every reader of the log."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.quarantine import NO_SEGMENT, Quarantined, checked, misfit_rows
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp

MINE = CollectionID(7)
SCHEMA = CollectionSchema(
    "c",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(102), "note", DataType.VARCHAR, max_length=8, nullable=True),
    ),
)
IDS = pa.array([1, 2], pa.int64())
VECTORS = pa.array([[1.0, 2.0]] * 2, SCHEMA.field("v").arrow_type)
NOTES = pa.array(["a", None])


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


FITTING = batch(id=IDS, v=VECTORS, note=NOTES)


def insert(rows: pa.RecordBatch) -> InsertMessage:
    return InsertMessage(Timestamp(9), "vc", MINE, PartitionID(1), SegmentID(3), 0, rows)


def delete(keys: pa.Array) -> DeleteMessage:
    return DeleteMessage(Timestamp(9), "vc", MINE, PartitionID(0), keys)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (batch(id=IDS, v=VECTORS), "its columns are"),
        (batch(id=IDS, v=VECTORS, note=NOTES, more=IDS), "its columns are"),
        (batch(v=VECTORS, id=IDS, note=NOTES), "its columns are"),
        (
            batch(id=IDS.cast(pa.int32()), v=VECTORS, note=NOTES),
            "column id is int32, the coll",
        ),
        (batch(id=IDS, v=pa.array([[1.0] * 3] * 2, pa.list_(pa.float32(), 3)), note=NOTES), "column v is"),
        (batch(id=pa.array([1, None], pa.int64()), v=VECTORS, note=NOTES), "column id has 1 nulls"),
    ],
)
def test_rows_that_differ_from_the_schema_do_not_fit(rows: pa.RecordBatch, reason: str) -> None:
    assert misfit_rows(rows, SCHEMA).startswith(reason)
    found = checked(insert(rows), 40, MINE, SCHEMA)
    assert isinstance(found, Quarantined)
    assert (found.position, found.segment_id, found.rows, found.vchannel) == (40, 3, 2, "vc")
    assert found.reason.startswith(reason)


def test_a_message_of_another_collection_does_not_fit() -> None:
    found = checked(insert(FITTING), 40, CollectionID(8), SCHEMA)
    assert isinstance(found, Quarantined)
    assert found.reason == "it is of collection 7, the channel is of 8"


@pytest.mark.parametrize("keys", [pa.array(["a"]), pa.array([1, None], pa.int64())])
def test_keys_that_are_no_primary_keys_do_not_fit(keys: pa.Array) -> None:
    found = checked(delete(keys), 40, MINE, SCHEMA)
    assert isinstance(found, Quarantined)
    assert (found.segment_id, found.rows) == (NO_SEGMENT, len(keys))


@pytest.mark.parametrize("keys", [pa.array(["a", "b"]), pa.array([1, None], pa.int64())])
def test_an_upsert_that_replaces_what_are_no_primary_keys_does_not_fit(keys: pa.Array) -> None:
    start = (Timestamp(9), "vc", MINE, PartitionID(1), SegmentID(3), 0, FITTING)
    found = checked(UpsertMessage(*start, keys), 40, MINE, SCHEMA)
    assert isinstance(found, Quarantined)
    assert (found.segment_id, found.rows) == (3, 2)
    assert checked(fits := UpsertMessage(*start, IDS), 40, MINE, SCHEMA) is not fits
    assert checked(fits, 40, MINE, SCHEMA) == replace(fits, rows=fits.rows.cast(SCHEMA.arrow_schema))


@pytest.mark.parametrize(
    "write", [delete(IDS), UpsertMessage(*(getattr(insert(FITTING), n) for n in InsertMessage.__slots__))]
)
def test_what_fits_comes_back(write: WriteMessage) -> None:
    found = checked(write, 40, MINE, SCHEMA)
    assert type(found) is type(write)


def test_rows_that_differ_in_flags_only_get_those_of_the_schema() -> None:
    """Batches of one segment are joined, which needs the very same schema."""
    found = checked(insert(FITTING), 40, MINE, SCHEMA)
    assert isinstance(found, InsertMessage)
    assert found.rows.schema.equals(SCHEMA.arrow_schema)
    exact = replace(found, ts=Timestamp(10))
    assert checked(exact, 41, MINE, SCHEMA) is exact


def test_a_schema_that_travels_to_a_spark_task_expects_the_same_columns() -> None:
    """Arrow forgets, when it is pickled, that the items of a fixed-size list are not null."""
    assert SCHEMA.arrow_schema is not None, "it is kept with the schema from now on"
    assert pickle.loads(pickle.dumps(SCHEMA)).arrow_schema == SCHEMA.arrow_schema
